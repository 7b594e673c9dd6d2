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

}  // namespace

const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor) try {
    constexpr decltype(&run_general) drivers[kAlgorithms] = {run_general,  run_direct, run_stencil, run_reduce, run_depthwise, run_block,
                                                             run_winograd, nullptr,    run_outer,   run_dots};  // nullptr: no driver
    if (problem.algorithm < 0 || problem.algorithm >= kAlgorithms || drivers[problem.algorithm] == nullptr)
        return "plan words: unknown algorithm code";
    if (!has_outputs(problem)) return nullptr;  // drivers may count on some
    const Driver driver = drivers[problem.algorithm];
    if (driver != run_general && driver != run_dots && needs_conversion(problem)) return run_converted(problem, buffers, executor, driver);
    return driver(problem, buffers, executor);
} catch (const std::bad_alloc&) {
    return "out of memory";
}

}  // namespace fastconv
