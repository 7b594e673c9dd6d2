#include "drivers/depthwise_plan.h"

#include <algorithm>

#include "drivers/bare.h"
#include "drivers/drivers.h"
#include "drivers/exchange.h"
#include "drivers/geometry.h"
#include "drivers/halves.h"
#include "drivers/planes.h"

namespace fastconv {
namespace {

constexpr double kMaxPhases = 256;
constexpr double kMaxPanel = 1 << 22;     // elements of the smallest block that there is
constexpr double kMaxWeights = 1 << 22;   // elements of rhs that are packed whole
constexpr double kMaxLists = 1 << 18;     // outer taps of an output
constexpr double kMaxSums = 1 << 10;      // outputs of a group whose taps may be cut
constexpr int64_t kWideBytes = 32 << 10;  // of panels of several vectors of groups
constexpr int kMostVectors = 8;
constexpr int64_t kPanelBytes = 64 << 10;
constexpr int64_t kSumPanelBytes = 128 << 10;  // of a reduction: neighbouring blocks copy their seams twice
constexpr int64_t kGroupBlock = 2048;          // groups of a task that reads them in place: long runs of memory
constexpr int64_t kBlock = 1 << 10;            // outputs of a block without panels, at most,
constexpr int64_t kTasks = 64;                 // and so many blocks or more
constexpr int64_t kTaps = 64;                  // taps of a block without panels
constexpr double kStreamed = 4 << 20;          // bytes of the inputs or the outputs from which on memory sets the pace
constexpr int64_t kPairedColumns = 128;        // of rows that a block has two of
constexpr int64_t kParts = 16;
constexpr double kMostHalfWeights = 1 << 18;  // elements of weights that are widened beforehand

// Bytes of what panels hold.
int64_t panel_item(const Problem& p) { return of_halves(p) ? int64_t{sizeof(float)} : dtype_size(p.dtype); }

int64_t even_block(int64_t count, int64_t target) { return count <= 0 ? 1 : ceil_div(count, ceil_div(count, target)); }

Problem with_rows(const Problem& problem) {
    Problem p = sort_axes(problem);
    while (p.dims < 2) {
        for (int i = p.dims; i > 0; --i) {
            p.axes[i] = p.axes[i - 1];
            for (Operand* operand : {&p.lhs, &p.rhs, &p.out}) operand->spatial[i] = operand->spatial[i - 1];
        }
        p.axes[0] = {1, 1, 1, 1, 0, 1, 1};
        for (Operand* operand : {&p.lhs, &p.rhs, &p.out}) operand->spatial[0] = 0;
        ++p.dims;
    }
    return p;
}

// Input positions that `outputs` of an axis with `taps` reach, at most.
double reach(const Axis& a, int64_t outputs, int64_t taps) {
    if (outputs == 0 || taps == 0) return 0;
    return static_cast<double>(std::min(a.size, ((outputs - 1) * a.stride + (taps - 1) * a.rhs_dilation) / a.lhs_dilation + 1));
}

// Whether memory sets the pace, and neighbouring columns of several rows share nothing that a wide tile would save.
bool streams(const Problem& p) {
    double inputs = static_cast<double>(p.channels), outputs = static_cast<double>(p.features);
    bool spaced = p.axes[p.dims - 2].out == 1;
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        inputs *= static_cast<double>(a.size);
        outputs *= static_cast<double>(a.out);
        spaced = spaced || a.stride > 1 || a.lhs_dilation > 1;
    }
    return spaced && std::max(inputs, outputs) * static_cast<double>(p.batch * p.groups * dtype_size(p.dtype)) >= kStreamed;
}

// Elements of the panels of a block; false when they are too many.
bool size_panels(DepthwisePlan* s) {
    double lhs = static_cast<double>(s->group_block * s->channels()), rhs = lhs * static_cast<double>(s->p.features);
    double out = static_cast<double>(s->group_block * s->p.features);
    for (int i = 0; i < s->p.dims; ++i) {
        const Axis& a = s->p.axes[i];
        const int64_t outputs = s->reduce ? a.out : s->box[i], taps = s->reduce ? s->box[i] : a.kernel;
        lhs *= reach(a, outputs, taps);
        rhs *= static_cast<double>(taps);
        out *= static_cast<double>(outputs);
    }
    if (s->lhs == LaneSource::in_place) lhs = 0;
    if (s->rhs != LaneSource::panel) rhs = 0;
    if (s->reduce || s->out_in_place) out = 0;
    if (lhs + rhs + out > kMaxPanel) return false;
    s->lhs_panel = static_cast<int64_t>(lhs);
    s->rhs_panel = static_cast<int64_t>(rhs);
    s->out_panel = static_cast<int64_t>(out);
    return true;
}

// The largest block that fits: columns first, then rows; the other axes one by one.
void cut(DepthwisePlan* s, bool panels) {
    const int64_t budget = (s->reduce ? kSumPanelBytes : kPanelBytes) / panel_item(s->p);
    double positions = static_cast<double>(s->p.batch * s->group_blocks) / kTasks;
    for (int i = 0; i < s->p.dims; ++i) positions *= static_cast<double>(s->p.axes[i].out);
    // Rows go in pairs.
    const int64_t least = 2 * std::min(s->p.axes[s->column()].out, kPairedColumns);
    const int64_t outputs = std::max(least, static_cast<int64_t>(std::min<double>(positions, kBlock)));
    for (int i = 0; i < s->p.dims; ++i) s->box[i] = 1;
    for (int i : {s->column(), s->row()}) {
        const int64_t extent = s->reduce ? s->p.axes[i].kernel : s->p.axes[i].out;
        const int64_t most = s->reduce ? kTaps : outputs;
        int64_t fits = 1, hi = std::max<int64_t>(1, extent);
        while (fits < hi) {
            const int64_t middle = s->box[i] = fits + (hi - fits + 1) / 2;
            const bool small = panels ? size_panels(s) && s->lhs_panel + s->rhs_panel + s->out_panel <= budget
                                      : s->box[s->row()] * s->box[s->column()] <= most;
            if (small)
                fits = middle;
            else
                hi = middle - 1;
        }
        s->box[i] = even_block(extent, fits);
        if (!s->reduce && !panels && i == s->row() && s->box[i] > 1) s->box[i] = ceil_div(s->box[i], 2) * 2;
    }
}

// Small blocks: several vectors of groups each, while there are tasks enough, so that what a tile costs to start is shared.
void widen(DepthwisePlan* s) {
    double blocks = static_cast<double>(s->p.batch);
    for (int i = 0; i < s->p.dims; ++i)
        blocks *= static_cast<double>(ceil_div(s->reduce ? s->p.axes[i].kernel : s->p.axes[i].out, s->box[i]));
    while (s->group_blocks > 1 && s->group_block < kMostVectors * s->lanes && blocks * static_cast<double>(s->group_blocks) >= 2 * kTasks) {
        const DepthwisePlan before = *s;
        s->group_block *= 2;
        s->group_blocks = ceil_div(s->p.groups, s->group_block);
        if (size_panels(s) && s->lhs_panel + s->rhs_panel + s->out_panel <= kWideBytes / panel_item(s->p)) continue;
        *s = before;
        return;
    }
}

}  // namespace

Span DepthwisePlan::input(int axis, Span outputs, Span taps) const {
    const Axis& a = p.axes[axis];
    if (outputs.length() == 0 || taps.length() == 0) return {0, 0};
    const int64_t lo = outputs.lo * a.stride + taps.lo * a.rhs_dilation - a.lo;
    const int64_t hi = (outputs.hi - 1) * a.stride + (taps.hi - 1) * a.rhs_dilation - a.lo;
    const int64_t first = std::max<int64_t>(0, ceil_div(lo, a.lhs_dilation));
    return {first, std::max(first, std::min(a.size, floor_div(hi, a.lhs_dilation) + 1))};
}

const char* plan_depthwise(const Problem& problem, int lanes, DepthwisePlan* plan) {
    DepthwisePlan s{};
    s.p = with_rows(problem);
    s.lanes = lanes;
    const Problem& p = s.p;
    double outputs = static_cast<double>(p.features), taps = static_cast<double>(p.channels), phases = 1, lists = taps;
    bool dilated = false;
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        outputs *= static_cast<double>(a.out);
        taps *= static_cast<double>(a.kernel);
        if (i != s.column()) lists *= static_cast<double>(a.kernel);
        phases *= static_cast<double>(std::min(a.lhs_dilation, a.out));
        dilated = dilated || a.lhs_dilation != 1;
    }
    s.reduce = !dilated && outputs <= kMaxSums && taps >= 4 * outputs;
    if (phases > kMaxPhases) return "depthwise: too many phases";
    const bool one = p.groups == 1;
    s.padded = ceil_div(p.groups, lanes) * lanes;
    bool all = of_halves(p);
    for (const Operand* operand : {&p.lhs, s.reduce ? &p.rhs : &p.out}) all = all && (one || operand->outer[0] == 1);
    if (all) s.halves = s.reduce ? LaneHalves::sums : LaneHalves::images;
    auto in_place = [&](const Operand& operand, bool half) { return (one || operand.outer[0] == 1) && (all || !half); };
    s.lhs = in_place(p.lhs, of_halves(p)) ? LaneSource::in_place : LaneSource::panel;
    s.rhs = in_place(p.rhs, of_halves(p) && s.reduce) ? LaneSource::in_place : LaneSource::panel;
    s.out_in_place = in_place(p.out, of_halves(p));
    s.planes = !s.reduce && !(one || p.lhs.outer[0] == 1) && suits_planes(p, lanes);
    if (s.planes) {
        *plan = s;
        return nullptr;
    }
    const double weights = taps * static_cast<double>(p.features) * static_cast<double>(s.padded);
    if (s.rhs == LaneSource::panel && !s.reduce && weights <= kMaxWeights) {
        s.rhs = LaneSource::packed;
        s.weights = static_cast<int64_t>(weights);
    }
    if (!s.reduce && lists > kMaxLists) return "depthwise: too many taps";
    const bool panels = s.lhs == LaneSource::panel || s.rhs == LaneSource::panel || !(s.reduce || s.out_in_place);
    s.group_block = panels ? lanes : std::min(s.padded, ceil_div(kGroupBlock, lanes) * lanes);
    s.group_blocks = ceil_div(p.groups, s.group_block);

    s.streamed = !panels && !s.reduce && streams(p);
    cut(&s, panels);
    if (panels && !s.reduce) widen(&s);
    if (!size_panels(&s)) return "depthwise: the working set of a block is too large";
    s.blocks = s.reduce ? p.channels : 1;
    int64_t room = s.channels();
    for (int i = 0; i < p.dims; ++i) {
        s.counts[i] = ceil_div(s.reduce ? p.axes[i].kernel : p.axes[i].out, s.box[i]);
        s.blocks *= s.counts[i];
        if (i != s.column()) room *= std::max<int64_t>(1, s.reduce ? s.box[i] : p.axes[i].kernel);
    }
    s.lists = 6 * std::max<int64_t>(1, room);
    if (s.reduce) {
        const int64_t images = std::min(kParts, p.batch * s.group_blocks);
        s.parts = std::max<int64_t>(1, std::min(s.blocks, ceil_div(kParts, images)));
        s.sums = static_cast<int64_t>(outputs) * s.group_block;
    }
    *plan = s;
    return nullptr;
}

bool depthwise_takes_halves(const Problem& problem) {
    if (!of_halves(problem) || problem.groups == 1 || exchanges(problem) || is_bare(problem)) return false;
    const LaneKernels<float>& kernels = lane_kernels<float>(current_isa());
    DepthwisePlan plan;
    if (plan_depthwise(problem, kernels.lanes, &plan) != nullptr) return false;
    if (plan.halves != LaneHalves::none && kernels.of(problem.dtype).of[static_cast<int>(plan.halves)] == nullptr) return false;
    if (plan.reduce) return !problem.has_bias;
    const bool finish = problem.has_bias || problem.activation != Activation::none;
    if (plan.halves != LaneHalves::none && finish) return false;  // there are no sums of float32 to finish
    return count_weights(problem) <= kMostHalfWeights && (!plan.planes || planes_take_halves(plan.p));
}

}  // namespace fastconv
