// How the points algorithm orders its columns and cuts its work; a function of the problem and the ISA alone.
#pragma once

#include <cstdint>
#include <vector>

#include "drivers/lattice.h"
#include "drivers/panels.h"

namespace fastconv {

// The batch or an axis of the lattices. Input indices of position q: q * q_input + low, and up to `reach` above it.
struct PointAxis {
    int64_t positions, block, blocks;  // of a task
    int64_t q_input, q_out;
    int64_t low, reach, size;
    int64_t step, pitch;  // from one input index to the next, in memory and in scratch
};

// Columns whose outputs lie `step` apart, the first at `out`; `start` counts within the panel.
struct ColumnRun {
    int start, length;
    int64_t out, step;
};

// Columns of one register tile's width.
struct PointPanel {
    int64_t first;
    int columns, width;
    int64_t packed;  // elements before its weights
    std::vector<ColumnRun> runs;
    // Whether the sums can be made where they go: whole vectors of columns that lie side by side.
    bool at_output() const { return columns == width && runs.size() == 1 && runs[0].step == 1; }
};

// One lattice and what each of its depth steps adds to a point's place in the input.
struct PointSet {
    Lattice lattice;
    int64_t depth;
    Loops loops;      // of the depth, in the order of rhs in memory
    Loops rhs_loops;  // loops.merged_rhs()
    std::vector<int32_t> in_place, in_scratch;
    std::vector<PointPanel> panels;
};

// Panels that are computed and stored together: one of a set, and the same one of its twin if it has one. A twin's outputs are
// the right neighbours of its set's.
struct PointUnit {
    int set, twin;  // twin: -1 for none
    int panel;
};

// Lattices of the same points: they share a copy of the input.
struct PointPart {
    std::vector<PointSet> sets;
    std::vector<PointUnit> units;
    int axes, line, row;  // points run along the line axis; a block stretches over the row axis too (-1 for none)
    PointAxis axis[kMaxDims + 1];
    int64_t channels, channel_step, channel_pitch;
    int64_t origin;                   // of input index 0 on all axes, in group 0
    int orders, order[kMaxDims + 2];  // axes of the scratch copy from outer to inner; -1: the channels
    int64_t scratch;                  // elements
    int64_t width;                    // of the widest panel
    int64_t pieces;                   // tasks that share a block's units
    bool empty;                       // no tap meets data
    bool in_place;                    // the input may be read where it lies, where no tap falls on padding
    int64_t points() const {
        int64_t count = 1;
        for (int i = 0; i < axes; ++i) count *= axis[i].block;
        return count;
    }
    int64_t blocks() const {
        int64_t count = 1;
        for (int i = 0; i < axes; ++i) count *= axis[i].blocks;
        return count;
    }
};

struct PointPlan {
    std::vector<PointPart> parts;
    bool merged;     // lattices span the taps of several phases; zeros stand in for the weights that a phase lacks
    int64_t packed;  // elements of all packed weights of one group
};

// What plan_points needs to know of the kernels.
struct PointTiles {
    int lanes, most_vectors, element;
};

// merge: whether phases may be merged where that is cheaper. Returns nullptr or why the algorithm cannot run the problem.
const char* plan_points(const Problem& problem, const PointTiles& tiles, bool merge, PointPlan* plan);

}  // namespace fastconv
