// How a sum of outer products is cut: register tiles, blocks of pixels, tasks. A function of the problem and the ISA alone.
#pragma once

#include <cstdint>

#include "drivers/outer_form.h"
#include "problem.h"

namespace fastconv {

// The outputs of a task: panels of lanes x tiles of rows, for one range of pixel blocks.
struct OuterTask {
    int64_t group, panel, panels, tile, tiles, row, rows, split;
};

// The pixels that a task sums over in one go.
struct OuterBlock {
    int64_t row, rows, pixel, pixels;
    int64_t outer[kMaxDims];
    int64_t shifted, still;  // what the first pixel moves in both operands
};

struct OuterPlan {
    OuterForm form;
    bool lanes_shifted;  // the vectors run over channels of `shifted` (else of `still`); the other side is broadcast
    bool mixed;          // tiles mix taps and channels of `shifted` as rows: every tap meets every pixel
    bool copied;         // so because `shifted` is copied with zeros around it
    bool in_place;       // the lane side lies as its panel would: few rows would not pay for the copy
    bool rows_packed;    // the row side is copied as it lies, closer together
    int row_unit;        // tiles begin at multiples of it: 3 where kernels take rows by threes
    int tile_rows, tile_vectors, lanes;
    int64_t vectors, panels;          // of the lane side: panel i has vectors [i * vectors / panels, ...)
    int64_t rows, row_tiles;          // rows that are cut into tiles: channels, or channels x taps where mixed
    int64_t lane_blocks, row_blocks;  // tasks: ranges of panels x ranges of row tiles x
    int64_t splits;                   // ranges of pixel blocks
    int64_t row_step, pixel_step;     // pixels of a block on the two inner axes
    int64_t outer_blocks, row_cuts, pixel_cuts;

    OuterTask task(int64_t index) const;
    OuterBlock block(int64_t index) const;

    const OuterSide& lane_side() const { return lanes_shifted ? form.shifted : form.still; }
    const OuterSide& row_side() const { return lanes_shifted ? form.still : form.shifted; }
    int64_t first_lane(int64_t panel) const { return panel * vectors / panels * lanes; }
    int64_t width(int64_t panel) const { return first_lane(panel + 1) - first_lane(panel); }
    int64_t first_row(int64_t tile) const { return tile * (rows / row_unit) / row_tiles * row_unit; }
    int64_t first_panel(int64_t block) const { return block * panels / lane_blocks; }
    int64_t first_tile(int64_t block) const { return block * row_tiles / row_blocks; }
    int64_t row_taps() const { return mixed ? 1 : form.taps(); }  // sums of a row
    int64_t blocks() const { return outer_blocks * row_cuts * pixel_cuts; }
    int64_t tasks() const { return form.groups * lane_blocks * row_blocks * splits; }
    // Elements of the sums of a task at most.
    int64_t sums() const;
    // Positions of `shifted` that a block of pixels meets on an inner axis.
    static int64_t reach(const OuterAxis& axis, int64_t pixels) { return (axis.taps - 1) * axis.stride + (pixels - 1) * axis.dilation + 1; }
    // Elements from one position of a packed row side to the next: an odd number of vectors; and positions of a block.
    int64_t row_pitch() const;
    int64_t row_positions() const { return lanes_shifted ? row_step * pixel_step : region(); }
    int64_t region() const;  // the same on both inner axes and all taps of the outer ones
    // Channels of `shifted` that a copy keeps side by side, as they lie: all or one.
    int64_t folded() const { return form.shifted.step == 1 && form.pixel().shifted == form.shifted.channels ? form.shifted.channels : 1; }
};

// The kernels there are. most_rows[v]: the most rows of a tile of v vectors, 0 beyond the widest; most_by_threes: of one vector,
// when its rows go by threes.
struct OuterShapes {
    int lanes, most_by_threes;
    int most_rows[6];
};

// The plan of a problem, or why there is none.
const char* plan_outer(const Problem& problem, const OuterShapes& shapes, OuterPlan* plan);

}  // namespace fastconv
