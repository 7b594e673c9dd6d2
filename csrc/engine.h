// The engine's one entry: a checked problem, its buffers and lent threads in; a finished output or a message out.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// Runs a problem that `parse_problem` and `check_buffers` accepted. Returns nullptr, or a message (nothing written) when the
// algorithm cannot run this problem or memory is exhausted.
const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor);

}  // namespace fastconv
