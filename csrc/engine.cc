#include "engine.h"

#include <new>

#include "drivers/drivers.h"

namespace fastconv {

const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor) try {
    switch (problem.algorithm) {
        case kGeneral: return run_general(problem, buffers, executor);
        case kDirect: return run_direct(problem, buffers, executor);
        case kStencil: return run_stencil(problem, buffers, executor);
        case kReduce: return run_reduce(problem, buffers, executor);
        default: return "plan words: unknown algorithm code";
    }
} catch (const std::bad_alloc&) {
    return "out of memory";
}

}  // namespace fastconv
