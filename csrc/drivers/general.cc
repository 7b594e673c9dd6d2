// Every problem, every dtype: one output row at a time, its products added along the output axis that vectorises best.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/bare.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "kernels/row.h"

namespace fastconv {
namespace {

constexpr int64_t kMostSums = 1 << 16;       // of a row with all its phases
constexpr int64_t kRow = 2048;               // lanes of a row: accumulators stay in the first cache
constexpr int64_t kPage = 512;               // steps, in elements, that reach another page
constexpr int64_t kChunkProducts = 1 << 16;  // work below which a thread is not worth waking

constexpr int kOuter = 3;  // output coordinates g, n, o before the spatial ones

// The output axis along which a row runs, with the operands' steps along it.
struct Lane {
    int axis = 0;  // 0 g, 1 n, 2 o, 3 + i spatial axis i
    int64_t extent = 1, x_step = 0, w_step = 0, period = 1;
    bool spatial() const { return axis >= kOuter; }
};

struct Types {
    Accumulator accumulator;
    int64_t size, out_size, accumulator_size;
};

bool is_integer(Dtype dtype) { return dtype >= Dtype::i8; }
bool is_complex(Dtype dtype) { return dtype == Dtype::c64 || dtype == Dtype::c128; }

// The accumulator of a pair of types: f32 for the half types, the wider of the two else.
const char* choose_types(const Problem& p, Types* types) {
    const bool wide_out = p.out_dtype == Dtype::f64 || p.out_dtype == Dtype::c128 || p.out_dtype == Dtype::i64 || p.out_dtype == Dtype::u64;
    const bool to_real = is_integer(p.dtype) && !is_integer(p.out_dtype) && !is_complex(p.out_dtype);
    if ((is_integer(p.dtype) != is_integer(p.out_dtype) && !to_real) || is_complex(p.dtype) != is_complex(p.out_dtype))
        return "general: input and output types are of different kinds";
    if (to_real && p.has_bias) return "general: a bias must have the output's kind";
    if (is_integer(p.out_dtype)) {
        const bool wide_in = p.dtype == Dtype::i64 || p.dtype == Dtype::u64;
        types->accumulator = wide_in || wide_out ? Accumulator::u64 : Accumulator::u32;
    } else if (is_complex(p.dtype)) {
        types->accumulator = p.dtype == Dtype::c128 || wide_out ? Accumulator::c128 : Accumulator::c64;
    } else {
        types->accumulator = p.dtype == Dtype::f64 || wide_out ? Accumulator::f64 : Accumulator::f32;
    }
    constexpr int64_t sizes[] = {4, 8, 8, 16, 4, 8};
    types->accumulator_size = sizes[static_cast<int>(types->accumulator)];
    types->size = dtype_size(p.dtype);
    types->out_size = dtype_size(p.out_dtype);
    if ((is_integer(p.out_dtype) || is_complex(p.dtype)) && p.activation != Activation::none)
        return "general: activations are for real floating types";
    return nullptr;
}

Lane choose_lane(const Problem& p, const Solver* positions) {
    Lane best;
    double best_score = -1;
    auto consider = [&](int axis, int64_t extent, int64_t x_step, int64_t w_step, int64_t period) {
        const int64_t count = std::min(ceil_div(extent, period), kRow);
        const int64_t step = std::max(std::abs(x_step), std::abs(w_step));
        // A row costs about 8 products to start; elements apart are slower, most in cache lines and pages of their own.
        const double each = step <= 1 ? 0.25 : step <= 8 ? 1.0 : step <= kPage ? 4.0 : 16.0;
        const double score = static_cast<double>(count) / (8.0 + static_cast<double>(count) * each);
        if (score > best_score) {
            best_score = score;
            best = {axis, extent, x_step, w_step, period};
        }
    };
    consider(0, p.groups, p.lhs.outer[0], p.rhs.outer[0], 1);
    consider(1, p.batch, p.lhs.outer[1], 0, 1);
    consider(2, p.features, 0, p.rhs.outer[1], 1);
    for (int i = 0; i < p.dims; ++i)
        consider(kOuter + i, p.axes[i].out, p.lhs.spatial[i] * positions[i].input_step(), 0, positions[i].period());
    return best;
}

template <class T>
T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

float widen_half(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu, wide;
    if (exponent == 31) {
        wide = 0x7f800000u | mantissa << 13;
    } else if (exponent != 0) {
        wide = (exponent + 112u) << 23 | mantissa << 13;
    } else if (mantissa == 0) {
        wide = 0;
    } else {
        exponent = 113;
        while ((mantissa & 0x400u) == 0) mantissa <<= 1, --exponent;
        wide = exponent << 23 | (mantissa & 0x3ffu) << 13;
    }
    wide |= sign;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
}

template <class Real>
Real load_real(Dtype dtype, const char* from) {
    switch (dtype) {
        case Dtype::f64: return static_cast<Real>(load<double>(from));
        case Dtype::f16: return static_cast<Real>(widen_half(load<uint16_t>(from)));
        case Dtype::bf16: {
            const uint32_t wide = static_cast<uint32_t>(load<uint16_t>(from)) << 16;
            return static_cast<Real>(load<float>(&wide));
        }
        default: return static_cast<Real>(load<float>(from));
    }
}

uint64_t load_integer(Dtype dtype, const char* from) {
    switch (dtype) {
        case Dtype::i8: return static_cast<uint64_t>(load<int8_t>(from));
        case Dtype::i16: return static_cast<uint64_t>(load<int16_t>(from));
        case Dtype::i32: return static_cast<uint64_t>(load<int32_t>(from));
        case Dtype::u8: return load<uint8_t>(from);
        case Dtype::u16: return load<uint16_t>(from);
        case Dtype::u32: return load<uint32_t>(from);
        default: return load<uint64_t>(from);
    }
}

template <class T>
void put(char* to, T value) {
    std::memcpy(to, &value, sizeof(T));
}

template <class Real>
void store_real(Dtype out, char* to, Real value) {
    switch (out) {
        case Dtype::f64: put(to, static_cast<double>(value)); break;
        case Dtype::f16: put(to, narrow_f16(static_cast<float>(value))); break;
        case Dtype::bf16: put(to, narrow_bf16(static_cast<float>(value))); break;
        default: put(to, static_cast<float>(value)); break;
    }
}

// One accumulator, its bias and activation, into the output element.
template <class Real>
void finish_real(const Problem& p, const void* acc, const char* bias, char* to) {
    Real value = load<Real>(acc);
    if (bias != nullptr) value += load_real<Real>(p.dtype, bias);
    if (p.activation != Activation::none) value = activate(p.activation, value);
    store_real(p.out_dtype, to, value);
}

template <class Real>
void finish_complex(const Problem& p, const void* acc, const char* bias, char* to) {
    Real part[2] = {load<Real>(acc), load<Real>(static_cast<const char*>(acc) + sizeof(Real))};
    for (int i = 0; i < 2; ++i) {
        if (bias != nullptr)
            part[i] += p.dtype == Dtype::c64 ? static_cast<Real>(load<float>(bias + 4 * i)) : static_cast<Real>(load<double>(bias + 8 * i));
        if (p.out_dtype == Dtype::c64)
            put(to + 4 * i, static_cast<float>(part[i]));
        else
            put(to + 8 * i, static_cast<double>(part[i]));
    }
}

void finish_integer(const Problem& p, uint64_t value, const char* bias, char* to) {
    if (bias != nullptr) value += load_integer(p.dtype, bias);
    std::memcpy(to, &value, static_cast<size_t>(dtype_size(p.out_dtype)));  // little-endian: the low bytes
}

class General {
public:
    General(const Problem& problem, const Buffers& buffers, const Types& types) : p(problem), t(types), b(buffers) {
        for (int i = 0; i < p.dims; ++i) {
            positions[i] = Solver(p.axes[i].stride, p.axes[i].lhs_dilation, p.axes[i].size);
            taps[i] = Solver(p.axes[i].rhs_dilation, p.axes[i].lhs_dilation, p.axes[i].size);
        }
        lane = choose_lane(p, positions);
        kernel = row_kernel(current_isa(), p.dtype, t.accumulator);
        extents[0] = p.groups, extents[1] = p.batch, extents[2] = p.features;
        for (int i = 0; i < p.dims; ++i) extents[kOuter + i] = p.axes[i].out;
        block = std::min({lane.extent, kRow * lane.period, kMostSums});
        blocks = ceil_div(lane.extent, block);
        extents[lane.axis] = 1;
        rows = blocks;
        for (int i = 0; i < kOuter + p.dims; ++i) rows *= extents[i];
    }

    // Accumulators of one row: the phases of the lane axis one after the other.
    size_t scratch_bytes() const {
        return static_cast<size_t>(pitch() == 1 ? block : lane.period * pitch()) * static_cast<size_t>(t.accumulator_size);
    }

    // Accumulators of one phase. When it is one, phases past the row have none, however long the period.
    int64_t pitch() const { return ceil_div(block, lane.period); }

    void run_row(int64_t row, void* acc) const {
        int64_t at[kOuter + kMaxDims];
        const int64_t start = row % blocks * block;
        row /= blocks;
        for (int i = kOuter + p.dims - 1; i >= 0; --i) {
            at[i] = row % extents[i];
            row /= extents[i];
        }
        at[lane.axis] = start;
        const int64_t length = std::min(block, lane.extent - start);
        std::memset(acc, 0, scratch_bytes());
        accumulate(at, length, pitch(), static_cast<char*>(acc));
        finish(at, length, pitch(), static_cast<const char*>(acc));
    }

    // One sum of nothing for each group and feature, finished.
    void bare_values(char* to) const {
        const uint64_t zero[2] = {};
        for (int64_t i = 0; i < p.groups * p.features; ++i)
            finish_one(zero, p.has_bias ? static_cast<const char*>(b.bias.data) + i * p.bias_stride * t.size : nullptr,
                       to + i * t.out_size);
    }

    Problem p;
    Types t;
    Buffers b;
    Solver positions[kMaxDims], taps[kMaxDims];
    Lane lane;
    RowKernel kernel;
    int64_t extents[kOuter + kMaxDims];  // output extents, 1 for the lane axis
    int64_t block, blocks, rows;

private:
    void accumulate(const int64_t* at, int64_t length, int64_t pitch, char* acc) const {
        Progression range[kMaxDims];
        const int lane_dim = lane.axis - kOuter;  // negative: no spatial lane
        for (int i = 0; i < p.dims; ++i) {
            if (i == lane_dim) continue;
            range[i] = taps[i].solve(at[kOuter + i] * p.axes[i].stride - p.axes[i].lo, p.axes[i].kernel);
            if (range[i].count == 0) return;
        }
        const int64_t x0 = p.lhs.offset + at[0] * p.lhs.outer[0] + at[1] * p.lhs.outer[1];
        const int64_t w0 = p.rhs.offset + at[0] * p.rhs.outer[0] + at[2] * p.rhs.outer[1];
        int64_t turn[kMaxDims] = {};
        for (;;) {  // every combination of taps of the axes that are not the lane
            int64_t x = x0, w = w0;
            for (int i = 0; i < p.dims; ++i) {
                if (i == lane_dim) continue;
                x += (range[i].input + turn[i] * taps[i].input_step()) * p.lhs.spatial[i];
                w += (range[i].first + turn[i] * taps[i].period()) * p.rhs.spatial[i];
            }
            for (int64_t c = 0; c < p.channels; ++c) {
                if (lane_dim < 0)
                    add(length, acc, x, w);
                else
                    add_taps(lane_dim, at[lane.axis], length, pitch, acc, x, w);
                x += p.lhs.outer[2];
                w += p.rhs.outer[2];
            }
            int i = p.dims - 1;
            for (; i >= 0; --i) {
                if (i == lane_dim) continue;
                if (++turn[i] < range[i].count) break;
                turn[i] = 0;
            }
            if (i < 0) return;
        }
    }

    // All taps of the lane axis: each touches a run of positions of one phase.
    void add_taps(int dim, int64_t start, int64_t length, int64_t pitch, char* acc, int64_t x, int64_t w) const {
        const Axis& axis = p.axes[dim];
        const int64_t base = start * axis.stride - axis.lo;
        for (int64_t k = 0; k < axis.kernel; ++k) {
            const Progression run = positions[dim].solve(base + k * axis.rhs_dilation, length);
            if (run.count == 0) continue;
            const int64_t place = run.first % lane.period * pitch + run.first / lane.period;
            add(run.count, acc + place * t.accumulator_size, x + run.input * p.lhs.spatial[dim], w + k * p.rhs.spatial[dim]);
        }
    }

    void add(int64_t count, char* acc, int64_t x, int64_t w) const {
        kernel(count, acc, static_cast<const char*>(b.lhs.data) + x * t.size, lane.x_step,
               static_cast<const char*>(b.rhs.data) + w * t.size, lane.w_step);
    }

    void finish_one(const void* sum, const char* bias, char* to) const {
        switch (t.accumulator) {
            case Accumulator::f32: return finish_real<float>(p, sum, bias, to);
            case Accumulator::f64: return finish_real<double>(p, sum, bias, to);
            case Accumulator::c64: return finish_complex<float>(p, sum, bias, to);
            case Accumulator::c128: return finish_complex<double>(p, sum, bias, to);
            case Accumulator::u32: return finish_integer(p, load<uint32_t>(sum), bias, to);
            case Accumulator::u64: return finish_integer(p, load<uint64_t>(sum), bias, to);
        }
    }

    void finish(const int64_t* at, int64_t length, int64_t pitch, const char* acc) const {
        int64_t out = p.out.offset;
        for (int i = 0; i < kOuter; ++i) out += at[i] * p.out.outer[i];
        for (int i = 0; i < p.dims; ++i) out += at[kOuter + i] * p.out.spatial[i];
        const int64_t out_step = lane.spatial() ? p.out.spatial[lane.axis - kOuter] : p.out.outer[lane.axis];
        const int64_t bias_step = lane.axis == 0 ? p.features * p.bias_stride : lane.axis == 2 ? p.bias_stride : 0;
        const char* bias =
            p.has_bias ? static_cast<const char*>(b.bias.data) + (at[0] * p.features + at[2]) * p.bias_stride * t.size : nullptr;
        for (int64_t j = 0; j < length; ++j) {
            const char* from = acc + (j % lane.period * pitch + j / lane.period) * t.accumulator_size;
            char* to = static_cast<char*>(b.out.data) + (out + j * out_step) * t.out_size;
            const char* add_bias = bias == nullptr ? nullptr : bias + j * bias_step * t.size;
            finish_one(from, add_bias, to);
        }
    }
};

}  // namespace

const char* run_general(const Problem& problem, const Buffers& buffers, Executor& executor) {
    Types types;
    if (const char* why = choose_types(problem, &types)) return why;
    const General general(problem, buffers, types);
    if (general.rows == 0 || general.lane.extent == 0) return nullptr;
    if (general.kernel == nullptr) return "general: no kernel for this pair of types";
    if (is_bare(problem)) {
        auto* values =
            static_cast<char*>(scratch(ScratchSlot::local, static_cast<size_t>(problem.groups * problem.features * types.out_size)));
        if (values == nullptr) return "out of memory";
        general.bare_values(values);
        fill_bare(problem, buffers.out.data, values, types.out_size, executor);
        return nullptr;
    }
    int64_t products = problem.channels;  // of one row, padding included
    for (int i = 0; i < problem.dims; ++i) products *= problem.axes[i].kernel;
    products = std::max<int64_t>(1, products) * general.block;
    const int64_t grain = std::max<int64_t>(1, kChunkProducts / products);
    const int64_t chunks = ceil_div(general.rows, grain);
    return for_tasks(executor, chunks, general.scratch_bytes(), [&](int64_t chunk, void* acc) {
        const int64_t end = std::min(general.rows, (chunk + 1) * grain);
        for (int64_t row = chunk * grain; row < end; ++row) general.run_row(row, acc);
    });
}

}  // namespace fastconv
