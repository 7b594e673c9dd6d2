// Weights whose taps lie side by side, packed for all phases at once: a feature's taps are read once, and not once for each phase.
#pragma once

#include <cstdint>
#include <vector>

#include "drivers/points_plan.h"
#include "kernels/point.h"

namespace fastconv {

constexpr int64_t kMostTapsInRun = 64;

struct WeightRuns {
    int64_t length = 0;             // of the taps of a feature and channel; 0: weights do not lie so
    int64_t first = 0;              // of them in rhs, of the first feature and channel
    std::vector<int64_t> to, step;  // [vector of features][tap]: where the first channel's weights go, and how far on the next one's do
};

WeightRuns find_weight_runs(const Problem& problem, const PointPlan& plan, int lanes);

// Packs channels first <= c < first + count; `data`: rhs of the group. Returns whether all weights are finite.
template <class T>
bool pack_weight_runs(const WeightRuns& runs, const Problem& problem, const PointKernels<T>& kernels, const T* data, int64_t first,
                      int64_t count, T* packed);

}  // namespace fastconv
