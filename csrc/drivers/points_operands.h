// The operands of the points algorithm as its tasks read them.
#pragma once

#include "drivers/points_plan.h"
#include "kernels/point.h"

namespace fastconv {

// The points of one task: where they start and how many there are on each axis.
struct PointBlock {
    int64_t group, first[kMaxDims + 1], count[kMaxDims + 1], points;
};

// Copies a block's piece of the input, zeros for padding, plane by plane of the two innermost dimensions. `lhs`: of the group.
template <class T>
void copy_points(const PointPart& part, const PointBlock& block, const PointKernels<T>& kernels, const T* lhs, T* to);

// Packs depth first <= k < first + count of a panel of merged phases: zeros where a phase lacks the tap. `data`: rhs of the group.
template <class T>
void pack_merged(const PointSet& set, const PointPanel& panel, const T* data, int64_t first, int64_t count, T* to);

}  // namespace fastconv
