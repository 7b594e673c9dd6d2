// The kernels of the depthwise algorithm: every lane of a vector is a convolution of its own, the groups side by side.
#pragma once

#include <cstdint>

#include "base/isa.h"
#include "problem.h"

namespace fastconv {

// One register tile: rows x columns outputs of each lane l < lanes, the sum over outer taps a and inner taps b of
//
//   out[r][j] (+)= lhs[lhs_offset[a] + b * inner_lhs + r * row_lhs + j * column_lhs] * rhs[rhs_offset[a] + b * inner_rhs]
//
// every operand at + l; out[r][j] lies at r * row_out + j * column_out. Lanes are the innermost loop but for the taps, so that
// memory is read in order where the groups lie side by side. Operands are of T, or of half types where a kernel says so; out of
// one is rounded once, and not accumulated.
template <class T>
struct LaneArguments {
    int64_t lanes, outer, inner;
    const int64_t *lhs_offset, *rhs_offset;
    int64_t inner_lhs, inner_rhs, row_lhs, column_lhs, row_out, column_out;
    const void *lhs, *rhs;
    void* out;
    bool accumulate;
};
// Kernels of several taps are for column_lhs == inner_lhs, where neighbouring columns share what they read.
template <class T>
using LaneFunction = void (*)(const LaneArguments<T>& arguments);

template <class T>
struct LaneKernel {
    int rows, columns, taps;
    LaneFunction<T> run;
};

// A strided row of every lane to or from a panel, where the lanes lie side by side: panel[x * panel_step + l] is
// memory[l * lane_step + x * step], x < count, l < lanes. A gathered panel has zeros in its missing lanes.
template <class T>
struct LaneRow {
    int64_t lanes, lane_step, count, step, panel_step;
};

// Where the elements of a half type lie: in no operand; in lhs and out; in lhs and rhs, for sums of float32.
enum class LaneHalves { none, images, sums };

// The kernels for one type of the memory. All sets of an ISA have the same shapes.
template <class T>
struct LaneSet {
    const LaneKernel<T>* of[3];  // by LaneHalves; nullptr: there are none
    void (*gather)(const LaneRow<T>& row, const void* memory, T* panel);
    void (*scatter)(const LaneRow<T>& row, const T* panel, void* memory);
};

template <class T>
struct LaneKernels {
    int lanes, count;
    LaneSet<T> own, f16, bf16;  // the latter for T float
    const LaneSet<T>& of(Dtype dtype) const { return dtype == Dtype::f16 ? f16 : dtype == Dtype::bf16 ? bf16 : own; }
};

template <class T>
const LaneKernels<T>& lane_kernels(Isa isa);

}  // namespace fastconv
