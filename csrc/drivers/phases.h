// A problem with a dilated input as several without: one for each residue of the output positions, with its own taps.
#pragma once

#include <vector>

#include "problem.h"

namespace fastconv {

// The outputs first + q * step of the whole on every axis, and the problem that makes them out of its taps tap_first + k * tap_step.
struct Phase {
    Problem problem;
    int64_t first[kMaxDims], step[kMaxDims], tap_first[kMaxDims], tap_step[kMaxDims];
};

// Together the phases write every output once; one that no tap meets has a kernel of 0 taps on some axis.
std::vector<Phase> phases_of(const Problem& problem);

// The problems of the phases alone.
std::vector<Problem> split_phases(const Problem& problem);

}  // namespace fastconv
