// The tasks of a stencil: the outputs of each, and what of the input that they read must be copied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "drivers/geometry.h"
#include "drivers/stencil_plan.h"

namespace fastconv {

// The outputs of a task.
struct StencilBlock {
    int64_t group, image;
    int64_t plane, planes, row, rows, lane, lanes;
    int64_t far_at[kMaxDims];
};

// A block's outputs, counted from its first, that meet no padding along rows and lanes: tiles inside read the input where it lies.
struct Inner {
    int64_t row, row_end, lane, lane_end;
    bool holds(int64_t top, int64_t rows, int64_t left, int64_t lanes) const {
        return top >= row && top + rows <= row_end && left >= lane && left + lanes <= lane_end;
    }
};

// What tiles outside of that read: whole input rows before `top` and from `bottom` on, and of the others what lies before `left` and
// from `right` on.
struct Edges {
    static constexpr int64_t kAll = INT64_MAX;
    int64_t top = 0, bottom = kAll, left = 0, right = kAll;
    bool none() const { return top == 0 && bottom == kAll && left == 0 && right == kAll; }
};

// Two short copies a row cost more than a longer one: all but one tile in so many must lie inside.
constexpr int64_t kMostOf = 4;

class StencilBlocks {
public:
    // tile_rows, tile_lanes: outputs of the largest tile.
    StencilBlocks(const Problem& problem, const StencilPlan& plan, int64_t tile_rows, int64_t tile_lanes)
        : p(problem), s(plan), tile_rows_(tile_rows), tile_lanes_(tile_lanes) {}

    int64_t count() const { return p.groups * p.batch * s.far_outputs * s.plane_blocks * s.row_blocks * s.lane_blocks; }

    StencilBlock block_of(int64_t task) const {
        StencilBlock b;
        b.lane = task % s.lane_blocks * s.lane_block;
        task /= s.lane_blocks;
        b.lanes = std::min(s.lane_block, p.axes[s.lane].out - b.lane);
        b.row = task % s.row_blocks * s.row_block;
        task /= s.row_blocks;
        b.rows = s.row < 0 ? 1 : std::min(s.row_block, p.axes[s.row].out - b.row);
        b.plane = task % s.plane_blocks * s.plane_block;
        task /= s.plane_blocks;
        b.planes = s.plane < 0 ? 1 : std::min(s.plane_block, p.axes[s.plane].out - b.plane);
        for (int i = s.far - 1; i >= 0; --i) {
            b.far_at[i] = task % p.axes[i].out;
            task /= p.axes[i].out;
        }
        b.image = task % p.batch;
        b.group = task / p.batch;
        return b;
    }

    // Input index on an axis of output `at` with tap `k`, and whether it exists.
    int64_t input(int axis, int64_t at, int64_t k) const {
        return at * p.axes[axis].stride + k * p.axes[axis].rhs_dilation - p.axes[axis].lo;
    }
    bool inside(int axis, int64_t index) const { return index >= 0 && index < p.axes[axis].size; }

    // Input offset of a far tap combination; false where it falls on padding.
    bool far_offset(const StencilBlock& b, int64_t tap, int64_t* offset) const {
        *offset = 0;
        for (int i = s.far - 1; i >= 0; --i) {
            const int64_t index = input(i, b.far_at[i], tap % p.axes[i].kernel);
            if (!inside(i, index)) return false;
            *offset += index * p.lhs.spatial[i];
            tap /= p.axes[i].kernel;
        }
        return true;
    }

    Inner inner(const StencilBlock& b) const {
        const int64_t narrowest = s.flat ? s.lanes : tile_lanes_;
        if (!s.in_place || b.lanes < narrowest) return {0, 0, 0, 0};  // no tile without lanes that are cut off
        Inner in{0, b.rows, 0, 0};
        within(s.lane, b.lane, b.lanes, &in.lane, &in.lane_end);
        if (s.row >= 0) within(s.row, b.row, b.rows, &in.row, &in.row_end);
        const bool whole = in.row == 0 && in.row_end == b.rows;
        if (b.rows < tile_rows_ && !whole) return {0, 0, 0, 0};
        const int64_t tiles = ceil_div(b.lanes, tile_lanes_), inside = in.lane_end / tile_lanes_ - ceil_div(in.lane, tile_lanes_);
        if (inside * kMostOf < tiles * (kMostOf - 1)) return {0, 0, 0, 0};
        return in;
    }

    // In input rows and lanes, counted from the block's first. Tiles start at multiples of their size; the last ones are moved back.
    Edges edges(const StencilBlock& b, const Inner& in) const {
        Edges e;
        const bool crossed = in.lane > b.lanes - tile_lanes_ || (s.row >= 0 && in.row > std::max<int64_t>(0, b.rows - tile_rows_));
        if (crossed || in.row >= in.row_end || in.lane >= in.lane_end) {  // few tiles could lie inside, or none
            e.top = Edges::kAll;
            return e;
        }
        const Axis& lane = p.axes[s.lane];
        if (in.lane > 0) e.left = ceil_div(in.lane, tile_lanes_) * tile_lanes_ + (lane.kernel - 1) * lane.rhs_dilation;
        if (in.lane_end < b.lanes) e.right = std::min(in.lane_end / tile_lanes_ * tile_lanes_, b.lanes - tile_lanes_);
        if (s.row < 0) return e;
        const Axis& row = p.axes[s.row];
        if (in.row > 0) e.top = (ceil_div(in.row, tile_rows_) * tile_rows_ - 1) * row.stride + (row.kernel - 1) * row.rhs_dilation + 1;
        if (in.row_end < b.rows) e.bottom = std::min(in.row_end / tile_rows_ * tile_rows_, b.rows - tile_rows_) * row.stride;
        return e;
    }

private:
    // Of `count` outputs from `at` on, those whose first and last taps both exist.
    void within(int axis, int64_t at, int64_t count, int64_t* begin, int64_t* end) const {
        const Axis& a = p.axes[axis];
        const int64_t first = input(axis, at, 0), last = input(axis, at, a.kernel - 1);
        *begin = std::max<int64_t>(0, ceil_div(-first, a.stride));
        *end = std::min(count, ceil_div(a.size - last, a.stride));
    }

    const Problem& p;
    const StencilPlan& s;
    const int64_t tile_rows_, tile_lanes_;
};

}  // namespace fastconv
