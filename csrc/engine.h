// The engine's one entry: a checked problem, its buffers and lent threads in; a finished output or a message out.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// Algorithm codes of packed words (src/fastconv/plan/algorithms.py names them).
enum Algorithm : int64_t { kGeneral = 0, kDirect = 1, kStencil = 2, kReduce = 3, kAlgorithms = 4 };

// Runs a problem that `parse_problem` and `check_buffers` accepted. Returns nullptr, or a message (nothing written) when the
// algorithm cannot run this problem or memory is exhausted.
const char* run_problem(const Problem& problem, const Buffers& buffers, Executor& executor);

}  // namespace fastconv
