// Kernels for one channel's rows where they lie: vectors along memory, several rows of outputs in registers.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// One register tile: `rows` x `width` outputs (at most the kernel's rows, and its vectors in lanes), the sum over groups g,
// shifts q and row taps h of
//
//   out[r][j] (+)= row[g][r + h][shift[q] + j * step] * weight[g][q][h]
//
// Each vector that is loaded serves every row it meets. A row that is nullptr counts as zeros and is not read, and so do the
// lanes that `mask` says do not exist: a bit for each lane of every vector loaded, [shift][vectors * step]; nullptr: all exist.
template <class T>
struct PlaneArguments {
    int64_t groups, shifts;
    const T* const* row;
    const int64_t* shift;
    const T* weight;
    const uint32_t* mask;
    T* out;
    int64_t out_step, rows, width;
    bool accumulate;
};
template <class T>
using PlaneFunction = void (*)(const PlaneArguments<T>& arguments);

template <class T>
struct PlaneKernel {
    int rows, vectors, taps, step;
    PlaneFunction<T> run;
};

template <class T>
struct PlaneKernels {
    int lanes;
    const PlaneKernel<T>* planes;
    int count;
    // out[2 i] = even[i], out[2 i + 1] = odd[i], `outputs` altogether. Whole vectors of the inputs may be read.
    void (*interleave)(const T* even, const T* odd, T* out, int64_t outputs);
};

template <class T>
const PlaneKernels<T>& plane_kernels(Isa isa);

}  // namespace fastconv
