// Kernels of the Winograd algorithm F(2x2,3x3): 2x2 outputs from 4x4 inputs by 16 products in place of 36 (Lavin & Gray 2016).
//
//   output = A^T [ (G w G^T) * (B^T x B) ] A
//
// A vector holds neighbouring channels of one pixel or one tile; a "plane" is one of the 16 places of a transformed tile.
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

constexpr int kWinogradPlanes = 16;

// c[m][j] (+)= sum over k < depth of a[k][m] * b[k][j] for m < rows and j < vectors * lanes. b and c are packed without gaps; a holds
// channels in vectors, a[k / lanes * block + m * lanes + k % lanes]. accumulate: add to what c holds.
template <class T>
using ProductFunction = void (*)(int64_t depth, const T* a, int64_t block, const T* b, T* c, bool accumulate);

template <class T>
struct ProductKernel {
    int rows, vectors;
    ProductFunction<T> run;
};

template <class T>
struct WinogradKernels {
    int lanes;
    const ProductKernel<T>* products;
    int count;
    // to[p * to_step + j] = from[p * pixel_step + j * lane_step] for p < pixels, j < count; zero for the other lanes j.
    void (*gather)(T* to, int64_t to_step, int64_t pixels, const T* from, int64_t pixel_step, int64_t lane_step, int64_t count);
    // to[p * pixel_step + j * lane_step] = from[p * lanes + j] for p < pixels, j < count.
    void (*scatter)(T* to, int64_t pixel_step, int64_t lane_step, int64_t pixels, const T* from, int64_t count);
    // B^T x B of `tiles` neighbouring tiles: x is 4 rows, `row` apart, of 2 * tiles + 2 pixels; tile m to to[plane * q + m * lanes].
    void (*input)(T* to, int64_t plane, const T* from, int64_t row, int64_t tiles);
    // G w G^T of `count` kernels, `item` apart, with taps ky and kx apart, of `lanes` channels; kernel i to to[plane * q + i * step].
    void (*weights)(T* to, int64_t plane, int64_t step, const T* from, int64_t ky, int64_t kx, int64_t item, int64_t count, int64_t lanes);
    // A^T m A of `tiles` neighbouring tiles, tile m from from[plane * q + m * step], to 2 rows, `row` apart, of 2 * tiles pixels; then
    // plus a vector of bias (or nullptr), then max(0, .) where relu. False when a sum was infinite or NaN.
    bool (*output)(T* to, int64_t row, const T* from, int64_t plane, int64_t step, int64_t tiles, const T* bias, bool relu);
};

template <class T>
const WinogradKernels<T>& winograd_kernels(Isa isa);

}  // namespace fastconv
