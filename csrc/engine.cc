#include "engine.h"

#include <new>

#include "drivers/converted.h"
#include "drivers/drivers.h"

namespace fastconv {
namespace {

bool has_outputs(const Problem& problem) {
    bool any = problem.groups > 0 && problem.batch > 0 && problem.features > 0;
    for (int i = 0; i < problem.dims; ++i) any = any && problem.axes[i].out > 0;
    return any;
}

// The driver of an algorithm's code in packed words, which src/fastconv/plan/rows names; nullptr for a code without one.
Driver driver_of(int64_t algorithm) {
    switch (algorithm) {
        case 0: return run_general;
        case 1: return run_direct;
        case 2: return run_stencil;
        case 3: return run_reduce;
        case 4: return run_depthwise;
        case 5: return run_block;
        case 6: return run_winograd;
        case 7: return run_grouped;
        case 8: return run_outer;
        case 9: return run_dots;
        case 10: return run_points;
        default: return nullptr;
    }
}

}  // namespace

const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor) try {
    const Driver driver = driver_of(problem.algorithm);
    if (driver == nullptr) return "plan words: unknown algorithm code";
    if (!has_outputs(problem)) return nullptr;  // drivers may count on some
    const bool any_type = driver == run_general || driver == run_dots || (driver == run_stencil && stencil_takes_halves(problem)) ||
                          (driver == run_depthwise && depthwise_takes_halves(problem));
    if (!any_type && needs_conversion(problem)) return run_converted(problem, buffers, executor, driver);
    return driver(problem, buffers, executor);
} catch (const std::bad_alloc&) {
    return "out of memory";
}

}  // namespace fastconv
