#include "engine.h"

#include "drivers/drivers.h"

namespace fastconv {

const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor) {
    switch (problem.algorithm) {
        case kGeneral: return run_general(problem, buffers, executor);
        default: return "plan words: unknown algorithm code";
    }
}

}  // namespace fastconv
