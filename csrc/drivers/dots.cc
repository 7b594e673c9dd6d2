// bfloat16 and int8 by the CPU's dot products of narrow types: a convolution as sums of products of runs (dots_layout.h), tile by tile.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/scratch.h"
#include "drivers/bare.h"
#include "drivers/converted.h"
#include "drivers/dots_layout.h"
#include "drivers/dots_pack.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/exchange.h"
#include "drivers/geometry.h"
#include "drivers/phases.h"
#include "kernels/dots.h"

namespace fastconv {
namespace {

constexpr int64_t kMaxPhases = 64;
constexpr int64_t kRhsRows = int64_t{1} << 20;  // of 16 features that one task packs at a time, at most
constexpr int64_t kPitch = 2 * kDotColumns;     // of a row of sums
constexpr int64_t kSegmentBytes = kDotRows * kPitch * 4;
constexpr int64_t kStreamedPanels = 24;  // of a block, and more than the first cache keeps beside the rest

class Dots {
public:
    Dots(const Problem& problem, const Buffers& buffers, const DotKernels& kernels)
        : p_(problem), b_(buffers), kernels_(kernels), floats_(problem.dtype == Dtype::bf16), operands_(p_, b_, kernels_) {}

    // Returns nullptr, or why it cannot.
    const char* plan() {
        std::vector<Problem> parts;
        for (Problem& part : split_phases(operands_.packed())) {
            (is_bare(part) ? bare_ : parts).push_back(part);
        }
        for (int i = 0; i < p_.dims; ++i) {  // steps that nothing follows are 1
            int64_t kernel = 0, out = 0;
            for (const Problem& part : parts) {
                kernel = std::max(kernel, part.axes[i].kernel);
                out = std::max(out, part.axes[i].out);
            }
            for (Problem& part : parts) {
                if (kernel <= 1) part.axes[i].rhs_dilation = 1;
                if (out <= 1) part.axes[i].stride = 1;
            }
        }
        return parts.empty() ? "dots: no taps" : plan_dots(parts, kernels_.most_rows, &plan_);
    }

    // nullptr or a message: nothing is written then.
    const char* run(Executor& executor) {
        const int64_t operands = operands_.bytes(plan_), bias = p_.has_bias ? p_.groups * p_.features : 0;
        char* memory = static_cast<char*>(scratch(ScratchSlot::shared, static_cast<size_t>(operands + 4 * bias + 1)));
        if (memory == nullptr || !operands_.pack(plan_, memory, executor)) return "out of memory";
        if (floats_ && operands_.unsafe()) return "dots: values that need another algorithm";
        bias_ = memory + operands;
        if (bias > 0) widen_bias(bias_);
        if (bare_.size() > 1) {  // phases lie between each other: everything at once, along memory
            Problem all = p_;
            all.axes[0].kernel = 0;
            if (const char* why = run_general(all, b_, executor)) return why;
            bare_.clear();
        }
        std::atomic<bool> exhausted{false};
        for_chunks(executor, plan_.tasks, [&](int64_t task) {
            if (!run_task(task)) exhausted.store(true);
        });
        for (const Problem& part : bare_) {
            Problem bare = part;
            bare.rhs = p_.rhs;  // of which nothing is read
            if (const char* why = run_general(bare, b_, executor)) return why;
        }
        return exhausted.load() ? "out of memory" : nullptr;
    }

private:
    void widen_bias(char* to) const {
        const int64_t size = dtype_size(p_.dtype);
        const char* from = static_cast<const char*>(b_.bias.data);
        for (int64_t i = 0; i < p_.groups * p_.features; ++i, from += p_.bias_stride * size, to += 4) {
            uint32_t wide = 0;
            if (floats_) {
                uint16_t bits;
                std::memcpy(&bits, from, sizeof(bits));
                wide = static_cast<uint32_t>(bits) << 16;
            } else {
                wide = p_.dtype == Dtype::u8 ? static_cast<uint8_t>(*from) : static_cast<uint32_t>(static_cast<int8_t>(*from));
            }
            std::memcpy(to, &wide, sizeof(wide));
        }
    }

    struct Segment {
        const char* from;
        int64_t out, rows, fast;
    };

    Segment segment_of(const DotPart& part, int64_t group, int64_t index) const {
        const Problem& p = part.problem;
        const DotCopy& c = plan_.copy;
        const int64_t fast = index % part.fast;
        index /= part.fast;
        // Lines of the same images are the taps of a weight gradient: they share what they read.
        const bool images = part.row_axis == kRowsAreImages;
        int64_t row = (images ? index / part.lines : index % part.segments) * part.rows;
        int64_t line = images ? index % part.lines : index / part.segments;
        const int64_t cls = part.classes > 1 ? fast : 0;
        const int64_t count = part.row_axis == kRowsAreImages ? p.batch : ceil_div(p.axes[part.row_axis].out - cls, part.classes);
        if (row + part.rows > count) row = std::max<int64_t>(0, count - part.rows);  // over finished rows rather than past the end
        int64_t at[1 + kMaxDims] = {};                                               // image and output positions
        for (int i = p.dims - 1; i >= -1; --i) {
            const int64_t extent = i < 0 ? p.batch : p.axes[i].out;
            if (i == part.row_axis) {
                at[1 + i] = cls + row * part.classes;
            } else if (i >= 0 && i == part.fast_axis) {
                at[1 + i] = fast;
            } else {
                at[1 + i] = line % extent;
                line /= extent;
            }
        }
        int64_t from = group * c.group + at[0] * c.image;
        int64_t out = p.out.offset + group * p.out.outer[0] + at[0] * p.out.outer[1];
        for (int i = 0; i < p.dims; ++i) {
            const int64_t input = at[1 + i] * p.axes[i].stride - p.axes[i].lo - c.first[i];
            from += i == c.lane ? input % c.dilation * c.sub_row + input / c.dilation * c.place : input * c.axis[i];
            out += at[1 + i] * p.out.spatial[i];
        }
        return {operands_.lhs() + from * c.element, out, std::min(part.rows, count), fast};
    }

    // False when memory is exhausted.
    bool run_task(int64_t task) const {
        size_t number = plan_.parts.size() - 1;
        while (plan_.parts[number].first_task > task) --number;
        const DotPart& part = plan_.parts[number];
        int64_t index = task - part.first_task;
        const int64_t column_task = index % part.column_tasks;
        index /= part.column_tasks;
        const int64_t first = index % part.row_tasks * part.segments_each, group = index / part.row_tasks;
        const int64_t last = std::min(part.lines * part.segments * part.fast, first + part.segments_each);
        const int64_t block_end = std::min(plan_.blocks, (column_task + 1) * part.blocks_each);
        const int64_t passes = part.passes();
        const int64_t sums_bytes = (passes > 1 ? last - first : kDotSegments) * kSegmentBytes;
        char* sums = static_cast<char*>(
            scratch(ScratchSlot::local, static_cast<size_t>(sums_bytes + (last - first) * static_cast<int64_t>(sizeof(Segment)))));
        if (sums == nullptr) return false;
        Segment* found = reinterpret_cast<Segment*>(sums + sums_bytes);
        for (int64_t s = first; s < last; ++s) found[s - first] = segment_of(part, group, s);
        alignas(64) char held[kDotRows * kDotRows * kPitch * 4];
        DotTile tile;
        tile.a_step = part.row_step * plan_.copy.element;
        tile.steps = part.steps;
        kernels_.begin(static_cast<int>(part.rows));
        for (int64_t block = column_task * part.blocks_each; block < block_end; block += 2) {
            const int blocks = static_cast<int>(std::min<int64_t>(2, block_end - block));
            Way way{part, number, group, block, held, 0};
            for (int64_t pass = 0; pass < passes; ++pass) {
                const int64_t offset = pass * part.offsets_each;
                tile.offset = part.offsets.data() + offset;
                tile.taps = std::min(part.offsets_each, static_cast<int64_t>(part.offsets.size()) - offset);
                tile.accumulate = pass > 0;
                for (int b = 0; b < blocks; ++b) tile.b[b] = operands_.panels(part, group, block + b) + offset * part.steps * kDotPanel;
                const int64_t most = blocks == 1 && tile.taps * tile.steps >= kStreamedPanels ? kernels_.most_segments : 2;
                for (int64_t s = first; s < last; s += most) {
                    const int segments = static_cast<int>(std::min(most, last - s));
                    const Segment* some = found + (s - first);
                    for (int i = 0; i < segments; ++i) tile.a[i] = some[i].from;
                    tile.c = passes > 1 ? sums + (s - first) * kSegmentBytes : sums;
                    kernels_.run(tile, segments, blocks, static_cast<int>(part.rows));
                    if (pass + 1 < passes) continue;
                    for (int i = 0; i < segments; ++i) finish(way, some[i], static_cast<char*>(tile.c) + i * kSegmentBytes);
                }
            }
        }
        kernels_.end();
        return true;
    }

    // Where a task's sums of a pair of blocks go, and the outputs held back until those beside them are there.
    struct Way {
        const DotPart& part;
        size_t number;
        int64_t group, block;
        char* held;
        int64_t first;  // of the outputs held back
    };

    // Bias, activation and the way out of one segment's sums [rows][kPitch].
    void finish(Way& way, const Segment& segment, char* sums) const {
        const int64_t feature = way.block * kDotColumns, count = std::min(kPitch, p_.features - feature);
        const char* bias = p_.has_bias ? bias_ + 4 * (way.group * p_.features + feature) : nullptr;
        const int64_t values = segment.rows * kPitch;
        if (floats_) {
            float* from = reinterpret_cast<float*>(sums);
            if (bias != nullptr || p_.activation != Activation::none)
                for (int64_t r = 0; r < segment.rows; ++r)
                    finish_row<float>(from + r * kPitch, count, 1, reinterpret_cast<const float*>(bias), 1, p_.activation);
            if (p_.out_dtype == Dtype::f32) {
                emit(way, segment, count, reinterpret_cast<const uint32_t*>(from));
                return;
            }
            uint16_t narrow[kDotRows * kPitch];
            if (p_.out_dtype == Dtype::bf16)
                dot_copies().narrow(narrow, from, values);
            else
                for (int64_t i = 0; i < values; ++i) narrow[i] = narrow_f16(from[i]);
            emit(way, segment, count, narrow);
            return;
        }
        uint32_t* from = reinterpret_cast<uint32_t*>(sums);
        if (bias != nullptr || kernels_.a_flip != 0) {
            uint32_t add[kPitch] = {};
            for (int64_t j = 0; j < count; ++j) {
                if (bias != nullptr) std::memcpy(&add[j], bias + 4 * j, sizeof(uint32_t));
                if (kernels_.a_flip != 0)
                    add[j] -= 128u * static_cast<uint32_t>(operands_.column_sums(way.number, way.group, way.block)[j]);
            }
            for (int64_t r = 0; r < segment.rows; ++r)
                for (int64_t j = 0; j < count; ++j) from[r * kPitch + j] += add[j];
        }
        const int64_t bytes = dtype_size(p_.out_dtype);
        if (bytes == 4)
            emit(way, segment, count, from);
        else if (bytes == 2)
            emit_cut<uint16_t>(way, segment, count, from);
        else
            emit_cut<uint8_t>(way, segment, count, from);
    }

    template <class T>
    void emit_cut(Way& way, const Segment& segment, int64_t count, const uint32_t* from) const {
        T cut[kDotRows * kPitch];
        for (int64_t i = 0; i < segment.rows * kPitch; ++i) cut[i] = static_cast<T>(from[i]);
        emit(way, segment, count, cut);
    }

    // Writes `count` features of a segment's rows.
    template <class T>
    void emit(Way& way, const Segment& segment, int64_t count, const T* from) const {
        const DotPart& part = way.part;
        const int64_t step = p_.out.outer[2], row = part.out_row;
        T* out = static_cast<T*>(b_.out.data) + way.block * kDotColumns * step;
        if (step == 1) {
            for (int64_t r = 0; r < segment.rows; ++r)
                std::memcpy(out + segment.out + r * row, from + r * kPitch, static_cast<size_t>(count) * sizeof(T));
        } else if (row == 1) {
            dot_copies().transpose(out + segment.out, step, from, kPitch, 1, segment.rows, count, sizeof(T));
        } else if (part.fast_axis >= 0) {  // neighbours lie along the fast axis
            T* held = reinterpret_cast<T*>(way.held);
            if (segment.fast == 0) way.first = segment.out;
            std::memcpy(held + segment.fast * kDotRows * kPitch, from, static_cast<size_t>(segment.rows * kPitch) * sizeof(T));
            if (segment.fast + 1 < part.fast) return;
            for (int64_t r = 0; r < segment.rows; ++r)
                dot_copies().transpose(out + way.first + r * row, step, held + r * kPitch, kDotRows * kPitch, 1, part.fast, count,
                                       sizeof(T));
        } else if (row == part.classes && part.classes <= kDotRows && part.problem.axes[part.row_axis].out % part.classes == 0) {
            T* held = reinterpret_cast<T*>(way.held);  // neighbours are the classes of a row
            if (segment.fast == 0) way.first = segment.out;
            for (int64_t r = 0; r < segment.rows; ++r)
                std::memcpy(held + (r * part.classes + segment.fast) * kPitch, from + r * kPitch, kPitch * sizeof(T));
            if (segment.fast + 1 == part.fast)
                dot_copies().transpose(out + way.first, step, held, kPitch, 1, segment.rows * part.classes, count, sizeof(T));
        } else if (std::abs(row) < std::abs(step)) {  // neighbours share lines of the cache, of which features far apart evict each other
            for (int64_t j = 0; j < count; ++j)
                for (int64_t r = 0; r < segment.rows; ++r) out[segment.out + r * row + j * step] = from[r * kPitch + j];
        } else {
            for (int64_t r = 0; r < segment.rows; ++r)
                for (int64_t j = 0; j < count; ++j) out[segment.out + r * row + j * step] = from[r * kPitch + j];
        }
    }

    const Problem p_;
    const Buffers b_;
    const DotKernels& kernels_;
    const bool floats_;
    DotOperands operands_;
    DotPlan plan_;
    std::vector<Problem> bare_;
    char* bias_ = nullptr;
};

bool types_of(const Problem& p, DotType* type) {
    if (p.dtype == Dtype::bf16) {
        *type = DotType::bf16;
        return p.out_dtype == Dtype::bf16 || p.out_dtype == Dtype::f32 || p.out_dtype == Dtype::f16;
    }
    *type = p.dtype == Dtype::i8 ? DotType::s8 : DotType::u8;
    const bool narrow = p.out_dtype >= Dtype::i8 && dtype_size(p.out_dtype) <= 4;  // sums wrap as the result does
    return (p.dtype == Dtype::i8 || p.dtype == Dtype::u8) && narrow && p.activation == Activation::none;
}

// The problem without any use of the units: on copies where a real type holds its sums.
const char* run_otherwise(const Problem& p, const Buffers& buffers, Executor& executor) {
    Problem real = p;
    real.algorithm = 1;
    const char* why = run_converted(real, buffers, executor, run_direct);
    return why == nullptr ? nullptr : run_general(p, buffers, executor);
}

}  // namespace

const char* run_dots(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (exchanges(problem)) return run_dots(exchange(problem), exchange(buffers), executor);
    DotType type;
    if (!types_of(problem, &type)) return "dots: bfloat16, or int8 and uint8 with integer sums of at most 32 bits";
    double phases = 1, rows = static_cast<double>(problem.channels);
    for (int i = 0; i < problem.dims; ++i) {
        const Axis& a = problem.axes[i];
        phases *= static_cast<double>(std::min(a.lhs_dilation, a.out));
        rows *= static_cast<double>(a.kernel);
    }
    if (is_bare(problem)) return run_general(problem, buffers, executor);
    const DotKernels* kernels = dot_kernels(current_dot_unit(), type);  // a plan may come from another machine
    if (kernels == nullptr || phases > kMaxPhases || rows > kRhsRows) return run_otherwise(problem, buffers, executor);
    Problem p = problem;
    if (p.dims == 0) {
        p.dims = 1;
        p.axes[0] = {1, 1, 1, 1, 0, 1, 1};
        p.lhs.spatial[0] = p.rhs.spatial[0] = p.out.spatial[0] = 0;
    }
    Dots dots(p, buffers, *kernels);
    const char* why = dots.plan();
    if (why == nullptr) why = dots.run(executor);
    return why == nullptr || std::strcmp(why, "out of memory") == 0 ? why : run_otherwise(problem, buffers, executor);
}

}  // namespace fastconv
