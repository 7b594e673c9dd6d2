// A weight gradient seen as sums of outer products over pixels.
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

// exchange: rhs is the operand that taps shift, and the output's taps run backwards. Axes are merged and sorted; the form of a
// problem without pixels is only marked `empty`.
OuterForm make_outer_form(const Problem& problem, bool exchange);

// Every tap in the order of the output's memory.
std::vector<OuterTap> outer_taps(const OuterForm& form);

}  // namespace fastconv
