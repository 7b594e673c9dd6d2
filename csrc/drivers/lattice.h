// A problem as matrix products: rows (output positions) x columns (features and phases) x depth (channels and taps).
//
// With lhs dilation the output splits into phases p mod period, each with its own taps. Phases with the same taps become
// columns of one lattice, so no zero of the dilated input is ever multiplied (Shi et al. 2016: a transposed convolution is a
// dense one with phases as channels). A lattice is affine in everything:
//
//   lhs index of (row, depth):  lhs + n*lhs_n + sum q_i*q_lhs_i  +  c*lhs_c + sum t_i*t_lhs_i
//   in range on axis i iff      0 <= q_i*q_input_i + input_i + t_i*t_input_i < size_i
//   rhs index of (column, depth): column.rhs + c*rhs_c + sum t_i*t_rhs_i
//   out index of (row, column):  n*out_n + sum q_i*q_out_i + column.out
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace fastconv {

struct Column {
    int64_t rhs, out, feature;
};

// Taps first <= t < last of a column on one axis.
struct TapRange {
    int64_t first, last;
};

struct LatticeAxis {
    int64_t positions, q_lhs, q_out, q_input;  // output positions of the phase group, and what one step of q moves
    int64_t taps, t_lhs, t_rhs, t_input;       // taps of the phase group, and what one step of t moves
    int64_t input, size;                       // input index of q = t = 0; extent of the input
};

struct Lattice {
    int dims;
    LatticeAxis axes[kMaxDims];
    int64_t batch, lhs_n, out_n;
    int64_t channels, lhs_c, rhs_c;
    int64_t lhs;  // index of n = q = c = t = 0 in group 0; may lie outside the buffer when that position is padding
    std::vector<Column> columns;
    std::vector<TapRange> ranges;  // columns x dims, of merged lattices only: a column's weights at other taps count as zeros

    int64_t rows() const;
    int64_t depth() const;
};

// Every lattice of the problem; together they cover each output once. Group g adds g * outer[0] to each index.
// merged: phases of different taps share a lattice, which spans the taps of all: few features then fill a vector.
std::vector<Lattice> make_lattices(const Problem& problem, bool merged = false);

}  // namespace fastconv
