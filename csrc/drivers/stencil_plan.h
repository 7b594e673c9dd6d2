// How a stencil walks its axes and cuts its work; a function of the problem and the ISA alone.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/stencil.h"
#include "problem.h"

namespace fastconv {

// One kernel call's share of the taps: `taps` rows of taps from `first_row_tap`, at shifts [first_shift, first_shift + shifts).
struct StencilChunk {
    int taps;
    int64_t first_row_tap, first_shift, shifts;
    int64_t weight;  // where its weights start within a group's
};

// Axes by role. The lane axis runs along the vectors. Tiles hold several rows: neighbours on the row axis or, for a `flat`
// stencil, neighbouring stretches of the lane axis (a long row is its own second dimension: lane tap k = shift + lanes * row
// tap). Planes: the axis above the rows. Far axes: all above that.
struct StencilPlan {
    int lane, row, plane, far;  // axis numbers, -1 for none; far: number of far axes (the first ones)
    bool flat;
    bool shared;    // neighbouring rows use each other's input vectors
    bool in_place;  // tiles that meet no padding read the input where it lies
    int vectors, lanes;
    int64_t lane_block, row_block, plane_block;  // outputs of one task
    int64_t lane_blocks, row_blocks, plane_blocks;
    int64_t pitch, phase_pitch, rows, planes;  // of the scratch copy of the input: elements, rows of a plane, planes of a ring
    int64_t row_step, tap_step;                // elements between rows of a tile, between row taps
    int64_t far_outputs, far_taps;
    std::vector<StencilChunk> chunks;
    std::vector<int64_t> shifts;  // of each lane tap (or of each shift of a flat stencil)
    int64_t group_weights;        // weights of one group (a channel and an outer tap)
    int64_t groups_per_feature;

    // One vector more where channels would else lie an even number of vectors apart, and share few places of the first cache.
    int64_t plane_size() const { return rows * pitch + (rows * pitch / lanes % 2 == 0 ? lanes : 0); }
    int64_t scratch_elements(int64_t channels) const { return channels * far_taps * planes * plane_size(); }
};

// Channels that lie side by side, and are more than permutations of a few vectors take apart in passing.
constexpr int64_t kFewChannels = 4;
bool channels_together(const Problem& problem);

// `p` has its axes sorted (geometry.h) and no dilated input (phases.h). Returns nullptr or why a stencil cannot run it.
const char* plan_stencil(const Problem& p, int lanes, int max_taps, StencilPlan* plan);

}  // namespace fastconv
