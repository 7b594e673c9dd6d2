// Lays the operands of a lattice out as panels for the tile kernels: cache-sized pieces, zero where a tap falls on padding.
#pragma once

#include <cstdint>

#include "drivers/lattice.h"
#include "kernels/tile.h"

namespace fastconv {

constexpr int kMaxLanes = 64;  // the widest panel: 4 vectors of 16 floats

// One nested loop over a lattice's rows or depth; `axis` is -1 for the batch (rows) or the channels (depth).
struct Loop {
    int axis;
    int64_t extent;
    int64_t lhs, rhs, out;  // what one step moves, where it moves anything
    int check;              // the place of the axis among the checked ones, or -1
};

// Loops from outer to inner.
struct Loops {
    int count = 0;
    Loop loop[kMaxDims + 1];

    // Digits of `index`, outer to inner.
    void split(int64_t index, int64_t* digits) const;
    // Moves `digits` to the next index.
    void advance(int64_t* digits) const;
    const Loop& inner() const { return loop[count - 1]; }
    // The same steps through rhs, with loops that run on through memory merged.
    Loops merged_rhs() const;
};

// Orders rows and depth so that the innermost loops run along memory, and says how panels are filled.
struct Traversal {
    explicit Traversal(const Lattice& lattice);

    Loops rows, depth;
    Loops rhs_depth;  // depth.merged_rhs()
    bool spaced;      // lhs lanes are copied in evenly spaced runs; else each lane's depth is walked
    // Spaced, with the taps inside the channels because rhs lies so: lhs is still copied tap by tap for all channels at once,
    // since the checks of a tap serve all channels. Depth blocks are then whole channels of `taps` steps.
    bool channel_runs;
    int64_t taps;
    int checked;  // axes on which a tap can fall outside; the others need no check
    int checked_axes[kMaxDims];
};

// Lanes of one panel: where each starts in its operand, and its position on every checked axis. A run is a stretch of evenly
// spaced lanes whose positions differ on one checked axis at most.
struct Lanes {
    int count;
    int runs;
    int run_end[kMaxLanes];
    int64_t spacing;
    int64_t start[kMaxLanes];
    int64_t position[kMaxDims][kMaxLanes];
    int64_t out[kMaxLanes];
    int out_end[kMaxLanes];      // where the stretch of neighbouring outputs that holds a lane ends
    int64_t feature[kMaxLanes];  // of a column; unused for rows
};

void row_lanes(const Lattice& lattice, const Traversal& traversal, int64_t first, int count, Lanes* lanes);
void column_lanes(const Lattice& lattice, int64_t first, int count, Lanes* lanes);

// Fills panel[k][lane] (by_rows: panel[lane][k]) for depth first <= k < first + depth from lhs (with its checks) or rhs. `data` is the
// operand of the group; lanes beyond lanes.count up to width become zero. pack_lhs returns whether a tap fell on padding.
template <class T>
bool pack_lhs(const Lattice& lattice, const Traversal& traversal, const PackKernels<T>& pack, const T* data, const Lanes& lanes,
              int64_t first, int64_t depth, int width, bool by_rows, T* panel);
template <class T>
void pack_rhs(const Loops& rhs_depth, const PackKernels<T>& pack, const T* data, const Lanes& lanes, int64_t first, int64_t depth,
              int width, T* panel);

}  // namespace fastconv
