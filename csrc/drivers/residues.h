// What strides make of an axis that is walked along memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "drivers/grouped.h"

namespace fastconv {

// The residues modulo `stride` that taps have: each is a plane of its own, so that neighbouring positions lie side by side.
struct Residues {
    explicit Residues(const SweepAxis& a) : stride(a.stride) {
        for (int64_t k = 0; k < a.taps && static_cast<int64_t>(used.size()) < stride; ++k) {
            const int64_t residue = k * a.dilation % stride;
            if (std::find(used.begin(), used.end(), residue) == used.end()) used.push_back(residue);
        }
        reach = (a.taps - 1) * a.dilation / stride;
    }
    int64_t count() const { return static_cast<int64_t>(used.size()); }
    int64_t place(int64_t shift) const { return std::find(used.begin(), used.end(), shift % stride) - used.begin(); }

    int64_t stride, reach;  // reach: how far the last tap lies beyond the first, in positions
    std::vector<int64_t> used;
};

}  // namespace fastconv
