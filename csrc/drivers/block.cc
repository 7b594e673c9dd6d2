// Dense convolution in blocks (drivers/block.h): chooses the form, and runs dilated inputs phase by phase.
#include "drivers/block.h"

#include <algorithm>

#include "base/scratch.h"
#include "drivers/block_merged.h"
#include "drivers/drivers.h"
#include "drivers/finite.h"
#include "drivers/geometry.h"
#include "drivers/phases.h"

namespace fastconv {
namespace {

constexpr double kMaxPhases = 64;  // each is a problem of its own
constexpr double kMaxTaps = 4096;  // each has pointers of its own
constexpr int64_t kMostMovedBytes = 64 << 20;
constexpr double kApart = 1.3;   // what phases one by one cost in truth: each reads the input and touches the outputs' lines anew
constexpr double kFilled = 3.0;  // cycles to write an output that no tap reaches, its neighbours another phase's

double outputs_of(const Problem& p) {
    double outputs = static_cast<double>(p.groups * p.batch * p.features);
    for (int i = 0; i < p.dims; ++i) outputs *= static_cast<double>(p.axes[i].out);
    return outputs;
}

// Whether looking at the weights costs less than looking at the outputs that padding takes part in.
bool has_fewer_weights(const Problem& p) {
    double weights = static_cast<double>(p.groups * p.features * p.channels);
    for (int i = 0; i < p.dims; ++i) weights *= static_cast<double>(p.axes[i].kernel);
    return weights < outputs_of(p);
}

bool has_no_sums(const Problem& p) {
    bool none = p.channels == 0;
    for (int i = 0; i < p.dims; ++i) none = none || p.axes[i].kernel == 0 || p.axes[i].size == 0;
    return none;
}

// Outputs that no product reaches: bias and activation of zero.
template <class T>
void store_no_sums(const Problem& p, const BlockCall<T>& call, Executor& executor) {
    int64_t rows = 1;
    const int lane = p.dims - 1;
    for (int i = 0; i < lane; ++i) rows *= p.axes[i].out;
    const int64_t count = p.dims > 0 ? p.axes[lane].out : 1, step = p.dims > 0 ? p.out.spatial[lane] : 0;
    std::vector<T> values(static_cast<size_t>(p.groups * p.features), T(0));
    for (size_t f = 0; f < values.size(); ++f)
        finish_row<T>(&values[f], 1, 1, call.bias == nullptr ? nullptr : call.bias + static_cast<int64_t>(f) * p.bias_stride, 0,
                      p.activation);
    for_chunks(executor, p.groups * p.batch * rows, [&](int64_t index) {
        const int64_t image = index / rows, group = image / p.batch;
        T* to = call.out + p.out.offset + group * p.out.outer[0] + image % p.batch * p.out.outer[1];
        int64_t rest = index % rows;
        for (int i = lane - 1; i >= 0; --i) {
            to += rest % p.axes[i].out * p.out.spatial[i];
            rest /= p.axes[i].out;
        }
        const T* value = values.data() + group * p.features;
        if (p.out.outer[2] == 1) {
            for (int64_t j = 0; j < count; ++j) std::copy(value, value + p.features, to + j * step);
        } else {
            for (int64_t f = 0; f < p.features; ++f)
                for (int64_t j = 0; j < count; ++j) to[f * p.out.outer[2] + j * step] = value[f];
        }
    });
}

// The phases of a problem in one form.
template <class T>
struct Forms {
    void add(std::unique_ptr<BlockForm<T>> form) {
        cycles += form->cycles();
        shared = std::max(shared, form->shared_size());
        forms.push_back(std::move(form));
    }
    std::vector<std::unique_ptr<BlockForm<T>>> forms;
    double cycles = 0;
    int64_t shared = 0;
};

template <class T>
const char* run_merged(MergedPhases<T>& merged, const Buffers& buffers, Executor& executor, bool* finite) {
    T* shared = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(merged.shared_size()) * sizeof(T)));
    if (shared == nullptr) return "out of memory";
    return merged.run(static_cast<const T*>(buffers.lhs.data), shared, executor, finite);
}

template <class T>
const char* run_block_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const BlockSet<T> set(block_kernels<T>(current_isa()));
    const bool weights_first = has_fewer_weights(problem);
    if (weights_first && !rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data))) return run_general(problem, buffers, executor);
    std::atomic<bool> suspicious{false};
    const Problem sorted = sort_axes(problem);
    BlockCall<T> call{sorted, static_cast<const T*>(buffers.rhs.data),
                      problem.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr, static_cast<T*>(buffers.out.data),
                      weights_first ? nullptr : &suspicious};

    // Phases of a dilated input are problems of their own. For vectors of features, channels that do not lie side by side are moved
    // there first; so are outputs where neighbours belong to different phases, and back at the end.
    const std::vector<Problem> parts = split_phases(sorted);
    const bool move = sorted.lhs.outer[2] != 1 && sorted.channels > 1;
    const bool gather = parts.size() > 1 && sorted.out.outer[2] != 1 && sorted.features > 1 && sorted.out.spatial[sorted.dims - 1] == 1;
    auto rounded = [&](int64_t size) { return ceil_div(size, set.lanes) * set.lanes; };
    const int64_t moved = move ? rounded(channels_last_size(sorted)) : 0, gathered = gather ? rounded(features_last_size(sorted)) : 0;
    const Problem last = move ? with_channels_last(sorted) : sorted;
    const std::vector<Problem> last_parts = split_phases(gather ? with_features_last(last) : last);
    Forms<T> by_features, by_pixels;
    double filled = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (has_no_sums(parts[i])) {
            filled += kFilled * outputs_of(parts[i]);
            continue;
        }
        call.p = parts[i];
        by_pixels.add(block_by_pixels(call, set));
        call.p = last_parts[i];
        by_features.add(block_by_features(call, set));
    }
    by_features.cycles += kTransposed * static_cast<double>(moved + gathered);
    if (parts.size() > 1) {
        const MergedProblem whole(sorted);
        call.p = sorted;
        if (whole.possible) {
            MergedPhases<T> merged(whole, call, set);
            if (merged.cycles() < kApart * std::min(by_pixels.cycles, by_features.cycles) + filled) {
                bool finite = false;
                if (const char* why = run_merged(merged, buffers, executor, &finite)) return why;
                if (finite) return nullptr;
            }
        }
    }
    const bool in_pixels = by_pixels.cycles < by_features.cycles || (moved + gathered) * static_cast<int64_t>(sizeof(T)) > kMostMovedBytes;
    const Forms<T>& chosen = in_pixels ? by_pixels : by_features;
    const int64_t lhs_copy = in_pixels ? 0 : moved, out_copy = in_pixels ? 0 : gathered;
    T* shared = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(lhs_copy + out_copy + chosen.shared) * sizeof(T)));
    if (shared == nullptr) return "out of memory";
    const T* lhs = static_cast<const T*>(buffers.lhs.data);
    if (lhs_copy > 0) {
        put_channels_last(sorted, lhs, shared, executor);
        lhs = shared;
    }
    T* out = call.out;
    if (out_copy > 0) call.out = shared + lhs_copy;
    for (const Problem& part : in_pixels ? parts : last_parts)
        if (has_no_sums(part)) store_no_sums<T>(part, call, executor);
    for (const auto& form : chosen.forms)
        if (const char* why = form->run(lhs, call.out, shared + lhs_copy + out_copy, executor)) return why;
    if (out_copy > 0) take_features_last<T>(sorted, call.out, out, executor);
    if (suspicious.load() && !rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data)))
        return run_general(problem, buffers, executor);
    return nullptr;
}

}  // namespace

const char* run_block(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "block: the output type must be the operands'";
    double phases = 1, taps = 1;
    for (int i = 0; i < problem.dims; ++i) {
        phases *= static_cast<double>(std::min(problem.axes[i].lhs_dilation, problem.axes[i].out));
        taps *= static_cast<double>(problem.axes[i].kernel);
    }
    if (phases > kMaxPhases) return "block: too many phases";
    if (taps > kMaxTaps) return "block: too many taps";
    if (problem.dtype == Dtype::f32) return run_block_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_block_as<double>(problem, buffers, executor);
    return "block: f32 and f64 only";
}

}  // namespace fastconv
