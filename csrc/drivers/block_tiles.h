// The pixels of a task as register tiles, for vectors along features. Pixels that meet the same taps share tiles, wherever they lie,
// so that products with padding are left out; only where few are left of several kinds do they share a tile that reads zeros instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/block.h"
#include "problem.h"

namespace fastconv {

struct BlockTile {
    int64_t first;     // of its pixels, as they are ordered
    int64_t segments;  // taps that some pixel meets
    int64_t pointers;  // before its own
    int64_t taps;      // before its own
    int rows;
    bool padded;  // whether zeros stand in for data that is not there
};

template <class T>
class PixelTiles {
public:
    PixelTiles(const Problem& problem, const BlockTaps& taps, int rows, int vectors)
        : p_(problem), taps_(taps), rows_(rows), vectors_(vectors) {}

    // Of one task, in its scratch.
    struct Table {
        int64_t tiles;
        BlockTile* tile;
        const T** pointer;  // of every tile: [segment][row]
        int64_t* out;       // of each pixel
        int64_t* lhs;       // the same of its first tap, whether that meets data or not
        int64_t* box;       // of each kind, for every axis: the range of BlockTaps::reach that meets data
        int32_t* order;     // pixels, kind by kind
        int32_t* kind;      // of each pixel
        int32_t* end;       // of each kind, as pixels are ordered
        int32_t* met;       // of each tap, in one tile: pixels that meet it
        int32_t* tap;       // of every tile: [segment]
    };
    size_t bytes(int64_t pixels) const;
    Table place(int64_t pixels, void* memory) const;

    // Tiles of pixels first <= i < first + count of a group. zeros: as many as there are channels.
    void fill(const T* lhs, const T* zeros, int64_t group, int64_t first, int64_t count, Table* table) const;

private:
    // A pixel's first input on every axis, and where that lies; digits of its position.
    struct Pixel {
        int64_t at[kMaxDims], input[kMaxDims], lhs, out;
    };
    Pixel pixel_at(int64_t group, int64_t index) const;
    void advance(Pixel* x, int64_t run) const;
    int64_t run_from(const Pixel& x) const;
    void find_box(const Pixel& x, int64_t* box) const;
    int64_t sort(Pixel x, int64_t pixels, Table* table) const;
    double cycles(const int64_t* box, int64_t pixels) const;
    void add_tile(const T* lhs, const T* zeros, int64_t first, int64_t end, Table* table) const;
    void point_to_taps(const T* lhs, int64_t at, const T* zeros, const int64_t* box, const T** to, int64_t step, int32_t* met) const;

    const Problem& p_;
    const BlockTaps& taps_;
    const int rows_, vectors_;
};

}  // namespace fastconv
