// Chunks shared out among threads: each thread drains a stretch of its own before it takes from others. The same thread then
// meets the same memory call after call, and little of it has to move between the cores' caches.
#pragma once

#include <atomic>
#include <cstdint>

namespace fastconv {

class Stretches {
public:
    Stretches(int64_t chunks, int64_t threads) : count_(threads < kMax ? static_cast<int>(threads) : kMax) {
        for (int i = 0; i < count_; ++i) {
            stretch_[i].next.store(chunks * i / count_, std::memory_order_relaxed);
            stretch_[i].end = chunks * (i + 1) / count_;
        }
    }

    // Runs body(chunk) for every chunk that this call claims; `thread` numbers the threads that take part, from 0.
    template <class Body>
    void drain(int thread, Body&& body) {
        for (int i = 0; i < count_; ++i) {
            Stretch& own = stretch_[(thread + i) % count_];
            for (int64_t chunk; (chunk = own.next.fetch_add(1, std::memory_order_relaxed)) < own.end;) body(chunk);
        }
    }

    bool has_work() const {
        for (int i = 0; i < count_; ++i)
            if (stretch_[i].next.load(std::memory_order_relaxed) < stretch_[i].end) return true;
        return false;
    }

private:
    static constexpr int kMax = 64;
    struct alignas(64) Stretch {
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };
    const int count_;
    Stretch stretch_[kMax];
};

}  // namespace fastconv
