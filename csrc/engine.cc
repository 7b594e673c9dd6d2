#include "engine.h"

#include "drivers/drivers.h"

namespace fastconv {

const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor) {
    switch (problem.algorithm) {
        case kGeneral: return run_general(problem, buffers, executor);
        case kDirect: return run_direct(problem, buffers, executor);
        case kStencil: return run_stencil(problem, buffers, executor);
        default: return "plan words: unknown algorithm code";
    }
}

}  // namespace fastconv
