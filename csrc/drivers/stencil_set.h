// The kernels of the stencil algorithm, found by their shape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/stencil.h"

namespace fastconv {

constexpr int kMaxTaps = 8, kMaxRows = 16, kMaxVectors = 2;

// The kernels of one tile shape family: by rows and taps.
template <class T>
struct StencilSet {
    StencilSet(const StencilKernels<T>& kernels, int vectors_wanted) : lanes(kernels.lanes), vectors(vectors_wanted) {
        for (int i = 0; i < kernels.stencil_count; ++i) {
            const StencilKernel<T>& kernel = kernels.stencils[i];
            if (kernel.vectors != vectors) continue;
            table[kernel.rows][kernel.taps] = kernel.run;
            max_rows = std::max(max_rows, kernel.rows);
        }
    }
    // The most rows a tile can have out of `left`.
    int rows_for(int64_t left) const {
        int rows = static_cast<int>(std::min<int64_t>(left, max_rows));
        while (table[rows][1] == nullptr) --rows;
        return rows;
    }
    int lanes, vectors, max_rows = 0;
    StencilFunction<T> table[kMaxRows + 1][kMaxTaps + 1] = {};
};

template <class T>
int max_taps(const StencilKernels<T>& kernels) {
    int taps = 0;
    for (int i = 0; i < kernels.stencil_count; ++i) taps = std::max(taps, kernels.stencils[i].taps);
    return taps;
}

}  // namespace fastconv
