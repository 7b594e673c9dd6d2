#include "drivers/outer_plan.h"

#include <algorithm>
#include <utility>

#include "drivers/geometry.h"
#include "kernels/outer.h"

namespace fastconv {
namespace {

constexpr int64_t kBlockPixels = 192;      // a panel of 64 lanes then nearly fills the first cache
constexpr int64_t kCopiedPixels = 768;     // most, where a copy reaches over a block's rows: fewer of its edges
constexpr int64_t kMaxSums = 1 << 18;      // elements of a task's sums: half of the second cache
constexpr int64_t kMaxPanels = 1 << 18;    // elements of a task's packed lanes
constexpr int64_t kMaxRegion = 1 << 18;    // elements of a copied region; a panel's positions times its lanes
constexpr int64_t kMaxParts = 1 << 22;     // elements of all partial sums
constexpr double kMaxTaps = 1 << 16;       // each is described in memory
constexpr double kApart = 1.1;             // what tiles cost whose rows are taps, when channels lie side by side
constexpr int64_t kFarBytes = 2048;        // steps of half a page share few sets of the first cache
constexpr int64_t kMostTasks = 16;         // enough to keep many cores even, few enough to keep packing shared
constexpr int64_t kFewRows = 64;           // rows x taps that do not pay for a copy of the lanes
constexpr double kTaskProducts = 1 << 23;  // a task smaller than this is not worth its own sums or packing
constexpr double kSum = 0.3;               // cycles to write, read and add an element of partial sums
constexpr double kCopy = 0.15, kTranspose = 0.35, kGather = 2.0, kCopyFar = 0.3;  // cycles to lay an element out
constexpr double kWrite = 0.4, kWriteFar = 1.5;                                   // to write an output through a transposition
constexpr double kWalk = 0.1;  // to read an element of the rows where it lies, for the first time

// Cycles of one pixel in a tile: two multiply-adds and two loads a cycle, and a latency of four.
double tile_cycles(double rows, double vectors) { return 0.4 + std::max({4.0, 0.5 * rows * vectors, 0.5 * (rows + vectors)}); }

double pack_cycles(int64_t lane_step, int64_t step) { return lane_step == 1 ? kCopy : std::abs(step) <= 2 ? kTranspose : kGather; }

// Whether rows 3 i, 3 i + 1 and 3 i + 2 are evenly spaced: channels, or taps of one axis.
bool go_by_threes(const OuterPlan& plan) {
    if (plan.rows % 3 != 0) return false;
    if (!plan.mixed) return true;
    const OuterAxis* inner = nullptr;
    for (int i = 0; i < plan.form.count; ++i) {
        const OuterAxis& a = plan.form.axes[i];
        if (a.taps > 1 && (inner == nullptr || std::abs(a.out) < std::abs(inner->out))) inner = &a;
    }
    return inner != nullptr && inner->taps % 3 == 0;
}

// Sets the tiles of a plan and returns the cycles that all its pixels take.
double choose_tile(OuterPlan* plan, const OuterShapes& shapes) {
    const int* most_rows = shapes.most_rows;
    const double pixels = static_cast<double>(plan->form.pixels());
    plan->vectors = ceil_div(plan->lane_side().channels, plan->lanes);
    double best = -1;
    for (int v = 1; most_rows[v] > 0; ++v) {
        const int64_t panels = ceil_div(plan->vectors, v), tiles = ceil_div(plan->rows, most_rows[v]);
        const double width = static_cast<double>(plan->vectors) / static_cast<double>(panels);
        const double height = static_cast<double>(plan->rows) / static_cast<double>(tiles);
        const double cycles = static_cast<double>(panels * tiles * plan->row_taps()) * tile_cycles(height, width) * pixels;
        if (best >= 0 && cycles >= best) continue;
        best = cycles;
        plan->tile_vectors = v;
        plan->tile_rows = most_rows[v];
        plan->row_unit = 1;
        plan->panels = panels;
        plan->row_tiles = tiles;
    }
    const int64_t tiles = ceil_div(plan->rows, shapes.most_by_threes);
    if (plan->vectors == 1 && plan->rows > kOuterPlaces && go_by_threes(*plan)) {
        const double height = static_cast<double>(plan->rows) / static_cast<double>(tiles);
        const double cycles = static_cast<double>(tiles * plan->row_taps()) * tile_cycles(height, 1) * pixels;
        if (cycles < best) {
            best = cycles;
            plan->tile_rows = shapes.most_by_threes;
            plan->row_unit = 3;
            plan->row_tiles = tiles;
        }
    }
    return best;
}

// Whether rows are better copied: neighbours in memory whose pixels lie so far apart that few sets of the first cache hold them.
bool pack_rows(const OuterPlan& plan, int64_t item) {
    const OuterAxis& pixel = plan.form.pixel();
    const int64_t far = std::abs(plan.lanes_shifted ? pixel.still : pixel.dilation * pixel.shifted) * item;
    return !plan.mixed && plan.row_side().step == 1 && far >= kFarBytes && far % (kFarBytes / 2) == 0 &&
           plan.row_positions() <= 2 * pixel.dilation * plan.row_step * plan.pixel_step &&
           plan.row_pitch() * plan.row_positions() <= 2 * kMaxPanels;
}

// Near `cuts` cuts of an extent for which all blocks share out evenly among tasks; `others`: blocks that each cut is repeated for.
int64_t even_cuts(int64_t cuts, int64_t extent, int64_t others) {
    for (int64_t share = kMostTasks; share > 1; share /= 2) {
        for (int64_t c = cuts; c >= std::max<int64_t>(1, cuts - cuts / 4); --c)
            if (c * others % share == 0) return c;
        for (int64_t c = cuts + 1; c <= std::min(extent, cuts + cuts / 3); ++c)
            if (c * others % share == 0) return c;
    }
    return cuts;
}

// Copies overlap by the reach of their taps: a half more than the block itself is little enough.
void cut_pixels(OuterPlan* plan) {
    const OuterForm& f = plan->form;
    const int64_t pixels = f.pixel().pixels, rows = f.row().pixels;
    plan->outer_blocks = 1;
    for (int i = 0; i + 2 < f.count; ++i) plan->outer_blocks *= f.axes[i].pixels;
    plan->pixel_cuts = ceil_div(pixels, 2 * kBlockPixels);
    if (rows == 1) plan->pixel_cuts = even_cuts(plan->pixel_cuts, pixels, plan->outer_blocks);
    plan->pixel_step = ceil_div(pixels, plan->pixel_cuts);
    int64_t wanted = kBlockPixels / plan->pixel_step;
    if (plan->copied)
        wanted =
            std::max(wanted, std::min(kCopiedPixels / plan->pixel_step, 2 * ceil_div(OuterPlan::reach(f.row(), 1) - 1, f.row().dilation)));
    plan->row_cuts = ceil_div(rows, std::clamp<int64_t>(wanted, 1, rows));
    if (rows > 1) plan->row_cuts = even_cuts(plan->row_cuts, rows, plan->outer_blocks * plan->pixel_cuts);
    plan->row_step = ceil_div(rows, plan->row_cuts);
}

// Cycles to lay the lane side out once, and to copy the row side once.
double pack_once(const OuterPlan& plan) {
    const OuterForm& f = plan.form;
    const double blocks = static_cast<double>(plan.blocks());
    const double positions = plan.lanes_shifted ? blocks * static_cast<double>(plan.region()) : static_cast<double>(f.pixels());
    const int64_t step = plan.lanes_shifted ? f.pixel().shifted : f.pixel().still;
    double cycles = positions * static_cast<double>(plan.vectors * plan.lanes) * pack_cycles(plan.lane_side().step, step);
    if (plan.copied)
        cycles += blocks * static_cast<double>(plan.region() * f.shifted.channels) *
                  (f.pixel().shifted == 1 || plan.folded() > 1 ? 0.5 : kGather);
    return cycles;
}

// Cycles to write the outputs of a group: lanes that lie pages apart share few sets of the first cache.
double write_once(const OuterPlan& plan, int64_t item) {
    const int64_t step = std::abs(plan.lane_side().out);
    const double outputs = static_cast<double>(plan.rows * plan.row_taps()) * static_cast<double>(plan.lane_side().channels);
    return outputs * (step == 1 ? kCopy : step * item >= 2 * kFarBytes ? kWriteFar : kWrite);
}

// The tasks: cuts the outputs until the sums of a task suit the cache, then outputs or pixels until there are enough tasks,
// whichever repeats less work.
void cut_tasks(OuterPlan* plan, int64_t item) {
    const OuterForm& f = plan->form;
    const double outputs = static_cast<double>(plan->rows * plan->row_taps()) * static_cast<double>(plan->vectors * plan->lanes);
    const double products = outputs * static_cast<double>(f.pixels()) * static_cast<double>(f.groups);
    int64_t wanted = 1;  // a power of two, as the numbers of blocks: tasks are then equal
    while (wanted < kMostTasks && static_cast<double>(wanted) * kTaskProducts < products) wanted *= 2;
    const double pack = pack_once(*plan);
    const double rows = static_cast<double>(plan->row_side().channels), blocks_of_pixels = static_cast<double>(plan->blocks());
    const int64_t panel = (plan->lanes_shifted ? plan->region() : plan->row_step * plan->pixel_step) * plan->lanes;
    OuterPlan best = *plan;
    double least = -1;
    for (plan->lane_blocks = 1; plan->lane_blocks <= plan->panels; plan->lane_blocks *= 2)
        for (plan->row_blocks = 1; plan->row_blocks <= plan->row_tiles; plan->row_blocks *= 2) {
            const int64_t blocks = plan->lane_blocks * plan->row_blocks * f.groups;
            const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(kMaxParts / (outputs * static_cast<double>(f.groups))));
            plan->splits = std::max<int64_t>(1, std::min({ceil_div(wanted, blocks), plan->blocks(), most}));
            plan->rows_packed = pack_rows(*plan, item);
            const double walked = plan->rows_packed ? kCopyFar * static_cast<double>(plan->row_positions()) * blocks_of_pixels
                                                    : kWalk * static_cast<double>(f.pixels());
            double cycles = pack * static_cast<double>(plan->row_blocks) + walked * rows * static_cast<double>(plan->lane_blocks);
            if (plan->splits > 1) cycles += kSum * outputs * static_cast<double>(plan->splits);
            // Too few tasks, or sums or panels outside the cache: only when there is no other way.
            const double need = static_cast<double>(blocks * plan->splits);
            if (need < static_cast<double>(wanted)) cycles += products / 32 * (static_cast<double>(wanted) / need - 1) / 4;
            if (plan->sums() > kMaxSums) cycles += outputs * static_cast<double>(plan->blocks()) * 0.5;
            if (ceil_div(plan->vectors, plan->lane_blocks) * panel > kMaxPanels) cycles += products / 32;
            if (least < 0 || cycles < least) {
                least = cycles;
                best = *plan;
            }
        }
    *plan = best;
}

}  // namespace

OuterTask OuterPlan::task(int64_t index) const {
    OuterTask t;
    t.split = index % splits;
    index /= splits;
    const int64_t row_block = index % row_blocks, lane_block = index / row_blocks % lane_blocks;
    t.group = index / row_blocks / lane_blocks;
    t.panel = first_panel(lane_block);
    t.panels = first_panel(lane_block + 1) - t.panel;
    t.tile = first_tile(row_block);
    t.tiles = first_tile(row_block + 1) - t.tile;
    t.row = first_row(t.tile);
    t.rows = first_row(t.tile + t.tiles) - t.row;
    return t;
}

OuterBlock OuterPlan::block(int64_t index) const {
    OuterBlock b;
    const OuterAxis &ys = form.row(), &xs = form.pixel();
    const int64_t pixel_cut = index % pixel_cuts, row_cut = index / pixel_cuts % row_cuts;
    index /= pixel_cuts * row_cuts;
    b.pixel = pixel_cut * xs.pixels / pixel_cuts;
    b.pixels = (pixel_cut + 1) * xs.pixels / pixel_cuts - b.pixel;
    b.row = row_cut * ys.pixels / row_cuts;
    b.rows = (row_cut + 1) * ys.pixels / row_cuts - b.row;
    b.shifted = b.row * ys.dilation * ys.shifted + b.pixel * xs.dilation * xs.shifted;
    b.still = b.row * ys.still + b.pixel * xs.still;
    for (int i = form.count - 3; i >= 0; --i) {
        const OuterAxis& a = form.axes[i];
        b.outer[i] = index % a.pixels;
        index /= a.pixels;
        b.shifted += b.outer[i] * a.dilation * a.shifted;
        b.still += b.outer[i] * a.still;
    }
    return b;
}

int64_t OuterPlan::sums() const {
    const int64_t tiles = ceil_div(row_tiles, row_blocks), width = ceil_div(panels, lane_blocks);
    return std::min(tiles * tile_rows, rows) * row_taps() * std::min(width * tile_vectors, vectors) * lanes;
}

int64_t OuterPlan::row_pitch() const {
    const int64_t most = std::min(ceil_div(row_tiles, row_blocks) * tile_rows, rows);
    return (ceil_div(most, lanes) | 1) * lanes;
}

int64_t OuterPlan::region() const { return form.outer_taps * reach(form.row(), row_step) * reach(form.pixel(), pixel_step); }

const char* plan_outer(const Problem& p, const OuterShapes& shapes, OuterPlan* plan) {
    const int lanes = shapes.lanes;
    if (p.has_bias || p.activation != Activation::none) return "outer: sums alone, without bias and activation";
    bool lhs_dilated = false, rhs_dilated = false;
    double taps = 1;
    for (int i = 0; i < p.dims; ++i) {
        lhs_dilated = lhs_dilated || p.axes[i].lhs_dilation > 1;
        rhs_dilated = rhs_dilated || p.axes[i].rhs_dilation > 1;
        taps *= static_cast<double>(p.axes[i].out);
    }
    if (lhs_dilated && rhs_dilated) return "outer: both operands are dilated";
    if (taps > kMaxTaps) return "outer: too many taps to describe";
    double least = -1;
    for (const bool exchange : {false, true}) {
        if (exchange ? rhs_dilated : lhs_dilated) continue;
        OuterPlan way{};
        way.form = make_outer_form(p, exchange);
        way.lanes = lanes;
        if (way.form.empty) {
            *plan = way;
            return nullptr;
        }
        const bool whole = way.form.every_tap_meets_every_pixel();
        for (const bool lanes_shifted : {false, true})
            for (const bool mixed : {false, true}) {
                way.lanes_shifted = lanes_shifted;
                way.mixed = mixed;
                way.copied = mixed && !whole;
                if (mixed && lanes_shifted) continue;
                cut_pixels(&way);
                if (way.copied && way.region() * way.form.shifted.channels > kMaxRegion) continue;
                if (lanes_shifted && way.region() * lanes > kMaxRegion) continue;
                way.rows = way.row_side().channels * (mixed ? way.form.taps() : 1);
                double cycles = choose_tile(&way, shapes);
                if (mixed && !way.copied && way.form.shifted.step == 1) cycles *= kApart;  // neighbours in memory are no rows then
                const OuterAxis& pixel = way.form.pixel();
                const int64_t apart = lanes_shifted ? pixel.still : pixel.dilation * pixel.shifted;
                if (way.row_side().step == 1 && std::abs(apart) * dtype_size(p.dtype) >= kFarBytes / 4)
                    cycles += kCopy * static_cast<double>(way.row_side().channels) * static_cast<double>(way.form.pixels());
                cycles += pack_once(way) + write_once(way, dtype_size(p.dtype));
                if (least >= 0 && cycles >= least) continue;
                least = cycles;
                *plan = way;
            }
    }
    const OuterSide& lanes_of = plan->lane_side();
    plan->in_place = !plan->lanes_shifted && plan->panels == 1 && plan->rows * plan->row_taps() <= kFewRows && lanes_of.step == 1 &&
                     lanes_of.channels == plan->vectors * lanes && plan->form.pixel().still == lanes_of.channels;
    cut_tasks(plan, dtype_size(p.dtype));
    return nullptr;
}

}  // namespace fastconv
