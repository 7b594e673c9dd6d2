// Few channels and features a group, many groups: vectors hold the groups side by side, every lane a convolution of its own.
//
// Where the groups lie side by side in memory (channels last), operands are read and written in place. Else a block of one
// vector of groups is transposed into a panel that the caches hold, and outputs are transposed on their way back. A weight
// gradient is a sum of many taps for few outputs: it is cut into parts along the taps, which are added in order.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/depthwise_plan.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/exchange.h"
#include "drivers/finite.h"
#include "drivers/geometry.h"
#include "drivers/halves.h"
#include "drivers/lane_rows.h"
#include "drivers/phases.h"
#include "drivers/planes.h"

namespace fastconv {
namespace {

constexpr double kChunkProducts = 1 << 16;  // work below which a thread is not worth waking

constexpr int64_t kStreamedColumns = 4;  // of a tile whose operands stream from memory

// Steps `at` through a box, all axes but the last `inner`; false after the last place.
bool step(int64_t* at, const Span* box, int axes) {
    for (int i = axes - 1; i >= 0; --i) {
        if (++at[i] < box[i].hi) return true;
        at[i] = box[i].lo;
    }
    return false;
}

template <class T>
class Depthwise {
public:
    Depthwise(const DepthwisePlan& plan, const Buffers& buffers)
        : s(plan), p(plan.p), kernels_(lane_kernels<T>(current_isa())), tiles_(kernels_, p.dtype, plan.halves), rows_(p.dtype),
          lhs_(buffers.lhs.data), rhs_(buffers.rhs.data), bias_(p.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr),
          out_(buffers.out.data), column_(s.column()), phases_(phases_of(p)) {}

    const char* run(Executor& executor) {
        const int64_t biases = bias_ == nullptr ? 0 : p.features * s.padded, images = p.batch * s.group_blocks;
        weights_ =
            static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(s.weights + biases + images * s.parts * s.sums) * sizeof(T)));
        if (weights_ == nullptr) return "out of memory";
        biases_ = weights_ + s.weights;
        sums_ = biases_ + biases;
        if (s.rhs == LaneSource::packed) pack_weights();
        if (bias_ != nullptr) pack_bias();

        const int64_t tasks = images * (s.reduce ? s.parts : s.blocks);
        double products = static_cast<double>(p.channels * p.features * s.group_block);
        for (int i = 0; i < p.dims; ++i)
            products *= static_cast<double>(p.axes[i].kernel) * static_cast<double>(s.reduce ? p.axes[i].out : s.box[i]);
        const int64_t grain = s.reduce ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kChunkProducts / std::max(1.0, products)));
        const size_t panels = static_cast<size_t>(s.lhs_panel + s.rhs_panel + s.out_panel) * sizeof(T);
        const size_t bytes = panels + static_cast<size_t>(s.lists) * sizeof(int64_t) + 64;
        const char* why = for_tasks(executor, ceil_div(tasks, grain), bytes, [&](int64_t chunk, void* memory) {
            T* local = static_cast<T*>(memory);
            for (int64_t task = chunk * grain; task < std::min(tasks, (chunk + 1) * grain); ++task)
                if (s.reduce)
                    add_part(task, local);
                else
                    make_block(task, local);
        });
        if (why != nullptr) return why;
        if (s.reduce) for_chunks(executor, images, [&](int64_t image) { finish_sums(image); });
        return nullptr;
    }

private:
    // A block: its groups, image and first channel, its outputs and taps.
    struct Block {
        int64_t group, groups, image, c;
        Span outputs[kMaxDims], taps[kMaxDims];
    };

    Block block_of(int64_t image) const {
        Block b;
        b.group = image % s.group_blocks * s.group_block;
        b.groups = std::min(s.group_block, p.groups - b.group);
        b.image = image / s.group_blocks;
        b.c = 0;
        for (int i = 0; i < p.dims; ++i) {
            b.outputs[i] = {0, p.axes[i].out};
            b.taps[i] = {0, p.axes[i].kernel};
        }
        return b;
    }

    // Cuts block `index` out of `whole`, the outputs or taps of all axes.
    int64_t take_box(int64_t index, Span* whole) const {
        for (int i = column_; i >= 0; --i) {
            const int64_t lo = index % s.counts[i] * s.box[i];
            whole[i] = {lo, std::min(whole[i].hi, lo + s.box[i])};
            index /= s.counts[i];
        }
        return index;
    }

    // rhs by feature, channel and tap, the groups side by side.
    void pack_weights() const {
        const Block all = block_of(0);
        const int64_t last = p.axes[column_].kernel;
        T* to = weights_;
        for (int64_t index = 0; s.weights > 0 && index < p.features * p.channels; ++index) {
            const T* source =
                static_cast<const T*>(rhs_) + p.rhs.offset + index / p.channels * p.rhs.outer[1] + index % p.channels * p.rhs.outer[2];
            int64_t at[kMaxDims] = {};
            do {
                const T* from = source;
                for (int i = 0; i < column_; ++i) from += at[i] * p.rhs.spatial[i];
                for (int64_t g = 0; g < p.groups; g += s.lanes) {
                    const int64_t lanes = std::min<int64_t>(s.lanes, p.groups - g);
                    kernels_.own.gather({lanes, p.rhs.outer[0], last, p.rhs.spatial[column_], s.padded}, from + g * p.rhs.outer[0], to + g);
                }
                to += last * s.padded;
            } while (step(at, all.taps, column_));
        }
    }

    void pack_bias() const {
        for (int64_t o = 0; o < p.features; ++o)
            for (int64_t g = 0; g < s.padded; ++g)
                biases_[o * s.padded + g] = g < p.groups ? bias_[(g * p.features + o) * p.bias_stride] : T(0);
    }

    // Describes a panel of the extents of `box`; returns its elements.
    template <class Byte>
    int64_t lay_panel(const Span* box, T* panel, LaneSide<Byte>* side) const {
        *side = {reinterpret_cast<Byte*>(panel), sizeof(T), 0, {}};
        int64_t size = s.group_block;
        for (int i = column_; i >= 0; --i) {
            side->step[i] = size;
            side->origin -= box[i].lo * size;
            size *= box[i].length();
        }
        return size;
    }

    // The axis from which on a box lies in one line, of `count` elements a step of the columns apart; as its panel always does.
    int line_of(const Span* box, const int64_t* steps, int64_t* count) const {
        int axis = column_;
        *count = box[axis].length();
        while (axis > 0 && (box[axis - 1].length() == 1 || steps[axis - 1] == *count * steps[column_])) *count *= box[--axis].length();
        return axis;
    }

    // Copies a box of an operand into its panel.
    void gather_box(const void* memory, int64_t source, int64_t lane_step, int64_t groups, const int64_t* steps, const Span* box,
                    T* panel) const {
        LaneSide<char> side;
        if (lay_panel(box, panel, &side) == 0) return;
        int64_t at[kMaxDims], count;
        const int line = line_of(box, steps, &count);
        for (int i = 0; i < p.dims; ++i) at[i] = box[i].lo;
        do {
            int64_t from = source, to = side.origin;
            for (int i = 0; i < p.dims; ++i) {
                from += at[i] * steps[i];
                to += at[i] * side.step[i];
            }
            rows_.gather({groups, lane_step, count, steps[column_], s.group_block}, memory, from, panel + to);
        } while (step(at, box, line));
    }

    // Every channel of an operand of a block: in place, or copied into `panel`. memory[start] is the block's group, image or
    // feature, and first channel; `item` its bytes, in place.
    LaneSide<const char> bring(LaneSource from, const void* memory, int64_t item, int64_t start, const Operand& operand, int64_t groups,
                               const Span* box, T* panel, int64_t* channel_step) const {
        LaneSide<const char> side{static_cast<const char*>(memory), item, start + operand.offset, {}};
        *channel_step = operand.outer[2];
        if (from == LaneSource::in_place) {
            for (int i = 0; i < p.dims; ++i) side.step[i] = operand.spatial[i];
            return side;
        }
        *channel_step = lay_panel(box, panel, &side);
        for (int64_t c = 0; c < s.channels(); ++c)
            gather_box(memory, start + operand.offset + c * operand.outer[2], operand.outer[0], groups, operand.spatial, box,
                       panel + c * *channel_step);
        return side;
    }

    void bring_lhs(const Block& b, T* panel, LaneSweep<T>* sweep) const {
        Span box[kMaxDims];
        for (int i = 0; i < p.dims; ++i) box[i] = s.input(i, b.outputs[i], b.taps[i]);
        const int64_t start = b.group * p.lhs.outer[0] + b.image * p.lhs.outer[1] + b.c * p.lhs.outer[2];
        sweep->lhs = bring(s.lhs, lhs_, dtype_size(p.dtype), start, p.lhs, b.groups, box, panel, &sweep->lhs_channel);
    }

    void bring_rhs(const Block& b, int64_t feature, T* panel, LaneSweep<T>* sweep) const {
        if (s.rhs != LaneSource::packed) {
            const int64_t start = b.group * p.rhs.outer[0] + feature * p.rhs.outer[1] + b.c * p.rhs.outer[2];
            sweep->rhs =
                bring(s.rhs, rhs_, s.reduce ? dtype_size(p.dtype) : sizeof(T), start, p.rhs, b.groups, b.taps, panel, &sweep->rhs_channel);
            return;
        }
        sweep->rhs = {reinterpret_cast<const char*>(weights_ + b.group), sizeof(T), 0, {}};
        int64_t size = s.padded;
        for (int i = column_; i >= 0; --i) {
            sweep->rhs.step[i] = size;
            size *= p.axes[i].kernel;
        }
        sweep->rhs.origin += feature * p.channels * size;
        sweep->rhs_channel = size;
    }

    LaneSweep<T> sweep_of(const Block& b, T* local) const {
        LaneSweep<T> sweep{};
        sweep.tiles = &tiles_;
        const bool whole = (s.lhs != LaneSource::in_place) && (s.rhs != LaneSource::in_place) && (s.reduce || !s.out_in_place);
        sweep.lanes = whole ? ceil_div(b.groups, s.lanes) * s.lanes : b.groups;  // panels have all of their lanes
        sweep.channels = s.channels();
        sweep.most_columns = s.streamed ? kStreamedColumns : LaneTiles<T>::kMaxColumns;
        sweep.few_outputs = s.reduce;
        sweep.accumulate = s.reduce;
        sweep.once = s.halves == LaneHalves::images;
        sweep.lists = reinterpret_cast<int64_t*>(reinterpret_cast<char*>(local) +
                                                 ceil_div((s.lhs_panel + s.rhs_panel + s.out_panel) * int64_t{sizeof(T)}, 64) * 64);
        return sweep;
    }

    // One block of outputs, phase by phase.
    void make_block(int64_t task, T* local) const {
        Block b = block_of(task / s.blocks);
        take_box(task % s.blocks, b.outputs);
        LaneSweep<T> sweep = sweep_of(b, local);
        bring_lhs(b, local, &sweep);
        T* panel = local + s.lhs_panel + s.rhs_panel;
        for (int64_t o = 0; o < p.features; ++o) {
            bring_rhs(b, o, local + s.lhs_panel, &sweep);
            LaneSide<char> out{static_cast<char*>(out_), dtype_size(p.dtype), p.out.offset, {}};
            out.origin += b.group * p.out.outer[0] + b.image * p.out.outer[1] + o * p.out.outer[2];
            for (int i = 0; i < p.dims; ++i) out.step[i] = p.out.spatial[i];
            LaneSide<char> made = out;
            if (!s.out_in_place) lay_panel(b.outputs, panel, &made);
            for (const Phase& phase : phases_) run_phase(phase, b, sweep, made);
            finish_box(b, o, made, out);
        }
    }

    void run_phase(const Phase& phase, const Block& b, LaneSweep<T> sweep, const LaneSide<char>& made) const {
        sweep.problem = &phase.problem;
        sweep.out = made;
        for (int i = 0; i < p.dims; ++i) {
            const int64_t first = phase.first[i], step = phase.step[i];
            sweep.outputs[i] = {std::max<int64_t>(0, ceil_div(b.outputs[i].lo - first, step)),
                                std::min(phase.problem.axes[i].out, ceil_div(b.outputs[i].hi - first, step))};
            sweep.taps[i] = {0, phase.problem.axes[i].kernel};
            sweep.out.origin += first * made.step[i];
            sweep.out.step[i] *= step;
            sweep.rhs.origin += phase.tap_first[i] * sweep.rhs.step[i];
            sweep.rhs.step[i] *= phase.tap_step[i];
        }
        sweep.run();
    }

    // Bias and activation, and the way home for what a panel holds.
    void finish_box(const Block& b, int64_t o, const LaneSide<char>& made, const LaneSide<char>& out) const {
        const bool finish = bias_ != nullptr || p.activation != Activation::none;
        if (s.out_in_place && !finish) return;
        const T* bias = bias_ == nullptr ? nullptr : biases_ + o * s.padded + b.group;
        int64_t at[kMaxDims], count = b.outputs[column_].length();
        const int line = s.out_in_place ? column_ : line_of(b.outputs, out.step, &count);
        for (int i = 0; i < p.dims; ++i) at[i] = b.outputs[i].lo;
        do {
            int64_t from = made.origin, to = out.origin;
            for (int i = 0; i < p.dims; ++i) {
                from += at[i] * made.step[i];
                to += at[i] * out.step[i];
            }
            for (int64_t x = 0; finish && x < count; ++x)
                finish_row<T>(reinterpret_cast<T*>(made.at(from + x * made.step[column_])), b.groups, 1, bias, 1, p.activation);
            if (s.out_in_place) continue;
            rows_.scatter({b.groups, p.out.outer[0], count, out.step[column_], s.group_block}, reinterpret_cast<const T*>(made.at(from)),
                          out_, to);
        } while (step(at, b.outputs, line));
    }

    // Every output, over one part of the taps.
    void add_part(int64_t task, T* local) const {
        Block b = block_of(task / s.parts);
        LaneSweep<T> sweep = sweep_of(b, local);
        const int64_t part = task % s.parts, per_feature = s.sums / p.features;
        T* sums = sums_ + task * s.sums;
        std::memset(sums, 0, static_cast<size_t>(s.sums) * sizeof(T));
        sweep.problem = &p;
        for (int i = 0; i < p.dims; ++i) sweep.outputs[i] = b.outputs[i];
        for (int64_t index = s.blocks * part / s.parts; index < s.blocks * (part + 1) / s.parts; ++index) {
            for (int i = 0; i < p.dims; ++i) b.taps[i] = {0, p.axes[i].kernel};
            b.c = take_box(index, b.taps);
            for (int i = 0; i < p.dims; ++i) sweep.taps[i] = b.taps[i];
            bring_lhs(b, local, &sweep);
            for (int64_t o = 0; o < p.features; ++o) {
                bring_rhs(b, o, local + s.lhs_panel, &sweep);
                sweep.out = sums_side(sums + o * per_feature);
                sweep.run();
            }
        }
    }

    LaneSide<char> sums_side(T* sums) const {
        LaneSide<char> side{reinterpret_cast<char*>(sums), sizeof(T), 0, {}};
        int64_t size = s.group_block;
        for (int i = column_; i >= 0; --i) {
            side.step[i] = size;
            size *= p.axes[i].out;
        }
        return side;
    }

    // Adds the parts in order and writes the outputs of one image and group block.
    void finish_sums(int64_t image) const {
        const Block b = block_of(image);
        T* sums = sums_ + image * s.parts * s.sums;
        for (int64_t part = 1; part < s.parts; ++part)
            for (int64_t i = 0; i < s.sums; ++i) sums[i] += sums[part * s.sums + i];
        for (int64_t o = 0; o < p.features; ++o) {
            const LaneSide<char> side = sums_side(sums + o * (s.sums / p.features));
            const int64_t to = p.out.offset + b.group * p.out.outer[0] + b.image * p.out.outer[1] + o * p.out.outer[2];
            const T* bias = bias_ == nullptr ? nullptr : biases_ + o * s.padded + b.group;
            int64_t at[kMaxDims] = {};
            do {
                T* row = reinterpret_cast<T*>(side.data);
                int64_t place = to;
                for (int i = 0; i < column_; ++i) {
                    row += at[i] * side.step[i];
                    place += at[i] * p.out.spatial[i];
                }
                const int64_t count = p.axes[column_].out;
                for (int64_t x = 0; x < count; ++x) finish_row<T>(row + x * s.group_block, b.groups, 1, bias, 1, p.activation);
                rows_.scatter({b.groups, p.out.outer[0], count, p.out.spatial[column_], s.group_block}, row, out_, place);
            } while (step(at, b.outputs, column_));
        }
    }

    const DepthwisePlan& s;
    const Problem& p;
    const LaneKernels<T>& kernels_;
    const LaneTiles<T> tiles_;
    const LaneRows<T> rows_;
    const void* lhs_;
    const void* rhs_;
    const T* bias_;
    void* out_;
    const int column_;
    const std::vector<Phase> phases_;
    T* weights_ = nullptr;
    T* biases_ = nullptr;
    T* sums_ = nullptr;
};

template <class T>
const char* run_depthwise_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    DepthwisePlan plan;
    if (const char* why = plan_depthwise(problem, lane_kernels<T>(current_isa()).lanes, &plan)) return why;
    if (plan.planes) return run_planes<T>(plan.p, buffers, executor);
    return Depthwise<T>(plan, buffers).run(executor);
}

// Half types: weights are widened whole, unless they are an image, and the rest in panels.
const char* run_halves(const Problem& problem, const Buffers& buffers, Executor& executor) {
    DepthwisePlan plan;
    if (const char* why = plan_depthwise(problem, lane_kernels<float>(current_isa()).lanes, &plan)) return why;
    if (plan.reduce) return Depthwise<float>(plan, buffers).run(executor);
    Problem real;
    Buffers reals;
    if (const char* why = widen_weights(problem, buffers, executor, &real, &reals)) return why;
    if (plan.planes && !rhs_is_finite(real, static_cast<const float*>(reals.rhs.data))) return run_general(problem, buffers, executor);
    return run_depthwise_as<float>(real, reals, executor);
}

}  // namespace

const char* run_depthwise(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (exchanges(problem)) return run_depthwise(exchange(problem), exchange(buffers), executor);
    if (depthwise_takes_halves(problem)) return run_halves(problem, buffers, executor);
    if (problem.dtype != problem.out_dtype) return "depthwise: the output type must be the operands'";
    if (problem.dtype == Dtype::f32) return run_depthwise_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_depthwise_as<double>(problem, buffers, executor);
    return "depthwise: f32 and f64 only";
}

}  // namespace fastconv
