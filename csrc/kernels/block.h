// The kernels of the block algorithm: a register tile of outputs from operands that stay where they lie.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// One register tile of `rows` x (vectors * lanes) outputs, a sum over segments (taps) and steps (channels):
//
//   c[m][j] (+)= sum over s < segments, i < steps of  a[s * rows + m][a_shift + i * a_step] * b[s][b_shift + i * b_step + j]
//
// One side's pointers lead to pixels, the other's to weights; the shifts move a whole table to other channels, features or pixels. Of
// the last vector of each row `tail` lanes (1 ... lanes) are stored; all of b's vectors are read whole.
template <class T>
struct BlockArguments {
    int64_t segments, steps;
    const T* const* a;
    const T* const* b;
    int64_t a_shift, a_step, b_shift, b_step;
    T* const* c;
    int64_t tail;
    bool accumulate;
};
template <class T>
using BlockFunction = void (*)(const BlockArguments<T>& arguments);

template <class T>
struct BlockKernel {
    int rows, vectors;
    BlockFunction<T> run;
};

template <class T>
struct BlockKernels {
    int lanes;
    const BlockKernel<T>* blocks;
    int count;
};

template <class T>
const BlockKernels<T>& block_kernels(Isa isa);

}  // namespace fastconv
