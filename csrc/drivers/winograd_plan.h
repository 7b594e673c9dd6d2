// How a Winograd problem is cut: which two axes are transformed, and the tasks. A function of the problem and the vectors alone.
#pragma once

#include <cstdint>

#include "problem.h"

namespace fastconv {

struct WinogradPlan {
    Problem p;  // axes sorted; the last two are the transformed ones
    int outer;  // axes before them: their outputs are planes, their taps are summed like channels

    int lanes;
    int64_t blocks;   // vectors of channels
    int64_t taps;     // of the outer axes together
    int64_t planes;   // output planes: batch x outputs of the outer axes
    int64_t vectors;  // of features; products take two at a time
    int64_t tiles_y, tiles_x;

    // A task: `rows` rows of tiles (of all planes, one after the other), a segment of `width` tiles of each, `pairs` pairs of vectors.
    int64_t rows, width, pairs;
    int64_t row_tasks, segments, splits;

    int64_t tile_rows() const { return planes * tiles_y; }
    int64_t all_pairs() const { return (vectors + 1) / 2; }
    // Weights that one task alone multiplies by are transformed by it when their turn comes, and stay in its second cache.
    bool share_weights() const { return segments * row_tasks > 1; }
    int64_t tasks() const { return p.groups * splits * segments * row_tasks; }
    int64_t task_tiles() const { return rows * width; }

    // Elements of a plane, for `width` lanes of features or a number of tiles. Each has a vector too many: planes a power of two apart
    // would share their places in the first cache, and all 16 are written together.
    int64_t weight_plane(int64_t width) const { return (taps * p.channels + 1) * width; }
    int64_t input_plane(int64_t tiles) const { return (taps * blocks * tiles + 1) * lanes; }
    int64_t product_plane(int64_t tiles, int64_t width) const { return tiles * width + lanes; }

    // Elements: transformed weights of one group, and a task's pieces.
    int64_t weights() const { return 16 * weight_plane(vectors * lanes); }
    int64_t pair_weights() const { return 16 * weight_plane(2 * lanes); }
    int64_t stage() const { return slots() * columns() * lanes; }
    int64_t inputs() const { return 16 * input_plane(task_tiles()); }
    int64_t products() const { return 16 * product_plane(task_tiles(), 2 * lanes); }
    int64_t outputs() const { return 4 * task_tiles() * lanes; }

    int64_t slots() const { return 4 * rows; }  // rows of input of one task, at most
    int64_t columns() const { return 2 * width + 2; }

    const Axis& y() const { return p.axes[p.dims - 2]; }
    const Axis& x() const { return p.axes[p.dims - 1]; }
};

// The most rows of tiles of a task.
constexpr int64_t kWinogradRows = 64;

// Fills `plan`; returns nullptr, or why the problem is not one for this algorithm.
const char* plan_winograd(const Problem& problem, int lanes, int64_t item_bytes, WinogradPlan* plan);

}  // namespace fastconv
