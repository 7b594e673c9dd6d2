// A box of outputs of a depthwise convolution, the groups in the lanes of vectors: cut into register tiles, each with the taps
// that meet data. Padding is never touched.
#pragma once

#include <cstdint>

#include "kernels/lanes.h"
#include "problem.h"

namespace fastconv {

struct Span {
    int64_t lo, hi;
    int64_t length() const { return hi > lo ? hi - lo : 0; }
    bool operator==(const Span& other) const { return lo == other.lo && hi == other.hi; }
};

// The element of an operand at the coordinates x of its spatial axes lies (origin + sum of x_i * step_i + lane) elements of `item`
// bytes after `data`. Byte: char, or const char of what is only read.
template <class Byte>
struct LaneSide {
    Byte* data;
    int64_t item, origin, step[kMaxDims];
    Byte* at(int64_t index) const { return data + index * item; }
};

// The kernels of one ISA by shape.
template <class T>
class LaneTiles {
public:
    LaneTiles(const LaneKernels<T>& kernels, Dtype memory, LaneHalves halves);
    struct Tile {
        int columns;
        LaneFunction<T> run;
    };
    // The widest tile with `rows` for `left` columns; `taps`: of a row of them that neighbouring columns share, 1 for none.
    Tile widest(int rows, int64_t left, int64_t taps) const;

    static constexpr int kMaxColumns = 16;

private:
    static constexpr int kMaxRows = 4, kMaxTaps = 8;
    LaneFunction<T> table_[kMaxRows + 1][kMaxTaps + 1][kMaxColumns + 1] = {};
};

constexpr int kLaneRows = 3;  // of a tile at most

// `problem` has no dilated input and two axes or more, the last ones called rows and columns. Only its axes count.
template <class T>
struct LaneSweep {
    const Problem* problem;
    const LaneTiles<T>* tiles;
    int64_t lanes, channels, lhs_channel, rhs_channel;
    LaneSide<const char> lhs, rhs;
    LaneSide<char> out;
    Span outputs[kMaxDims], taps[kMaxDims];
    bool accumulate;
    int64_t most_columns;  // of a tile
    bool few_outputs;      // many taps meet an output: tiles may hold outputs of different taps, whose differences are added alone
    bool once;             // every output is made by one tile, so that it is rounded once
    int64_t* lists;        // room for list_elements()

    int64_t list_elements() const;
    void run() const;
};

}  // namespace fastconv
