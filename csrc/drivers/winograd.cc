// Wide 3x3 convolutions of stride 1 by Winograd's F(2x2,3x3): 2.25 times fewer products (Lavin & Gray 2016).
//
// A task takes some rows of tiles: it copies their input channels last, a vector of channels at a time, transforms them, multiplies by
// transformed weights plane by plane for two vectors of features at a time, transforms back, and writes the outputs where they
// belong. Every output depends on its own 3x3 inputs alone, also in floating point. What was infinite or NaN may have come from a
// difference of two infinities or from padding times infinity, so such a call is repeated by the direct algorithm.
#include <algorithm>
#include <atomic>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "drivers/winograd_plan.h"
#include "drivers/winograd_weights.h"

namespace fastconv {
namespace {

constexpr int kMostLanes = 16;
constexpr int kMostProductRows = 16;

// The part of the output that a task computes.
struct Task {
    int64_t group, pair, pairs;  // of vectors of features
    int64_t tile, width;         // along x
    int64_t row, rows;           // of tiles, of all planes
    int64_t tiles() const { return rows * width; }
};

// Rows of input of a task, and where each row of tiles begins among them.
struct Slots {
    int64_t count = 0;
    int64_t plane[4 * kWinogradRows], y[4 * kWinogradRows];
    int64_t first[kWinogradRows];
};

template <class T>
class Winograd {
public:
    Winograd(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const Buffers& buffers)
        : w_(plan), p_(plan.p), kernels_(kernels), weights_(plan, kernels, static_cast<const T*>(buffers.rhs.data)),
          lhs_(static_cast<const T*>(buffers.lhs.data)), bias_(p_.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr),
          out_(static_cast<T*>(buffers.out.data)) {
        for (int i = 0; i < kernels.count; ++i) {
            products_[kernels.products[i].rows][kernels.products[i].vectors] = kernels.products[i].run;
            most_rows_ = std::max<int64_t>(most_rows_, kernels.products[i].rows);
        }
    }

    const char* run(Executor& executor) {
        int64_t local = w_.stage() + w_.inputs() + w_.products() + w_.outputs();
        if (w_.share_weights()) {
            shared_ = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(p_.groups * w_.weights()) * sizeof(T)));
            if (shared_ == nullptr) return "out of memory";
            if (const char* why = weights_.all(shared_, executor)) return why;
        } else {
            local += w_.pair_weights() + weights_.scratch_size();
        }
        return for_tasks(executor, w_.tasks(), static_cast<size_t>(local) * sizeof(T), [&](int64_t task, void* memory) {
            if (!suspicious()) run_task(task_of(task), static_cast<T*>(memory));  // else all will be done again
        });
    }

    // True when a sum came out infinite or NaN.
    bool suspicious() const { return suspicious_.load(std::memory_order_relaxed); }

private:
    // Tasks that share their weights are neighbours: a thread then meets few of the weights.
    Task task_of(int64_t index) const {
        Task t;
        t.row = index % w_.row_tasks * w_.rows;
        index /= w_.row_tasks;
        t.tile = index % w_.segments * w_.width;
        index /= w_.segments;
        t.pair = index % w_.splits * w_.pairs;
        t.group = index / w_.splits;
        t.rows = std::min(w_.rows, w_.tile_rows() - t.row);
        t.width = std::min(w_.width, w_.tiles_x - t.tile);
        t.pairs = std::min(w_.pairs, w_.all_pairs() - t.pair);
        return t;
    }

    void run_task(const Task& t, T* stage) const {
        T* inputs = stage + w_.stage();
        T* products = inputs + w_.inputs();
        T* outputs = products + w_.products();
        transform_inputs(t, stage, inputs);
        for (int64_t pair = t.pair; pair < t.pair + t.pairs; ++pair) {
            const int64_t vector = 2 * pair, vectors = std::min<int64_t>(2, w_.vectors - vector), width = vectors * w_.lanes;
            const T* weights = shared_ + weights_.at(t.group, vector);
            if (!w_.share_weights()) {
                weights_.pair(t.group, vector, outputs + w_.outputs(), outputs + w_.outputs() + w_.pair_weights());
                weights = outputs + w_.outputs();
            }
            multiply(t, inputs, weights, vectors, products);
            for (int64_t v = 0; v < vectors; ++v)
                write(t, vector + v, products + v * w_.lanes, w_.product_plane(t.tiles(), width), width, outputs);
        }
    }

    Slots slots_of(const Task& t) const {
        Slots slots;
        for (int64_t i = 0; i < t.rows; ++i) {
            const int64_t plane = (t.row + i) / w_.tiles_y, y = (t.row + i) % w_.tiles_y * 2 - w_.y().lo;
            const int64_t shared = i > 0 && slots.plane[slots.count - 1] == plane ? 2 : 0;  // with the row of tiles before
            slots.first[i] = slots.count - shared;
            for (int64_t q = shared; q < 4; ++q) {
                slots.plane[slots.count] = plane;
                slots.y[slots.count++] = y + q;
            }
        }
        return slots;
    }

    // Digits of a plane's number: outputs of the outer axes, and the batch.
    int64_t split_plane(int64_t plane, int64_t* outer) const {
        for (int i = w_.outer - 1; i >= 0; --i) {
            outer[i] = plane % p_.axes[i].out;
            plane /= p_.axes[i].out;
        }
        return plane;
    }

    // Where a slot's row of channel 0 starts for an outer tap; nullptr when it is padding.
    const T* row_of(const Task& t, int64_t plane, int64_t y, const int64_t* tap) const {
        if (y < 0 || y >= w_.y().size || w_.x().size == 0) return nullptr;
        int64_t outer[kMaxDims];
        int64_t at = p_.lhs.offset + t.group * p_.lhs.outer[0] + split_plane(plane, outer) * p_.lhs.outer[1];
        for (int i = 0; i < w_.outer; ++i) {
            const Axis& a = p_.axes[i];
            const int64_t input = outer[i] * a.stride + tap[i] * a.rhs_dilation - a.lo;
            if (input < 0 || input >= a.size) return nullptr;
            at += input * p_.lhs.spatial[i];
        }
        return lhs_ + at + y * p_.lhs.spatial[p_.dims - 2];
    }

    void transform_inputs(const Task& t, T* stage, T* inputs) const {
        const Slots slots = slots_of(t);
        const int64_t lanes = w_.lanes, columns = 2 * t.width + 2, plane = w_.input_plane(t.tiles());
        const int64_t x = 2 * t.tile - w_.x().lo, step = p_.lhs.spatial[p_.dims - 1];
        const int64_t begin = std::min(std::max<int64_t>(-x, 0), columns), end = std::max(std::min(w_.x().size - x, columns), begin);
        int64_t tap[kMaxDims] = {};
        for (int64_t k = 0; k < w_.taps; ++k) {
            const T* rows[4 * kWinogradRows];
            for (int64_t s = 0; s < slots.count; ++s) rows[s] = row_of(t, slots.plane[s], slots.y[s], tap);
            for (int64_t block = 0; block < w_.blocks; ++block) {
                const int64_t channel = block * lanes, count = std::min(lanes, p_.channels - channel);
                for (int64_t s = 0; s < slots.count; ++s) {
                    T* to = stage + s * columns * lanes;
                    const int64_t first = rows[s] == nullptr ? columns : begin, last = rows[s] == nullptr ? columns : end;
                    std::fill(to, to + first * lanes, T(0));
                    if (first < last)
                        kernels_.gather(to + first * lanes, lanes, last - first, rows[s] + (x + first) * step + channel * p_.lhs.outer[2],
                                        step, p_.lhs.outer[2], count);
                    std::fill(to + last * lanes, to + columns * lanes, T(0));
                }
                T* to = inputs + (k * w_.blocks + block) * t.tiles() * lanes;
                for (int64_t i = 0; i < t.rows; ++i)
                    kernels_.input(to + i * t.width * lanes, plane, stage + slots.first[i] * columns * lanes, columns * lanes, t.width);
            }
            for (int i = w_.outer - 1; i >= 0 && ++tap[i] == p_.axes[i].kernel; --i) tap[i] = 0;
        }
    }

    // The 16 planes of products of one or two vectors of features.
    void multiply(const Task& t, const T* inputs, const T* weights, int64_t vectors, T* products) const {
        const int64_t lanes = w_.lanes, tiles = t.tiles(), depth = p_.channels, width = vectors * lanes;
        const int64_t pieces = ceil_div(tiles, most_rows_), least = tiles / pieces, more = tiles % pieces;
        for (int64_t q = 0; q < kWinogradPlanes; ++q)
            for (int64_t piece = 0, tile = 0; piece < pieces; ++piece) {
                const int64_t rows = least + (piece < more ? 1 : 0);
                const ProductFunction<T> product = products_[rows][vectors];
                for (int64_t k = 0; k < w_.taps; ++k)
                    product(depth, inputs + q * w_.input_plane(tiles) + (k * w_.blocks * tiles + tile) * lanes, tiles * lanes,
                            weights + q * w_.weight_plane(width) + k * depth * width,
                            products + q * w_.product_plane(tiles, width) + tile * width, k > 0);
                tile += rows;
            }
    }

    // Transforms one vector of features back and writes it, with bias and activation.
    void write(const Task& t, int64_t vector, const T* products, int64_t plane, int64_t step, T* outputs) const {
        const int64_t lanes = w_.lanes, feature = vector * lanes, count = std::min(lanes, p_.features - feature);
        T bias[kMostLanes] = {};
        if (bias_ != nullptr)
            for (int64_t j = 0; j < count; ++j) bias[j] = bias_[(t.group * p_.features + feature + j) * p_.bias_stride];
        const bool relu = p_.activation == Activation::relu;
        const int64_t pixels = std::min(2 * t.width, w_.x().out - 2 * t.tile), row = 2 * t.width * lanes;
        const int64_t out_x = p_.out.spatial[p_.dims - 1], out_y = p_.out.spatial[p_.dims - 2];
        for (int64_t i = 0; i < t.rows; ++i) {
            if (!kernels_.output(outputs, row, products + i * t.width * step, plane, step, t.width, bias_ == nullptr ? nullptr : bias,
                                 relu))
                suspicious_.store(true, std::memory_order_relaxed);
            int64_t outer[kMaxDims];
            int64_t at = p_.out.offset + t.group * p_.out.outer[0] + feature * p_.out.outer[2] + 2 * t.tile * out_x;
            at += split_plane((t.row + i) / w_.tiles_y, outer) * p_.out.outer[1];
            for (int k = 0; k < w_.outer; ++k) at += outer[k] * p_.out.spatial[k];
            const int64_t y = (t.row + i) % w_.tiles_y * 2;
            for (int64_t q = 0; q < std::min<int64_t>(2, w_.y().out - y); ++q) {
                T* from = outputs + q * row;
                if (!relu && p_.activation != Activation::none) finish_row<T>(from, pixels * lanes, 1, nullptr, 0, p_.activation);
                kernels_.scatter(out_ + at + (y + q) * out_y, out_x, p_.out.outer[2], pixels, from, count);
            }
        }
    }

    const WinogradPlan& w_;
    const Problem& p_;
    const WinogradKernels<T>& kernels_;
    const WinogradWeights<T> weights_;
    const T* lhs_;
    const T* bias_;
    T* out_;
    T* shared_ = nullptr;  // transformed weights that all tasks share
    ProductFunction<T> products_[kMostProductRows + 1][3] = {};
    int64_t most_rows_ = 0;
    mutable std::atomic<bool> suspicious_{false};
};

template <class T>
const char* run_winograd_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const WinogradKernels<T>& kernels = winograd_kernels<T>(current_isa());
    WinogradPlan plan;
    if (const char* why = plan_winograd(problem, kernels.lanes, sizeof(T), &plan)) return why;
    Winograd<T> winograd(plan, kernels, buffers);
    const char* why = winograd.run(executor);
    return why == nullptr && winograd.suspicious() ? run_direct(problem, buffers, executor) : why;
}

}  // namespace

const char* run_winograd(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "winograd: the output type must be the operands'";
    if (problem.dtype == Dtype::f32) return run_winograd_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_winograd_as<double>(problem, buffers, executor);
    return "winograd: f32 and f64 only";
}

}  // namespace fastconv
