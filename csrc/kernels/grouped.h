// The kernels of the grouped algorithm: few channels a group.
//
// Lanes are channels: a vector holds neighbouring output channels of several groups, and the input is spread, so that every lane
// finds its own group's channel in its own place. Lanes are pixels: a vector holds neighbouring outputs of one feature.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

// Memory that will be wanted soon: `count` places, `step` elements apart. A kernel asks for one with each step of its own, so that the
// requests do not queue up.
template <class T>
struct Ahead {
    const T* first;
    int64_t step, count;
};

// out[t] (+)= sum over k < depth of weight[k] * in[offset[k] + t * step] for t < rows; each term a vector of lanes, out[t] at
// out + t * out_step. Where all lanes have the same input, `in` holds it once, and each element goes to every lane.
template <class T>
struct LanesArguments {
    int64_t depth;
    const int64_t* offset;
    const T *weight, *in;
    int64_t step;
    T* out;
    int64_t out_step;
    bool accumulate;
    Ahead<T> ahead;
};
template <class T>
using LanesFunction = void (*)(const LanesArguments<T>& arguments);

template <class T>
struct LanesKernel {
    int rows;
    LanesFunction<T> run, run_same;  // run_same: the input is the same in all lanes
};

// sum[r][q] += sum over x < count of dy[x * dy_step] * in[offset[r] + x * step + q * lanes] for r < rows, q < taps; each term a
// vector of lanes.
template <class T>
using LaneSumFunction = void (*)(int64_t count, const T* dy, int64_t dy_step, const int64_t* offset, const T* in, int64_t step, T* sum,
                                 const Ahead<T>& ahead);

template <class T>
struct LaneSumKernel {
    int rows, taps;
    LaneSumFunction<T> run;
};

// out[r][j] = sum over k < depth of weight[k * rows + r] * in[offset[k] + j] for r < rows, j < vectors * lanes; out[r] at
// out + r * out_step.
template <class T>
using PixelsFunction = void (*)(int64_t depth, const int64_t* offset, const T* weight, const T* in, T* out, int64_t out_step);

template <class T>
struct PixelsKernel {
    int rows, vectors;
    PixelsFunction<T> run;
};

// How one vector of spread input comes out of a pixel's channels: lane j is element index[j] of `sources` whole vectors.
constexpr int kMaxSpreadSources = 4;

template <class T>
struct GroupedKernels {
    int lanes;
    const LanesKernel<T>* lane_rows;
    int lane_count;
    const LaneSumKernel<T>* lane_sums;
    int lane_sum_count;
    const PixelsKernel<T>* pixels;
    int pixel_count;
    // to[c * channel_step + i][j] = from[i * step + index[c * lanes + j]] for c < channels, i < count; the indices lie within
    // `sources` vectors (at most kMaxSpreadSources), of which the last has `last` elements that may be read.
    void (*spread)(T* to, int64_t channel_step, int64_t channels, const T* from, int64_t step, int64_t count, const int32_t* index,
                   int sources, int64_t last);
    // to[i * to_step + j] = from[i * from_step + j] for i < count, j < width <= lanes.
    void (*copy)(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count, int64_t width);
    // to[r * pitch + j] = from[r * from_step + j - begin] for r < rows, begin <= j < end, and zero for the other j < pitch.
    void (*pad_rows)(T* to, int64_t pitch, const T* from, int64_t from_step, int64_t rows, int64_t begin, int64_t end);
    // to[r * to_step + j] = from[r * pitch + j] for r < rows, j < count.
    void (*copy_rows)(T* to, int64_t to_step, const T* from, int64_t pitch, int64_t rows, int64_t count);
};

template <class T>
const GroupedKernels<T>& grouped_kernels(Isa isa);

}  // namespace fastconv
