// The kernels of the points algorithm: a register tile of points (output positions) x columns that reads the input where it lies.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// sum[m][to + j] (+)= sum over k < depth of row[m][offset[k]] * weight[k][j], for m < rows and j < vectors * lanes.
// Weights are packed without gaps. accumulate: add to what the sums hold.
template <class T>
struct PointArguments {
    int64_t depth;
    const int32_t* offset;
    const T* const* row;
    const T* weight;
    T* const* sum;
    int64_t to;
    bool accumulate;
};
template <class T>
using PointFunction = void (*)(const PointArguments<T>& arguments);

template <class T>
struct PointKernel {
    int rows, vectors;
    PointFunction<T> run;
};

template <class T>
struct PointKernels {
    int lanes;
    const PointKernel<T>* rows;  // kernels of this ISA, `count` of them
    int count;
    // to[i][j] = from[i][j] for i < count and j < length; rows lie to_step and from_step apart.
    void (*copy)(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count, int64_t length);
    // Columns become lines: to[j][i] = from[i][j] for i < count and j < length; from's rows and to's lines lie from_step and
    // to_step apart. With `twin` not null, two sets of rows become lines of twice the length: to[j][2i] = from[i][j] and
    // to[j][2i + 1] = twin[i][j].
    void (*lines)(T* to, int64_t to_step, const T* from, const T* twin, int64_t from_step, int64_t count, int64_t length);
    // Asks the caches for lines [j][i], j < count and i < length, that lie to_step apart and will be written.
    void (*fetch)(const T* to, int64_t to_step, int64_t count, int64_t length);
    // A vector of rows becomes columns, each a vector in a place of its own: to[place[k] + j] = from[j * step + k] for j < lanes and
    // k < count. Returns whether all are finite.
    bool (*spread)(T* to, const int64_t* place, const T* from, int64_t step, int64_t count);
};

template <class T>
const PointKernels<T>& point_kernels(Isa isa);

}  // namespace fastconv
