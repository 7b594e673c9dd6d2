#include "drivers/stencil_plan.h"

#include <algorithm>

#include "drivers/bare.h"
#include "drivers/drivers.h"
#include "drivers/geometry.h"
#include "drivers/halves.h"

namespace fastconv {
namespace {

constexpr int64_t kLaneBytes = 2048;   // of a row of a task: tiles then sweep rows that the first cache holds
constexpr int64_t kLongBytes = 16384;  // where rows are not copied: the longer, the fewer edges
constexpr int64_t kFlatBytes = 16384;  // of a stretch of a flat stencil
constexpr int64_t kRows = 32;
constexpr int64_t kRowsOfSmall = 16;  // of volumes, whose planes the first cache should hold, and of kernels whose halo is narrow
constexpr int64_t kSmall = 3;
constexpr int64_t kTasks = 32;                // enough to keep many cores even
constexpr double kMostHalfWeights = 1 << 16;  // elements of weights that are widened beforehand
constexpr int64_t kScratchElements = int64_t{1} << 20;

int64_t even_block(int64_t count, int64_t target) { return count == 0 ? 1 : ceil_div(count, ceil_div(count, target)); }

// Splits `count` row taps evenly into chunks of at most max_taps.
void add_chunks(StencilPlan* plan, int64_t count, int max_taps, int64_t first_shift, int64_t shifts) {
    if (count == 0 || shifts == 0) return;
    const int64_t pieces = ceil_div(count, max_taps);
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t first = count * i / pieces, taps = count * (i + 1) / pieces - first;
        plan->chunks.push_back({static_cast<int>(taps), first, first_shift, shifts, plan->group_weights});
        plan->group_weights += taps * shifts;
    }
}

}  // namespace

const char* plan_stencil(const Problem& p, int lanes, int max_taps, StencilPlan* plan) {
    if (p.dims == 0) return "stencil: no spatial axis";
    for (int i = 0; i < p.dims; ++i)
        if (p.axes[i].kernel == 0) return "stencil: no taps";
    StencilPlan s{};
    s.lane = p.dims - 1;
    const Axis& lane = p.axes[s.lane];
    s.flat = p.dims == 1 || (p.axes[p.dims - 2].kernel == 1 && lane.kernel > lanes);
    s.row = s.flat ? -1 : p.dims - 2;
    s.plane = s.flat ? p.dims - 2 : p.dims - 3;
    s.far = std::max(0, s.plane);
    if (s.plane < 0) s.plane = -1;
    s.vectors = s.flat ? 1 : 2;
    s.lanes = lanes;

    // Input scratch: a row holds `stride` sub-rows, so that lanes stay neighbours whatever the stride.
    const int64_t element = dtype_size(p.dtype);
    const bool volume = s.plane >= 0 && p.axes[s.plane].kernel > 1, halves = p.dtype == Dtype::f16 || p.dtype == Dtype::bf16;
    // Planes of volumes are read several times, so scratch pays.
    s.in_place = !volume && !halves && !channels_together(p) && lane.stride == 1 && p.lhs.spatial[s.lane] == 1;
    s.lane_block = even_block(lane.out, (s.flat ? kFlatBytes : s.in_place ? kLongBytes : kLaneBytes) / element);
    s.lane_blocks = ceil_div(lane.out, s.lane_block);
    s.phase_pitch = ceil_div(s.lane_block + (lane.kernel - 1) * lane.rhs_dilation / lane.stride + 1 + s.vectors * lanes, lanes) * lanes;
    s.pitch = lane.stride * s.phase_pitch;
    s.row_block = s.row_blocks = s.rows = 1;
    auto shift_of = [&](int64_t tap) {
        const int64_t reach = tap * lane.rhs_dilation;
        return reach % lane.stride * s.phase_pitch + reach / lane.stride;
    };
    if (s.flat) {
        s.shared = lane.stride == 1 && lane.rhs_dilation == 1 && lane.kernel > lanes;
        s.row_step = s.tap_step = lanes;
        const int64_t shifts = s.shared ? lanes : lane.kernel;
        for (int64_t k = 0; k < shifts; ++k) s.shifts.push_back(shift_of(k));
        if (s.shared) {  // the first kernel % lanes shifts have one row tap more
            const int64_t longer = lane.kernel % lanes;
            add_chunks(&s, lane.kernel / lanes + 1, max_taps, 0, longer);
            add_chunks(&s, lane.kernel / lanes, max_taps, longer, lanes - longer);
        } else {
            add_chunks(&s, 1, 1, 0, shifts);
        }
    } else {
        const Axis& row = p.axes[s.row];
        s.shared = row.stride == row.rhs_dilation;
        s.row_block = even_block(row.out, volume || row.kernel <= kSmall ? kRowsOfSmall : kRows);
        s.row_blocks = ceil_div(row.out, s.row_block);
        s.rows = (s.row_block - 1) * row.stride + (row.kernel - 1) * row.rhs_dilation + 1;
        s.row_step = row.stride * s.pitch;
        s.tap_step = row.rhs_dilation * s.pitch;
        for (int64_t k = 0; k < lane.kernel; ++k) s.shifts.push_back(shift_of(k));
        add_chunks(&s, row.kernel, s.shared ? max_taps : 1, 0, lane.kernel);
    }
    s.plane_block = s.plane_blocks = s.planes = 1;
    if (s.plane >= 0) {
        const Axis& plane = p.axes[s.plane];
        s.planes = (plane.kernel - 1) * plane.rhs_dilation + 1;
    }
    s.far_outputs = s.far_taps = 1;
    for (int i = 0; i < s.far; ++i) {
        s.far_outputs *= p.axes[i].out;
        s.far_taps *= p.axes[i].kernel;
    }
    if (s.plane >= 0) {  // a task walks many planes, each copied once: the fewer tasks the fewer planes at their seams
        const int64_t others = p.groups * p.batch * s.far_outputs * s.row_blocks * s.lane_blocks;
        s.plane_blocks = std::clamp<int64_t>(ceil_div(kTasks, std::max<int64_t>(1, others)), 1, std::max<int64_t>(1, p.axes[s.plane].out));
        s.plane_block = std::max<int64_t>(1, ceil_div(p.axes[s.plane].out, s.plane_blocks));
        s.plane_blocks = ceil_div(p.axes[s.plane].out, s.plane_block);
    }
    s.groups_per_feature = p.channels * s.far_taps * (s.plane >= 0 ? p.axes[s.plane].kernel : 1);
    if (static_cast<double>(p.channels) * static_cast<double>(s.far_taps) * static_cast<double>(s.planes) *
            (static_cast<double>(s.rows) * static_cast<double>(s.pitch) + lanes) >
        static_cast<double>(kScratchElements))
        return "stencil: the working set of a tile is too large";
    *plan = s;
    return nullptr;
}

bool channels_together(const Problem& problem) { return problem.lhs.outer[2] == 1 && problem.channels > kFewChannels; }

bool stencil_takes_halves(const Problem& problem) {
    if (!of_halves(problem) || problem.dims == 0 || is_bare(problem)) return false;
    for (int i = 0; i < problem.dims; ++i)
        if (problem.axes[i].lhs_dilation != 1) return false;
    const Problem sorted = sort_axes(problem);
    const int lane = sorted.dims - 1;
    return count_weights(problem) <= kMostHalfWeights && sorted.lhs.spatial[lane] == 1 && sorted.out.spatial[lane] == 1 &&
           sorted.axes[lane].stride == 1;
}

}  // namespace fastconv
