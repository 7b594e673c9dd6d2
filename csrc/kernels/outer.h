// The kernels of the outer algorithm: sums of outer products over pixels, for weight gradients.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// One register tile: sum[m][j] (+)= sum over y < rows, x < pixels of  a[m][y * a_row + x * a_pixel] * b[y * b_row + x * b_pixel + j]
// for every row m and lane j of the tile; sum is without gaps. `a` is read where it lies, one element at a time. Kernels of more than
// kOuterPlaces rows take them by threes: rows 3 i, 3 i + 1 and 3 i + 2 lie a_step apart. Those kernels spend so little time on a vector of
// b that, where it comes from far, memory must be asked for it early.
constexpr int kOuterPlaces = 8;

template <class T>
struct OuterArguments {
    int64_t rows, pixels;
    const T* const* a;
    int64_t a_row, a_pixel, a_step;
    const T* b;
    int64_t b_row, b_pixel;
    T* sum;
    bool accumulate;
    bool far;  // b lies in memory rather than in a cache
};
template <class T>
using OuterFunction = void (*)(const OuterArguments<T>& arguments);

template <class T>
struct OuterKernel {
    int rows, vectors;
    OuterFunction<T> run;
};

template <class T>
struct OuterKernels {
    int lanes;
    const OuterKernel<T>* tiles;
    int count;
    // into[j] += from[j] + from[step + j] + ... (`parts` of them, in order) for j < count, a whole number of vectors.
    void (*add_parts)(T* into, const T* from, int64_t step, int64_t parts, int64_t count);
};

template <class T>
const OuterKernels<T>& outer_kernels(Isa isa);

}  // namespace fastconv
