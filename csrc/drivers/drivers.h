// The algorithms: one function each, in a file of its name. All share the contract of `run_problem`.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

const char* run_general(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_direct(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_stencil(const Problem& problem, const Buffers& buffers, Executor& executor);
bool stencil_takes_halves(const Problem& problem);  // the driver then needs no copies of them as float32
const char* run_points(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_reduce(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_winograd(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_grouped(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_outer(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_block(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_dots(const Problem& problem, const Buffers& buffers, Executor& executor);
const char* run_depthwise(const Problem& problem, const Buffers& buffers, Executor& executor);
bool depthwise_takes_halves(const Problem& problem);

}  // namespace fastconv
