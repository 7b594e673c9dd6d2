// The kernels of the direct algorithm: a register tile of outputs, and the copies that lay its operands out.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// c[m][j] (+)= sum over k < depth of a[k][m] * b[k][j], for m < rows and j < vectors * lanes; all three packed without gaps.
// accumulate: add to what c holds, else overwrite it. The second form of a kernel reads a[m][k] instead.
template <class T>
using TileFunction = void (*)(int64_t depth, const T* a, const T* b, T* c, bool accumulate);

template <class T>
struct TileKernel {
    int rows, vectors;
    TileFunction<T> run;
    TileFunction<T> run_by_rows;  // nullptr where the row pointers would not fit the registers
};

// A panel holds `width` lanes for each depth step: panel[k * width + lane].
template <class T>
struct PackKernels {
    // Evenly spaced lanes: panel[k][j] = from[k * step + j * spacing] for j < count.
    void (*spaced)(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, int64_t spacing, int64_t count);
    // Runs of `run` lanes: panel[k][j] = from[start[j / run * run] + j % run + k * step] for j < count; run < 0: of -run lanes,
    // each from start downwards.
    void (*runs)(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, const int64_t* start, int64_t run, int64_t count);
    // Lanes that are walked along their depth: panel[k][j] = from[j][k * step] for begin[j] <= k < end[j], else 0; j < count.
    void (*walked)(T* panel, int64_t width, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end, int64_t count,
                   int64_t step);
    // Rows `pitch` apart, side by side: to[j * parts + c] = from[c * pitch + j] for j < count.
    void (*weave)(T* to, const T* from, int64_t pitch, int64_t parts, int64_t count);
};

template <class T>
struct TileKernels {
    int lanes;
    const TileKernel<T>* rows;  // kernels of this ISA, `count` of them
    int count;
    PackKernels<T> pack;
    // True when none of `count` elements (a whole number of vectors) is infinite or NaN.
    bool (*finite)(const T* from, int64_t count);
};

template <class T>
const TileKernels<T>& tile_kernels(Isa isa);

}  // namespace fastconv
