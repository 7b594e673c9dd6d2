// A weight gradient seen as sums of outer products over pixels, and how the work is cut.
//
// Two operands meet at every pixel p: `still` at p itself, `shifted` at t * stride + p * dilation - lo for tap t of the output.
// The problem's kernel may be either: a problem whose input is dilated is the same sums with the operands exchanged and the
// output flipped. Neither operand is dilated then, so positions that meet data are ranges.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace fastconv {

// One operand: channels (rows or lanes of the tiles) of a group.
struct OuterSide {
    int64_t offset, group, channels, step;
    int64_t out;  // what one channel moves in the output
    bool is_lhs;  // which buffer it lies in
};

// One axis that is summed over, an image axis or the images themselves.
struct OuterAxis {
    int64_t pixels, taps, size;
    int64_t stride, dilation, lo;  // position in `shifted`: tap * stride + pixel * dilation - lo
    int64_t shifted, still, out;   // memory steps of a position, a pixel and a tap
};

// A tap: where it starts in `shifted`, its place in the output, the pixels of the two inner axes that it meets.
struct OuterTap {
    int64_t outer;                   // index among the taps of the outer axes
    int64_t start, out;              // of pixel 0 and channel 0; `start` may lie outside
    int64_t row_shift, pixel_shift;  // stride * tap on the two inner axes
    int64_t row_first, row_end, pixel_first, pixel_end;
};

struct OuterForm {
    OuterSide shifted, still;
    int64_t groups, out, out_group;
    int count;  // axes, outer to inner; the last two run inside the kernels. At least two.
    OuterAxis axes[kMaxDims + 2];
    bool empty;  // no pixel at all: every sum is zero
    const OuterAxis& row() const { return axes[count - 2]; }
    const OuterAxis& pixel() const { return axes[count - 1]; }
    int64_t outer_taps;  // of all axes but the last two
    int64_t taps() const { return outer_taps * row().taps * pixel().taps; }
    int64_t pixels() const;
    bool every_tap_meets_every_pixel() const;
    // Whether a tap of the outer axes meets data from a block, and what it moves in `shifted`.
    bool outer_tap(const int64_t* pixel, int64_t tap, int64_t* start) const;
};

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

// Every tap in the order of the output's memory.
std::vector<OuterTap> outer_taps(const OuterForm& form);

}  // namespace fastconv
