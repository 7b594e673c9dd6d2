#include "base/pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "base/fpenv.h"
#include "base/stretches.h"

namespace fastconv {
namespace {

constexpr int kMaxThreads = 1024;
// About 50 us of polling: longer than the gap between the convolutions of a network, shorter than a scheduler tick.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// One `parallel` call. Lives on its caller's stack: workers find it in the pool's list under the mutex, and the caller takes
// it off the list and waits for `active` to reach zero before it returns.
struct Job {
    Job(int64_t chunks, int helpers, ChunkBody work, void* data)
        : body(work), context(data), limit(helpers), mode(FpMode::current()), stretches(chunks, helpers + 1) {}

    void work(int thread) {
        stretches.drain(thread, [this](int64_t chunk) { body(context, chunk); });
    }
    bool has_work() const { return stretches.has_work(); }

    ChunkBody body;
    void* context;
    int limit;  // helpers that may join
    FpMode mode;
    Stretches stretches;
    std::atomic<int> active{0};
    Job* link = nullptr;
};

struct Pool {
    std::mutex mutex;
    std::condition_variable wake;
    Job* jobs = nullptr;
    int workers = 0;
    std::atomic<int> started{0};
    int sleepers = 0;
    std::atomic<uint64_t> posted{0};  // raised with every job, so that a spinning worker sees it without the mutex

    // The job with work left and the fewest helpers, so that callers share the workers. Called under the mutex.
    Job* pick() {
        Job* best = nullptr;
        for (Job* job = jobs; job != nullptr; job = job->link) {
            const int active = job->active.load(std::memory_order_relaxed);
            if (job->has_work() && active < job->limit && (best == nullptr || active < best->active.load(std::memory_order_relaxed)))
                best = job;
        }
        return best;
    }

    void serve(int thread) {
        for (;;) {
            const uint64_t seen = posted.load(std::memory_order_acquire);
            Job* job = nullptr;
            {
                std::lock_guard<std::mutex> lock(mutex);
                job = pick();
                if (job != nullptr) job->active.fetch_add(1, std::memory_order_relaxed);
            }
            if (job != nullptr) {
                job->mode.apply();
                job->work(thread);
                job->active.fetch_sub(1, std::memory_order_release);  // the last touch: the caller may return now
                continue;
            }
            int spins = 0;
            while (posted.load(std::memory_order_acquire) == seen && ++spins < kSpins) relax();
            if (spins < kSpins) continue;
            std::unique_lock<std::mutex> lock(mutex);
            if (posted.load(std::memory_order_acquire) != seen) continue;
            ++sleepers;
            wake.wait(lock, [&] { return posted.load(std::memory_order_acquire) != seen; });
            --sleepers;
        }
    }

    // Starts workers up to `wanted`; a refused thread only means fewer helpers. Called under the mutex.
    void grow(int wanted) {
        while (workers < wanted) {
            pthread_t thread;
            pthread_attr_t attributes;
            if (pthread_attr_init(&attributes) != 0) return;
            pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
            const int failed = pthread_create(
                &thread, &attributes,
                [](void* pool) -> void* {
                    Pool* self = static_cast<Pool*>(pool);
                    self->serve(self->started.fetch_add(1) + 1);
                    return nullptr;
                },
                this);
            pthread_attr_destroy(&attributes);
            if (failed != 0) return;
            ++workers;
        }
    }

    void run(Job& job) {
        bool notify = false;
        {
            std::lock_guard<std::mutex> lock(mutex);
            grow(job.limit);
            job.link = jobs;
            jobs = &job;
            posted.fetch_add(1, std::memory_order_release);
            notify = sleepers > 0;
        }
        if (notify) wake.notify_all();
        job.work(0);
        {
            std::lock_guard<std::mutex> lock(mutex);
            Job** place = &jobs;
            while (*place != &job) place = &(*place)->link;
            *place = job.link;
        }
        int spins = 0;
        while (job.active.load(std::memory_order_acquire) != 0) {
            relax();
            if (++spins % kSpins == 0) std::this_thread::yield();
        }
    }
};

// Never destroyed: workers may outlive static destructors. Storage of its own, so that a forked child can make it anew.
alignas(Pool) unsigned char storage[sizeof(Pool)];
Pool* pool() {
    static Pool* instance = [] {
        Pool* made = new (storage) Pool;
        // Workers do not survive a fork. The child gets a fresh pool; the mutex is held across the fork so that no list is torn.
        pthread_atfork([] { reinterpret_cast<Pool*>(storage)->mutex.lock(); }, [] { reinterpret_cast<Pool*>(storage)->mutex.unlock(); },
                       [] { new (storage) Pool; });
        return made;
    }();
    return instance;
}

int count_cpus() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
    const unsigned count = std::thread::hardware_concurrency();
    return count == 0 ? 1 : static_cast<int>(count);
}

int clamp_threads(int64_t count) { return static_cast<int>(count < 1 ? 1 : count > kMaxThreads ? kMaxThreads : count); }

std::atomic<int>& limit() {
    static std::atomic<int> value{default_threads()};
    return value;
}

}  // namespace

int default_threads() {
    static const int count = [] {
        const char* text = std::getenv("FASTCONV_NUM_THREADS");
        const long wanted = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
        return clamp_threads(wanted > 0 ? wanted : count_cpus());
    }();
    return count;
}

void set_threads(int64_t count) { limit().store(count <= 0 ? default_threads() : clamp_threads(count)); }

int current_threads() { return limit().load(); }

void PoolExecutor::parallel(int64_t chunks, ChunkBody body, void* context) {
    if (chunks <= 1 || threads_ <= 1) {
        InlineExecutor().parallel(chunks, body, context);
        return;
    }
    const int64_t helpers = chunks - 1 < threads_ - 1 ? chunks - 1 : threads_ - 1;
    Job job(chunks, static_cast<int>(helpers), body, context);
    pool()->run(job);
}

}  // namespace fastconv
