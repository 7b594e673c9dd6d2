// Few channels in and out (images, volumes, signals): vectors along the innermost axis, several rows of outputs in registers,
// every input vector loaded once per tap column and used by all rows it meets. A task copies its piece of the input, padded,
// into cache-sized scratch first: any layout, stride and padding is then the same case. Rows that lie along memory are copied at their
// edges alone: tiles that meet no padding read them in place.
#include <algorithm>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/bare.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/finite.h"
#include "drivers/geometry.h"
#include "drivers/halves.h"
#include "drivers/phases.h"
#include "drivers/stencil_blocks.h"
#include "drivers/stencil_plan.h"
#include "drivers/stencil_rows.h"
#include "drivers/stencil_set.h"

namespace fastconv {
namespace {

constexpr int64_t kMostWoven = 16;           // features that are woven together
constexpr int64_t kMaxPhases = 64;           // each is a problem of its own
constexpr int64_t kChunkProducts = 1 << 16;  // work below which a thread is not worth waking

template <class T>
class Stencil {
public:
    Stencil(const Problem& problem, const StencilPlan& plan, const Buffers& buffers)
        : p(problem), s(plan), set_(stencil_kernels<T>(current_isa()), plan.vectors), item_(dtype_size(problem.dtype)),
          lhs_(static_cast<const char*>(buffers.lhs.data)), rhs_(static_cast<const T*>(buffers.rhs.data)),
          bias_(problem.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr), out_(static_cast<char*>(buffers.out.data)),
          woven_(p.features > 1 && p.features <= kMostWoven && p.out.outer[2] == 1 && p.out.spatial[s.lane] == p.features),
          made_pitch_(ceil_div(plan.lane_block, set_.lanes) * set_.lanes + plan.vectors * set_.lanes), rows_(p.dtype),
          apart_(woven_ || rows_.converts()), together_(channels_together(p) && !rows_.converts()),
          blocks_(p, s, s.row < 0 ? 1 : set_.max_rows, int64_t{s.flat ? set_.max_rows : s.vectors} * set_.lanes) {}

    const char* run(Executor& executor) {
        const int64_t weights = p.groups * p.features * s.groups_per_feature * s.group_weights;
        weights_ = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(weights) * sizeof(T)));
        if (weights_ == nullptr) return "out of memory";
        pack_weights();
        const int64_t tasks = blocks_.count();
        const int64_t products = p.features * s.groups_per_feature * s.group_weights * s.plane_block * s.row_block * s.lane_block;
        const int64_t grain = std::max<int64_t>(1, kChunkProducts / std::max<int64_t>(1, products));
        return for_tasks(executor, ceil_div(tasks, grain), local_bytes(), [&](int64_t chunk, void* local) {
            const int64_t end = std::min(tasks, (chunk + 1) * grain);
            for (int64_t task = chunk * grain; task < end; ++task) run_task(task, static_cast<char*>(local));
        });
    }

private:
    size_t local_bytes() const {
        const size_t lists = static_cast<size_t>(s.groups_per_feature) * (3 * sizeof(int64_t) + sizeof(T*));
        const int64_t made = apart_ ? p.features * made_rows() * made_pitch_ : 0;
        return static_cast<size_t>(s.scratch_elements(p.channels) + made + 4 * 64) * sizeof(T) + lists;
    }

    int64_t outer_kernel(int axis) const { return axis < 0 ? 1 : p.axes[axis].kernel; }

    // Weights by group, feature, channel, far tap, plane tap, then chunk, shift, row tap: the order in which kernels read.
    void pack_weights() const {
        const int64_t planes = outer_kernel(s.plane);
        T* to = weights_;
        for (int64_t feature = 0; feature < p.groups * p.features; ++feature)
            for (int64_t c = 0; c < p.channels; ++c)
                for (int64_t outer = 0; outer < s.far_taps * planes; ++outer) {
                    const T* from = rhs_ + p.rhs.offset + feature / p.features * p.rhs.outer[0] + feature % p.features * p.rhs.outer[1] +
                                    c * p.rhs.outer[2];
                    int64_t index = outer;
                    if (s.plane >= 0) from += index % planes * p.rhs.spatial[s.plane];
                    index /= planes;
                    for (int i = s.far - 1; i >= 0; --i) {
                        from += index % p.axes[i].kernel * p.rhs.spatial[i];
                        index /= p.axes[i].kernel;
                    }
                    const int64_t lane_step = p.rhs.spatial[s.lane];
                    const int64_t row_step = s.flat ? int64_t{set_.lanes} * lane_step : p.rhs.spatial[s.row];
                    for (const StencilChunk& chunk : s.chunks)
                        for (int64_t q = chunk.first_shift; q < chunk.first_shift + chunk.shifts; ++q)
                            for (int64_t h = chunk.first_row_tap; h < chunk.first_row_tap + chunk.taps; ++h)
                                *to++ = from[q * lane_step + h * row_step];
                }
    }

    SubRow sub_row(const StencilBlock& b, int64_t base) const {
        const Axis& lane = p.axes[s.lane];
        SubRow row;
        row.first = 0;
        row.length = std::min(s.phase_pitch, b.lanes + (lane.kernel - 1) * lane.rhs_dilation / lane.stride);
        row.begin = std::min(row.length, std::max<int64_t>(0, ceil_div(-base, lane.stride)));
        row.end = std::max(row.begin, std::min(row.length, ceil_div(lane.size - base, lane.stride)));
        row.step = lane.stride * p.lhs.spatial[s.lane];
        return row;
    }

    // Copies planes first <= z < last of the block (counted from its first input plane), each to its place in the ring.
    void copy_planes(const StencilBlock& b, const Edges& edges, int64_t first, int64_t last, T* to) const {
        if (edges.none()) return;
        const int64_t image = p.lhs.offset + b.group * p.lhs.outer[0] + b.image * p.lhs.outer[1];
        const int64_t first_lane = blocks_.input(s.lane, b.lane, 0);
        const int64_t first_row = s.row < 0 ? 0 : blocks_.input(s.row, b.row, 0),
                      first_plane = s.plane < 0 ? 0 : blocks_.input(s.plane, b.plane, 0);
        const int64_t rows =
            s.row < 0 ? 1 : (b.rows - 1) * p.axes[s.row].stride + (p.axes[s.row].kernel - 1) * p.axes[s.row].rhs_dilation + 1;
        const int64_t channels = together_ ? p.channels : 1, channel_pitch = s.far_taps * s.planes * s.plane_size();
        for (int64_t c = 0; c < p.channels; c += channels)
            for (int64_t tap = 0; tap < s.far_taps; ++tap) {
                T* block = to + (c * s.far_taps + tap) * s.planes * s.plane_size();
                int64_t far;
                if (!blocks_.far_offset(b, tap, &far)) continue;
                const int64_t source = image + c * p.lhs.outer[2] + far;
                for (int64_t z = first; z < last; ++z) {
                    if (s.plane >= 0 && !blocks_.inside(s.plane, first_plane + z)) continue;
                    const int64_t plane = source + (s.plane < 0 ? 0 : (first_plane + z) * p.lhs.spatial[s.plane]);
                    for (int64_t phase = 0; phase < p.axes[s.lane].stride; ++phase) {
                        const SubRow row = sub_row(b, first_lane + phase);
                        const int64_t from = plane + (first_lane + phase) * p.lhs.spatial[s.lane];
                        T* place = block + z % s.planes * s.plane_size() + phase * s.phase_pitch;
                        for (int64_t y = 0; y < rows; ++y, place += s.pitch) {
                            const bool whole = y < edges.top || y >= edges.bottom;
                            const bool met = s.row < 0 || blocks_.inside(s.row, first_row + y);
                            const char* data = lhs_ + (from + (s.row < 0 ? 0 : (first_row + y) * p.lhs.spatial[s.row])) * item_;
                            if (met && together_)
                                rows_.copy_channels(row, reinterpret_cast<const T*>(data), place, channels, channel_pitch);
                            else if (met && whole)
                                rows_.copy(row, data, place);
                            else if (met) {
                                rows_.copy(row.part(0, edges.left), data, place);
                                rows_.copy(row.part(std::max(edges.left, edges.right), row.length), data, place);
                            }
                            for (int64_t i = 0; !met && i < channels; ++i) rows_.clear(place + i * channel_pitch, 0, row.length);
                        }
                    }
                }
            }
    }

    // The input of a block's first output: in scratch, or where it lies.
    struct Source {
        const T* data;
        int64_t at, row_step, tap_step;
        const int64_t* offset;  // of each group
    };

    // What one feature of one plane of a task needs.
    struct Feature {
        StencilArguments<T> arguments;  // the number of groups; weights are those of chunk 0
        const T** weight;
        Source copied, in_place;
        Inner inner;
        T* out;
        int64_t out_row, out_lane;  // what a row and a lane step in `out`
        const T* bias;
    };

    void run_task(int64_t task, char* local) const {
        const StencilBlock b = blocks_.block_of(task);
        int64_t* offset = reinterpret_cast<int64_t*>(local);
        int64_t* lies = offset + s.groups_per_feature;  // the same in the input itself
        int64_t* first_weight = lies + s.groups_per_feature;
        const T** weight = reinterpret_cast<const T**>(first_weight + s.groups_per_feature);
        T* in = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(weight + s.groups_per_feature) + 63) / 64 * 64);
        Feature f;
        f.weight = weight;
        f.inner = blocks_.inner(b);
        f.copied = {in, 0, s.row_step, s.tap_step, offset};
        f.in_place = in_place(b, lies);
        const Edges edges = blocks_.edges(b, f.inner);
        int64_t copied = 0;
        for (int64_t z = 0; z < b.planes; ++z) {
            const int64_t first = s.plane < 0 ? 0 : z * p.axes[s.plane].stride;
            copy_planes(b, edges, std::max(copied, first), first + s.planes, in);
            copied = first + s.planes;
            // The channels and outer taps that meet data: padding planes are never multiplied.
            int64_t groups = 0;
            for (int64_t c = 0; c < p.channels; ++c)
                for (int64_t tap = 0; tap < s.far_taps; ++tap) {
                    int64_t far;
                    if (!blocks_.far_offset(b, tap, &far)) continue;
                    for (int64_t k = 0; k < outer_kernel(s.plane); ++k) {
                        int64_t plane = 0;
                        lies[groups] = c * p.lhs.outer[2] + far;
                        if (s.plane >= 0) {
                            const int64_t at = blocks_.input(s.plane, b.plane + z, k);
                            if (!blocks_.inside(s.plane, at)) continue;
                            plane = (first + k * p.axes[s.plane].rhs_dilation) % s.planes;
                            lies[groups] += at * p.lhs.spatial[s.plane];
                        }
                        offset[groups] = ((c * s.far_taps + tap) * s.planes + plane) * s.plane_size();
                        first_weight[groups++] = ((c * s.far_taps + tap) * outer_kernel(s.plane) + k) * s.group_weights;
                    }
                }
            f.arguments.groups = groups;
            if (!apart_) {
                make_rows(b, f, first_weight, reinterpret_cast<T*>(out_of(b, z, 0)), p.out.outer[2]);
                continue;
            }
            // Made apart, a few rows at a time, and woven together or converted.
            T* made = in + s.scratch_elements(p.channels);
            StencilBlock part = b;
            for (int64_t y = 0; y < b.rows; y += set_.max_rows) {
                const int64_t top = std::max<int64_t>(0, std::min(y, b.rows - set_.max_rows));  // the last go over finished ones
                part.row = b.row + top;
                part.rows = std::min<int64_t>(set_.max_rows, b.rows - top);
                f.inner = blocks_.inner(part);
                f.copied.at = top * s.row_step;
                f.in_place = in_place(part, lies);
                make_rows(part, f, first_weight, made, made_rows() * made_pitch_);
                for (int64_t r = 0; r < part.rows; ++r) {
                    const T* from = made + r * made_pitch_;
                    char* to = out_of(part, z, r);
                    if (!rows_.converts()) rows_.weave(reinterpret_cast<T*>(to), from, made_rows() * made_pitch_, p.features, b.lanes);
                    for (int64_t o = 0; o < p.features && rows_.converts(); ++o)
                        rows_.narrow(to + o * p.out.outer[2] * item_, from + o * made_rows() * made_pitch_, b.lanes);
                }
            }
        }
    }

    Source in_place(const StencilBlock& b, const int64_t* lies) const {
        Source from{reinterpret_cast<const T*>(lhs_), p.lhs.offset + b.group * p.lhs.outer[0] + b.image * p.lhs.outer[1], s.row_step,
                    s.tap_step, lies};
        from.at += blocks_.input(s.lane, b.lane, 0) * p.lhs.spatial[s.lane];
        if (s.row >= 0) {
            const int64_t step = p.lhs.spatial[s.row];
            from.at += blocks_.input(s.row, b.row, 0) * step;
            from.row_step = p.axes[s.row].stride * step;
            from.tap_step = p.axes[s.row].rhs_dilation * step;
        }
        return from;
    }

    int64_t made_rows() const { return s.row < 0 ? 1 : set_.max_rows; }

    // Where row r of a block goes, for its first feature.
    char* out_of(const StencilBlock& b, int64_t z, int64_t r) const {
        int64_t to = p.out.offset + b.group * p.out.outer[0] + b.image * p.out.outer[1] + b.lane * p.out.spatial[s.lane];
        for (int i = 0; i < s.far; ++i) to += b.far_at[i] * p.out.spatial[i];
        if (s.plane >= 0) to += (b.plane + z) * p.out.spatial[s.plane];
        if (s.row >= 0) to += (b.row + r) * p.out.spatial[s.row];
        return out_ + to * item_;
    }

    // Every feature of the rows of a block: to where they belong, or to scratch.
    void make_rows(const StencilBlock& b, Feature& f, const int64_t* first_weight, T* out, int64_t out_feature) const {
        for (int64_t o = 0; o < p.features; ++o) {
            const int64_t feature = b.group * p.features + o;
            const T* base = weights_ + feature * s.groups_per_feature * s.group_weights;
            for (int64_t g = 0; g < f.arguments.groups; ++g) f.weight[g] = base + first_weight[g];
            f.out = out + o * out_feature;
            f.out_row = apart_ ? made_pitch_ : s.row < 0 ? 0 : p.out.spatial[s.row];
            f.out_lane = apart_ ? 1 : p.out.spatial[s.lane];
            f.bias = bias_ == nullptr ? nullptr : bias_ + feature * p.bias_stride;
            s.flat ? sweep_flat(b, f) : sweep_rows(b, f);
        }
    }

    // Tiles of rows x vectors. The last ones are moved back over finished outputs where there is room, else cut off on the way out.
    void sweep_rows(const StencilBlock& b, Feature& f) const {
        const int64_t width = int64_t{set_.vectors} * set_.lanes;
        for (int64_t y = 0; y < b.rows;) {
            int rows = set_.rows_for(b.rows - y);
            int64_t top = y;
            if (rows < set_.max_rows && b.rows >= set_.max_rows) {
                rows = set_.max_rows;
                top = b.rows - rows;
            }
            for (int64_t x = 0; x < b.lanes; x += width) {
                const int64_t left = b.lanes >= width ? std::min(x, b.lanes - width) : x;
                const int64_t valid = std::min(width, b.lanes - left);
                const Source& from = f.inner.holds(top, rows, left, width) ? f.in_place : f.copied;
                tile(f, rows, from, top * from.row_step + left, f.out + top * f.out_row + left * f.out_lane, f.out_row, valid,
                     valid == width);
            }
            y = top + rows;
        }
    }

    // A flat stencil's rows are stretches of one vector of the lane axis.
    void sweep_flat(const StencilBlock& b, Feature& f) const {
        const int64_t lanes = set_.lanes, step = f.out_lane;
        for (int64_t x = 0; x < b.lanes;) {
            const int64_t whole = (b.lanes - x) / lanes;
            const int rows = whole > 0 ? set_.rows_for(whole) : 1;
            const int64_t left = whole == 0 && b.lanes >= lanes ? b.lanes - lanes : x;
            const int64_t valid = std::min(lanes, b.lanes - left);
            const Source& from = f.inner.holds(0, 1, left, rows * lanes) ? f.in_place : f.copied;
            tile(f, rows, from, left, f.out + left * step, lanes * step, valid, valid == lanes);
            x = left + rows * lanes;
        }
    }

    void tile(Feature& f, int rows, const Source& from, int64_t at, T* out, int64_t out_step, int64_t valid, bool whole) const {
        const int64_t width = int64_t{set_.vectors} * set_.lanes, step = f.out_lane;
        const bool direct = (whole || apart_) && step == 1;  // scratch has room for whole tiles
        T buffer[kMaxRows * kMaxVectors * 16];
        StencilArguments<T>& a = f.arguments;
        a.weight = f.weight;
        a.out = direct ? out : buffer;
        a.out_step = direct ? out_step : width;
        a.accumulate = false;
        a.offset = from.offset;
        a.row_step = from.row_step;
        int64_t moved = 0;  // the weight pointers stand at this chunk's
        for (const StencilChunk& chunk : s.chunks) {
            for (int64_t g = 0; g < a.groups; ++g) f.weight[g] += chunk.weight - moved;
            moved = chunk.weight;
            a.shifts = chunk.shifts;
            a.shift = s.shifts.data() + chunk.first_shift;
            a.in = from.data + from.at + at + chunk.first_row_tap * from.tap_step;
            set_.table[rows][chunk.taps](a);
            a.accumulate = true;
        }
        for (int64_t g = 0; g < a.groups; ++g) f.weight[g] -= moved;
        if (f.bias != nullptr || p.activation != Activation::none)
            for (int r = 0; r < rows; ++r) finish_row<T>(a.out + r * a.out_step, valid, 1, f.bias, 0, p.activation);
        if (direct) return;
        for (int r = 0; r < rows; ++r) {
            if (step == 1) std::memcpy(out + r * out_step, buffer + r * width, static_cast<size_t>(valid) * sizeof(T));
            for (int64_t j = 0; step != 1 && j < valid; ++j) out[r * out_step + j * step] = buffer[r * width + j];
        }
    }

    const Problem p;
    const StencilPlan& s;
    const StencilSet<T> set_;
    const int64_t item_;  // bytes of an element of lhs and out
    const char* lhs_;
    const T* rhs_;
    const T* bias_;
    char* out_;
    const bool woven_;          // features lie side by side
    const int64_t made_pitch_;  // of their rows before that
    const StencilRows<T> rows_;
    const bool apart_;     // rows of outputs are made in scratch first
    const bool together_;  // all channels are copied at once
    const StencilBlocks blocks_;
    T* weights_ = nullptr;
};

template <class T>
const char* run_stencil_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const StencilKernels<T>& kernels = stencil_kernels<T>(current_isa());
    if (!rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data))) return run_general(problem, buffers, executor);
    int64_t phases = 1;
    for (int i = 0; i < problem.dims; ++i) phases *= std::min(problem.axes[i].lhs_dilation, problem.axes[i].out);
    if (phases > kMaxPhases) return "stencil: too many phases";
    // All are planned before the first writes.
    std::vector<Problem> parts;
    std::vector<StencilPlan> plans;
    for (const Problem& part : split_phases(problem)) {
        plans.emplace_back();
        parts.push_back(sort_axes(part));
        if (is_bare(part)) continue;
        if (const char* why = plan_stencil(parts.back(), kernels.lanes, max_taps(kernels), &plans.back())) return why;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        const bool empty = plans[i].chunks.empty();  // nothing but bias and activation
        const char* why = empty ? run_general(parts[i], buffers, executor) : Stencil<T>(parts[i], plans[i], buffers).run(executor);
        if (why != nullptr) return why;
    }
    return nullptr;
}

// Half types whose rows lie along memory: they are widened into scratch and rounded on the way out, as they are copied anyhow. Weights are
// copied as float32 first.
const char* run_halves(const Problem& problem, const Buffers& buffers, Executor& executor) {
    Problem real;
    Buffers reals;
    if (const char* why = widen_weights(problem, buffers, executor, &real, &reals)) return why;
    return rhs_is_finite(real, static_cast<const float*>(reals.rhs.data)) ? run_stencil_as<float>(real, reals, executor)
                                                                          : run_general(problem, buffers, executor);
}

}  // namespace

const char* run_stencil(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (stencil_takes_halves(problem)) return run_halves(problem, buffers, executor);
    if (problem.dtype != problem.out_dtype) return "stencil: the output type must be the operands'";
    if (problem.dims == 0) return "stencil: no spatial axis";
    if (problem.dtype == Dtype::f32) return run_stencil_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_stencil_as<double>(problem, buffers, executor);
    return "stencil: f32 and f64 only";
}

}  // namespace fastconv
