// The drivers of real numbers serve other element types: operands are copied as reals into scratch, the driver runs on the copies,
// and its result is copied back. Half types and integers are widened; complex numbers become planes of a larger real problem.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

using Driver = const char* (*)(const Problem& problem, const Buffers& buffers, Executor& executor);

// True when `driver` could not take the problem as it is because of its element types.
bool needs_conversion(const Problem& problem);

// Runs `driver` on a converted problem. Shares the contract of `run_problem`.
const char* run_converted(const Problem& problem, const Buffers& buffers, Executor& executor, Driver driver);

}  // namespace fastconv
