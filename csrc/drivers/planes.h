// Depthwise convolutions whose rows lie along memory (channels first): rows are read where they are, vectors run along them.
#pragma once

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// True when `problem`, its axes sorted and two of them at least, suits this way: rows side by side in lhs and out, few taps
// along a row that is not much shorter than a vector.
bool suits_planes(const Problem& problem, int lanes);

// Runs a problem that suits. T: float or double. Returns nullptr or a message.
template <class T>
const char* run_planes(const Problem& problem, const Buffers& buffers, Executor& executor);

}  // namespace fastconv
