// How a depthwise convolution reaches its operands and cuts its work; a function of the problem and the ISA alone.
#pragma once

#include <cstdint>

#include "drivers/lane_sweep.h"
#include "problem.h"

namespace fastconv {

// Where an operand is read: in place (its groups lie side by side), packed whole before the tasks start, or copied into a
// panel by each of them.
enum class LaneSource { in_place, packed, panel };

struct DepthwisePlan {
    Problem p;  // axes sorted, two of them at least: the last is called columns, the one above rows
    int lanes;
    bool planes;  // the way of drivers/planes.h; then nothing below counts
    bool reduce;  // blocks are cut along the taps, not along the outputs
    LaneSource lhs, rhs;
    bool out_in_place;
    LaneHalves halves;                                // which of those in place are of a half type
    bool streamed;                                    // in place, from memory: tiles are narrow, so that few streams are open
    int64_t padded;                                   // groups, in whole vectors
    int64_t group_block, group_blocks;                // groups of a task
    int64_t box[kMaxDims], counts[kMaxDims], blocks;  // outputs (or taps) of a block on every axis, and blocks
    int64_t parts;                                    // of the taps of a reduction, each with sums of its own
    int64_t lhs_panel, rhs_panel, out_panel, lists;   // elements of a task's scratch
    int64_t weights, sums;                            // elements of packed rhs; sums of one image and group block

    int row() const { return p.dims - 2; }
    int column() const { return p.dims - 1; }
    // Channels of one block.
    int64_t channels() const { return reduce ? 1 : p.channels; }
    // The input positions that a box of outputs and taps reaches on an axis.
    Span input(int axis, Span outputs, Span taps) const;
};

// Half types are read and written in place where all that are of them can be, and go through panels of float32 where not. rhs is one of
// them where taps are cut; else it is float32 already.
// Returns nullptr, or why the problem does not suit the algorithm.
const char* plan_depthwise(const Problem& problem, int lanes, DepthwisePlan* plan);

}  // namespace fastconv
