// Threads lent to drivers. A driver never knows whose threads they are: the caller's alone, our pool's, or XLA's.
#pragma once

#include <cstdint>
#include <type_traits>

namespace fastconv {

// The work of one `parallel` call: body(context, chunk) for every chunk, in any order, on any thread.
using ChunkBody = void (*)(void* context, int64_t chunk);

class Executor {
public:
    virtual ~Executor() = default;

    // Runs every chunk and returns when all are done. The caller takes part. Chunks run under the caller's floating-point
    // mode (rounding, flush to zero). Drivers split work by problem size only, so results do not depend on `threads()`.
    virtual void parallel(int64_t chunks, ChunkBody body, void* context) = 0;

    // Threads that may run chunks at once, the caller included. For sizing nothing but scratch.
    virtual int threads() const = 0;
};

// Runs chunks on the calling thread.
class InlineExecutor final : public Executor {
public:
    void parallel(int64_t chunks, ChunkBody body, void* context) override {
        for (int64_t chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
    }
    int threads() const override { return 1; }
};

// `parallel` for a callable: for_chunks(executor, n, [&](int64_t chunk) { ... }).
template <class Callable>
void for_chunks(Executor& executor, int64_t chunks, Callable&& callable) {
    using Type = std::remove_reference_t<Callable>;
    executor.parallel(
        chunks, [](void* context, int64_t chunk) { (*static_cast<Type*>(context))(chunk); },
        const_cast<void*>(static_cast<const void*>(&callable)));
}

}  // namespace fastconv
