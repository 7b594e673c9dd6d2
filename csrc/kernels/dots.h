// Tiles of short dot products for narrow types: pairs of bfloat16 summed in float32, quadruples of int8 summed in int32. Only
// x86 has the instructions; which of them are used is the DotUnit (base/isa.h).
#pragma once

#include <cstdint>

#include "base/isa.h"

namespace fastconv {

enum class DotType { bf16, s8, u8 };

constexpr int kDotBytes = 64;    // of one row's step along the depth: 32 bfloat16 or 64 int8
constexpr int kDotColumns = 16;  // of a block
constexpr int kDotRows = 16;     // most rows of a segment
constexpr int kDotSegments = 4;  // of a tile
constexpr int kDotPanel = 16 * kDotBytes;

// Two segments of rows times two blocks of columns, the second of each may be missing; or up to DotKernels::most_segments times one.
//   c[segment][row][block][column] (+)= sum over taps t, steps u, i < 64 bytes of
//       row `row` of the segment at a[segment] + row * a_step + offset[t] + 64 u, times column `column` of b[block], panel t * steps + u
// A panel holds 16 rows of 64 bytes: in each, for every column, the 4 bytes that meet bytes 4 r to 4 r + 3 of a's step.
struct DotTile {
    const char* a[kDotSegments];
    int64_t a_step;
    const int64_t* offset;
    int64_t taps, steps;
    const char* b[2];
    void* c;  // 4-byte sums; [segments][kDotRows][2][kDotColumns]
    bool accumulate;
};

struct DotKernels {
    int most_rows;            // of a segment
    int most_segments;        // that meet a single block at once
    int64_t a_flip;           // what every byte of a must be changed by (exclusive or): the unit knows unsigned times signed only
    void (*begin)(int rows);  // on each thread, before tiles of `rows` rows
    void (*end)();
    void (*run)(const DotTile& tile, int segments, int blocks, int rows);
};

// nullptr where the unit has no products of the type.
const DotKernels* dot_kernels(DotUnit unit, DotType type);

// Copies that lay operands out, for elements of `size` 1, 2 or 4 bytes.
struct DotCopies {
    // to[j * to_step + i] = from[i * from_step + j * spacing] for i < rows, j < columns; steps in elements. Spacing: 1, or 2 with size 2.
    void (*transpose)(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t spacing, int64_t rows, int64_t columns,
                      int size);
    // One row of a panel: 4 / size rows of 16 elements, element by element.
    void (*interleave)(void* to, const void* const* rows, int size);
    // The largest magnitude among bfloat16s as bits, and whether some are subnormal.
    uint32_t (*survey)(const uint16_t* from, int64_t count, bool* subnormal);
    // to[j * step] = from[j], rounded to bfloat16 by the nearest, ties to even.
    void (*narrow)(uint16_t* to, const float* from, int64_t count);
};
const DotCopies& dot_copies();

}  // namespace fastconv
