// Depthwise convolutions whose rows lie along memory (channels first): rows are read where they are, vectors run along them.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// True when `problem`, its axes sorted and two of them at least, suits this way: rows side by side in lhs and out, few taps
// along a row that is not much shorter than a vector.
bool suits_planes(const Problem& problem, int lanes);

// Whether a problem of half types that suits need not be copied as float32: `run_planes` then takes its lhs and out as they are,
// but weights and bias of T, all of them finite.
bool planes_take_halves(const Problem& problem);

// Runs a problem that suits. T: float or double. Returns nullptr or a message.
template <class T>
const char* run_planes(const Problem& problem, const Buffers& buffers, Executor& executor);

}  // namespace fastconv
