// The engine's one entry: a checked problem, its buffers and lent threads in; a finished output or a message out.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// Algorithm codes of packed words run below this; src/fastconv/plan/rows names them, the table in engine.cc has their drivers.
constexpr int64_t kAlgorithms = 10;

// Runs a problem that `parse_problem` and `check_buffers` accepted. Returns nullptr, or a message (nothing written) when the
// algorithm cannot run this problem or memory is exhausted.
const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor);

}  // namespace fastconv
