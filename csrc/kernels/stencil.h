// The kernels of the stencil and reduce algorithms: few channels, vectors along the innermost axis.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// One register tile of a stencil: `rows` x (vectors * lanes) outputs, the sum over groups (channels and outer taps) of
//
//   out[r][j] (+)= sum over q < shifts, h < taps of  in[offset[group] + shift[q] + (r + h) * row_step + j] * weight[group][q * taps + h]
//
// Each input vector is loaded once and used by every row it meets. out[r][j] lies at out + r * out_step + j.
template <class T>
struct StencilArguments {
    int64_t groups, shifts, row_step, out_step;
    const int64_t* offset;
    const T* const* weight;
    const int64_t* shift;
    const T* in;
    T* out;
    bool accumulate;
};
template <class T>
using StencilFunction = void (*)(const StencilArguments<T>& arguments);

template <class T>
struct StencilKernel {
    int rows, vectors, taps;
    StencilFunction<T> run;
};

// `left` x `right` dot products along memory: sum[i][j] += sum over k < depth of a[i][k] * b[j][k], the lanes kept apart:
// sum holds left * right vectors. Whole vectors only: depth is rounded down to lanes; the rest is the caller's.
template <class T>
using DotFunction = void (*)(int64_t depth, const T* const* a, const T* const* b, T* sum);

template <class T>
struct DotKernel {
    int left, right;
    DotFunction<T> run;
};

template <class T>
struct StencilKernels {
    int lanes;
    const StencilKernel<T>* stencils;
    int stencil_count;
    const DotKernel<T>* dots;
    int dot_count;
};

template <class T>
const StencilKernels<T>& stencil_kernels(Isa isa);

}  // namespace fastconv
