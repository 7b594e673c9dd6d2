#include "drivers/dots_layout.h"

#include <algorithm>
#include <cstdlib>

#include "drivers/geometry.h"
#include "kernels/dots.h"

namespace fastconv {
namespace {

constexpr int64_t kMostTaps = 1 << 16;  // that are not the lane's
constexpr double kMostPadding = 8;      // times the operands that the copy of lhs may take
constexpr int64_t kTasks = 16;          // enough to keep many cores even
constexpr int64_t kSegmentsEach = 32;   // of a task
constexpr int64_t kPassPanels = 96;     // of a block that a pass meets: two blocks fill 192 KB
constexpr double kStridedStore = 0.6;   // worth of a row whose outputs have no neighbours

int64_t outer_taps(const Problem& p, int lane) {
    int64_t taps = 1;
    for (int i = 0; i < p.dims; ++i)
        if (i != lane && __builtin_mul_overflow(taps, p.axes[i].kernel, &taps)) return kMostTaps + 1;
    return taps;
}

// Lane and place of the channels that waste the fewest steps. Sets `steps`.
void choose_run(const Problem& p, int64_t element, DotCopy* copy) {
    const int64_t unit = kDotBytes / element;
    double best = -1;
    constexpr struct {
        bool inside, adjoin;
    } ways[] = {{true, false}, {true, true}, {false, true}};
    for (int lane = 0; lane < p.dims; ++lane)
        for (const auto& [inside, adjoin] : ways) {
            const int64_t run = (adjoin ? p.axes[lane].kernel : 1) * (inside ? p.channels : 1);
            double cost = static_cast<double>(ceil_div(run, unit)) * static_cast<double>(outer_taps(p, adjoin ? lane : -1)) *
                          static_cast<double>(inside ? 1 : p.channels);
            // Copies are cheapest where neighbours stay neighbours.
            const bool runs_on = inside ? p.lhs.outer[2] == 1 || p.channels == 1 : std::abs(p.lhs.spatial[lane]) == 1;
            if (!runs_on) cost *= 1.15;
            for (int i = 0; i < p.dims; ++i)
                if (std::abs(p.lhs.spatial[i]) < std::abs(p.lhs.spatial[lane])) cost *= 1.1;
            if (best >= 0 && cost >= best) continue;
            best = cost;
            copy->lane = lane;
            copy->channels_inside = inside;
            copy->taps_adjoin = adjoin;
        }
}

const char* place_copy(const std::vector<Problem>& parts, DotCopy* c) {
    const Problem& p = parts[0];
    for (int i = 0; i < p.dims; ++i) {
        int64_t first = INT64_MAX, last = INT64_MIN;
        for (const Problem& part : parts) {
            const Axis& a = part.axes[i];
            first = std::min(first, -a.lo);
            last = std::max(last, (a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation - a.lo);
        }
        c->first[i] = first;
        c->length[i] = last - first + 1;
    }
    c->dilation = c->taps_adjoin ? p.axes[c->lane].rhs_dilation : 1;
    c->places = ceil_div(c->length[c->lane], c->dilation);
    double size = static_cast<double>(p.groups) * static_cast<double>(p.batch) * static_cast<double>(p.channels), inputs = size,
           outputs = 0;
    for (int i = 0; i < p.dims; ++i) {
        size *= static_cast<double>(i == c->lane ? c->places * c->dilation : c->length[i]);
        inputs *= static_cast<double>(p.axes[i].size);
    }
    for (const Problem& part : parts) {
        double count = static_cast<double>(p.groups) * static_cast<double>(p.batch) * static_cast<double>(p.features);
        for (int i = 0; i < p.dims; ++i) count *= static_cast<double>(part.axes[i].out);
        outputs += count;
    }
    if (size > kMostPadding * (inputs + outputs) + (1 << 18)) return "dots: the padded input is too large to copy";
    c->place = c->channels_inside ? p.channels : 1;
    c->sub_row = c->places * c->place;
    c->channel = c->channels_inside ? 1 : c->dilation * c->sub_row;
    c->line = c->dilation * c->sub_row * (c->channels_inside ? 1 : p.channels);
    int64_t step = c->line;
    for (int i = p.dims - 1; i >= 0; --i) {
        if (i == c->lane) continue;
        c->axis[i] = step;
        step *= c->length[i];
    }
    c->image = step;
    c->group = step * p.batch;
    c->elements = c->group * p.groups;
    return nullptr;
}

void choose_rows(const DotCopy& copy, int most_rows, DotPart* part) {
    const Problem& p = part->problem;
    double best = -1;
    for (int axis = kRowsAreImages; axis < p.dims; ++axis) {
        int64_t classes = 1, count = p.batch, out = p.out.outer[1], step = copy.image;
        if (axis >= 0) {
            const Axis& a = p.axes[axis];
            if (axis == copy.lane) classes = std::min(a.out, copy.dilation / gcd(a.stride, copy.dilation));
            count = ceil_div(a.out, classes);
            out = classes * p.out.spatial[axis];
            step = axis == copy.lane ? classes * a.stride / copy.dilation * copy.place : a.stride * copy.axis[axis];
            if (count == 1) step = 0;
        }
        const int64_t segments = ceil_div(count, most_rows), rows = ceil_div(count, segments);
        // Rows beyond a good number matter little: loading the columns is then hidden.
        const bool adjoin = out == 1 || p.out.outer[2] == 1 || (out == classes && classes <= kDotRows && p.axes[axis].out % classes == 0);
        double worth = static_cast<double>(std::min<int64_t>(rows, 14)) * (adjoin ? 1 : kStridedStore);
        if (axis == copy.lane) worth *= 1.05;
        if (worth <= best) continue;
        best = worth;
        part->row_axis = axis;
        part->classes = classes;
        part->segments = segments;
        part->rows = rows;
        part->row_step = step;
        part->out_row = out;
    }
    part->fast_axis = -1;
    part->fast = part->classes;
    if (part->classes == 1 && part->out_row != 1 && p.out.outer[2] != 1)
        for (int i = 0; i < p.dims; ++i)
            if (i != part->row_axis && p.out.spatial[i] == 1 && p.axes[i].out > 1 && p.axes[i].out <= kDotRows) {
                part->fast_axis = i;
                part->fast = p.axes[i].out;
            }
    part->lines = 1;
    if (part->row_axis != kRowsAreImages) part->lines *= p.batch;
    for (int i = 0; i < p.dims; ++i)
        if (i != part->row_axis && i != part->fast_axis) part->lines *= p.axes[i].out;
}

void list_offsets(const DotCopy& copy, DotPart* part) {
    const Problem& p = part->problem;
    const int64_t channels = copy.channels_inside ? 1 : p.channels, taps = outer_taps(p, copy.taps_adjoin ? copy.lane : -1);
    part->runs = channels * taps;
    part->run_steps = ceil_div((copy.taps_adjoin ? p.axes[copy.lane].kernel : 1) * copy.place * copy.element, kDotBytes);
    part->steps = part->run_steps;
    for (int64_t cuts = 2; part->steps > kPassPanels && cuts <= part->run_steps; ++cuts)
        if (part->run_steps % cuts == 0) part->steps = part->run_steps / cuts;
    for (int64_t t = 0; t < part->runs; ++t) {
        int64_t rest = t % taps, offset = t / taps * copy.channel;
        for (int i = p.dims - 1; i >= 0; --i) {
            if (i == copy.lane && copy.taps_adjoin) continue;
            offset += rest % p.axes[i].kernel * p.axes[i].rhs_dilation * (i == copy.lane ? copy.place : copy.axis[i]);
            rest /= p.axes[i].kernel;
        }
        for (int64_t u = 0; u < part->run_steps; u += part->steps) part->offsets.push_back(offset * copy.element + u * kDotBytes);
    }
    const int64_t count = static_cast<int64_t>(part->offsets.size());
    const int64_t passes = 2 * part->panels_of_block() > 3 * kPassPanels ? ceil_div(part->panels_of_block(), kPassPanels) : 1;
    part->offsets_each = ceil_div(count, std::min(count, passes));
}

}  // namespace

const char* plan_dots(const std::vector<Problem>& parts, int most_rows, DotPlan* plan) {
    DotCopy& copy = plan->copy;
    copy.element = dtype_size(parts[0].dtype);
    const Problem* largest = &parts[0];
    for (const Problem& part : parts)
        if (outer_taps(part, -1) > outer_taps(*largest, -1)) largest = &part;
    choose_run(*largest, copy.element, &copy);
    if (const char* why = place_copy(parts, &copy)) return why;
    const Problem& p = parts[0];
    plan->blocks = ceil_div(p.features, kDotColumns);
    plan->panels = plan->tasks = 0;
    copy.slack = 0;
    for (const Problem& problem : parts) {
        plan->parts.emplace_back();
        DotPart& part = plan->parts.back();
        part.problem = problem;
        const int64_t taps = outer_taps(problem, copy.taps_adjoin ? copy.lane : -1);
        if (taps > kMostTaps || (!copy.channels_inside && taps * p.channels > kMostTaps)) return "dots: too many taps";
        choose_rows(copy, most_rows, &part);
        list_offsets(copy, &part);
        part.panels = plan->panels;
        plan->panels += p.groups * plan->blocks * part.panels_of_block();
        copy.slack = std::max(copy.slack, part.rows * part.row_step + part.run_steps * kDotBytes / copy.element);
        const int64_t segments = part.lines * part.segments, pairs = ceil_div(plan->blocks, 2);  // segments of all fast ones
        const int64_t others = static_cast<int64_t>(parts.size()) * p.groups;
        int64_t each = std::min(segments, ceil_div(kSegmentsEach, part.fast));
        part.column_tasks = std::min(pairs, ceil_div(kTasks, others * ceil_div(segments, each)));
        part.blocks_each = 2 * ceil_div(pairs, part.column_tasks);
        part.column_tasks = ceil_div(plan->blocks, part.blocks_each);
        // Few columns: fewer segments a task, but pairs of them.
        const int64_t wanted = ceil_div(kTasks, others * part.column_tasks);
        if (ceil_div(segments, each) < wanted) each = std::min(each, ceil_div(std::max<int64_t>(1, segments / wanted), 2) * 2);
        part.segments_each = each * part.fast;
        part.row_tasks = ceil_div(segments, each);
        part.first_task = plan->tasks;
        plan->tasks += p.groups * part.row_tasks * part.column_tasks;
    }
    return nullptr;
}

}  // namespace fastconv
