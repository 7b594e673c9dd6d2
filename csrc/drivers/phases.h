// A problem with a dilated input as several without: one for each residue of the output positions, with its own taps.
#pragma once

#include <vector>

#include "problem.h"

namespace fastconv {

// Together the problems write every output once; one that no tap meets has a kernel of 0 taps on some axis.
std::vector<Problem> split_phases(const Problem& problem);

}  // namespace fastconv
