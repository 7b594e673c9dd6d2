// The weights of a Winograd problem, transformed: 16 planes of products' operands. A pair of vectors of features lies as
// [plane][outer tap][channel][lane], the last pair with one vector if there are so many.
#pragma once

#include "base/executor.h"
#include "drivers/winograd_plan.h"
#include "kernels/winograd.h"

namespace fastconv {

template <class T>
class WinogradWeights {
public:
    WinogradWeights(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const T* rhs);

    // Scratch that `pair` needs, in elements.
    int64_t scratch_size() const { return panel_size() + 16 * w_.lanes * w_.lanes; }

    // Transforms the pair of vectors that begins with `vector`.
    void pair(int64_t group, int64_t vector, T* to, T* scratch) const;

    // Transforms all, each pair to to + at(group, vector). Returns nullptr, or a message when memory is exhausted.
    const char* all(T* to, Executor& executor) const;
    int64_t at(int64_t group, int64_t vector) const { return group * w_.weights() + 16 * w_.weight_plane(vector * w_.lanes); }

private:
    // How a square of weights, a vector of features by a vector of channels, is read.
    enum class Reading {
        features_side_by_side,  // where they lie: lanes are features
        channels_side_by_side,  // where they lie: lanes are channels, and turned afterwards
        runs,                   // the taps of a kernel run on: copied with features in lanes
        one_by_one
    };
    Reading choose() const;
    bool turned() const { return reading_ == Reading::channels_side_by_side; }
    int64_t panel_size() const;
    void square(int64_t group, int64_t vector, int64_t block, T* pair, T* panel) const;
    void put(int64_t tap, int64_t vector, int64_t block, const T* from, int64_t ky, int64_t kx, int64_t item, int64_t items, int64_t count,
             T* pair, T* panel) const;

    const WinogradPlan& w_;
    const WinogradKernels<T>& kernels_;
    const T* rhs_;
    const int64_t feature_, channel_;
    int64_t run_ = 1, lowest_ = 0;  // elements from the lowest tap to the highest; the lowest one, from the first
    Reading reading_;
};

}  // namespace fastconv
