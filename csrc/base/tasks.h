// Tasks that work in scratch memory of the thread they run on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/executor.h"
#include "base/scratch.h"

namespace fastconv {

// work(task, local) for every task < tasks, `local` being `bytes` of the running thread's scratch. Returns nullptr, or a message
// when memory is exhausted: some tasks were left out then.
template <class Work>
const char* for_tasks(Executor& executor, int64_t tasks, size_t bytes, Work&& work) {
    std::atomic<bool> exhausted{false};
    for_chunks(executor, tasks, [&](int64_t task) {
        void* local = scratch(ScratchSlot::local, bytes);
        if (local == nullptr)
            exhausted.store(true);
        else
            work(task, local);
    });
    return exhausted.load() ? "out of memory" : nullptr;
}

}  // namespace fastconv
