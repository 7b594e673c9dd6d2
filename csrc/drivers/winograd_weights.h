// The weights of a Winograd problem, transformed once a call for all tasks: 16 planes of products' operands.
#pragma once

#include "base/executor.h"
#include "drivers/winograd_plan.h"
#include "kernels/winograd.h"

namespace fastconv {

// Where the weights of features from vector `vector` (even) on start, in elements; they are laid out as
// [group][pair of vectors][plane][outer tap][channel][lane], the last pair with one vector if there are so many.
inline int64_t winograd_weights_at(const WinogradPlan& plan, int64_t group, int64_t vector) {
    return group * plan.weights() + 16 * plan.weight_plane(vector * plan.lanes);
}

// Fills `to` (plan.weights() elements for each group). Returns nullptr, or a message when memory is exhausted.
template <class T>
const char* transform_weights(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const T* rhs, T* to, Executor& executor);

}  // namespace fastconv
