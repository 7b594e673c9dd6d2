// How the dots algorithm lays out its operands.
//
// lhs is copied with its padding, so that the taps of one axis (the lane) lie side by side in memory, all channels of a tap
// together or every channel in a row of its own. Such a run is one stretch of the sum, cut into steps of 64 bytes. With dilated
// taps the lane splits into sub-rows, one for each residue. Where the channels alone fill steps well, they are the run, and
// dilation costs nothing. The other taps (and channels) are offsets. A tile's rows are
// neighbouring outputs along one coordinate, whichever fills tiles best.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace fastconv {

struct DotCopy {
    int64_t element;                            // bytes
    int lane;                                   // the axis whose taps adjoin
    bool channels_inside;                       // of the run: lane places step by all channels
    int64_t first[kMaxDims], length[kMaxDims];  // input positions that the copy holds on each axis; the rest is padding    bool
                                                // taps_adjoin;  // the lane's taps are in the run too
    bool taps_adjoin;                           // the lane's taps are in the run too
    int64_t dilation;                           // number of the lane's sub-rows: the dilation of its taps where they are in the run, else 1
    int64_t places;                             // of a sub-row
    int64_t place, sub_row, channel, line;      // steps in elements; line: everything of one position of the other axes
    int64_t axis[kMaxDims], image, group;       // steps in elements; axis[lane] is unused
    int64_t elements, slack;                    // of the copy; and zeros behind it that tiles may read
};

constexpr int kRowsAreImages = -1;

// One problem without input dilation. Its outputs are numbered (line, segment, fast), or (segment, line, fast) where rows are images:
// the fast coordinate is a class of rows, or an axis whose outputs adjoin where neither those of rows nor those of features do.
struct DotPart {
    Problem problem;                // rhs strides are those of the packed rows (see DotOperands)
    int row_axis;                   // the coordinate of a tile's rows: an axis, or kRowsAreImages
    int64_t classes;                // of a dilated lane that is the row axis: rows of one class lie in one sub-row
    int fast_axis;                  // or -1
    int64_t fast;                   // classes, or outputs of fast_axis
    int64_t lines, segments, rows;  // segments of a line, and rows of a segment
    int64_t row_step, out_row;      // elements from one row to the next: in the copy, in out
    int64_t runs, run_steps;        // taps (times channels) that are no run's, and steps of a run
    std::vector<int64_t> offsets;   // bytes, of every `steps` steps
    int64_t steps, offsets_each;    // offsets of a pass: its columns then stay in the second cache while all segments meet them
    int64_t panels;                 // where the part's packed rhs begins, in panels
    int64_t first_task, row_tasks, column_tasks, segments_each, blocks_each;
    int64_t panels_of_block() const { return runs * run_steps; }
    int64_t passes() const { return (static_cast<int64_t>(offsets.size()) + offsets_each - 1) / offsets_each; }
};

struct DotPlan {
    DotCopy copy;
    std::vector<DotPart> parts;
    int64_t blocks;  // of 16 features
    int64_t panels, tasks;
};

// Plans `parts` (of one problem; split_phases makes them). most_rows: of a segment. Returns nullptr, or why it cannot.
const char* plan_dots(const std::vector<Problem>& parts, int most_rows, DotPlan* plan);

}  // namespace fastconv
