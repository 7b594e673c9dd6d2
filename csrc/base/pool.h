// The library's own threads: a few workers that spin briefly, then sleep, shared by all calling threads.
#pragma once

#include "base/executor.h"

namespace fastconv {

// Threads a call may use, the caller included: FASTCONV_NUM_THREADS, else the CPUs in the affinity mask.
int default_threads();

// Limits calls from now on; 0 restores the default.
void set_threads(int64_t count);
int current_threads();

// An executor over the shared pool with the current limit. Cheap to make; safe from any number of threads and after fork.
class PoolExecutor final : public Executor {
public:
    PoolExecutor() : threads_(current_threads()) {}
    void parallel(int64_t chunks, ChunkBody body, void* context) override;
    int threads() const override { return threads_; }

private:
    int threads_;
};

}  // namespace fastconv
