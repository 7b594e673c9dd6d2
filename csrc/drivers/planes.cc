#include "drivers/planes.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/scratch.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "drivers/phases.h"
#include "kernels/planes.h"

namespace fastconv {
namespace {

constexpr double kMaxPhases = 64, kMaxTaps = 1 << 14;
constexpr int64_t kRowTaps = 12;            // of a row, where no rows share what is read,
constexpr int64_t kSharedRowTaps = 64;      // and where they do
constexpr double kChunkProducts = 1 << 16;  // work below which a thread is not worth waking
constexpr int64_t kTasks = 64;              // so many or more, where rows allow
constexpr int kTileRows = 4;

// The kernels of one ISA: by rows (1 or kTileRows), taps, vectors, step.
template <class T>
struct PlaneTable {
    explicit PlaneTable(const PlaneKernels<T>& kernels) : lanes(kernels.lanes) {
        for (int i = 0; i < kernels.count; ++i) {
            const PlaneKernel<T>& k = kernels.planes[i];
            run[k.rows > 1][k.step - 1][k.taps][k.vectors] = k.run;
        }
    }
    int widest(bool tall, int step, int64_t vectors) const {
        int most = static_cast<int>(std::min<int64_t>(vectors, 8));
        while (run[tall][step - 1][1][most] == nullptr) --most;
        return most;
    }
    int most_taps(int64_t taps) const {
        int most = static_cast<int>(std::min<int64_t>(taps, 7));
        while (run[1][0][most][1] == nullptr) --most;
        return most;
    }
    int lanes;
    PlaneFunction<T> run[2][2][8][9] = {};
};

// Row taps first, first + step, ... whose rows neighbouring outputs share.
struct TapChunk {
    int64_t first, step;
    int taps;
    int64_t weight;  // where its weights start
};

// Neighbouring outputs of a row.
struct RowTile {
    int64_t x, width;
    int vectors;
    int64_t mask;   // where its masks start, or -1: every lane exists
    int64_t shift;  // where its taps' places in a row start
};

// One phase of the problem.
struct PlanePart {
    Problem p;
    bool tall;  // tiles of several rows; else the row taps are groups of their own
    std::vector<TapChunk> chunks;
    std::vector<RowTile> tiles;
    std::vector<uint32_t> masks;
    std::vector<int64_t> shifts;
    int64_t groups;  // of one chunk: channels and outer taps
};

template <class T>
class Planes {
public:
    Planes(const Problem& problem, const Buffers& buffers)
        : p(problem), kernels_(plane_kernels<T>(current_isa())), table_(kernels_), row_(p.dims - 2), column_(p.dims - 1),
          lhs_(static_cast<const T*>(buffers.lhs.data)), rhs_(static_cast<const T*>(buffers.rhs.data)),
          bias_(p.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr), out_(static_cast<T*>(buffers.out.data)) {
        for (const Phase& phase : phases_of(p)) parts_.push_back(make_part(phase.problem));
        const Axis& a = p.axes[column_];
        interleaved_ = std::min(Solver(a.stride, a.lhs_dilation, a.size).period(), a.out);
        pitch_ = ceil_div(ceil_div(a.out, interleaved_), table_.lanes) * table_.lanes;
        // Tasks: an image of a group, or blocks of its rows where these are few.
        const double images = static_cast<double>(p.groups) * static_cast<double>(p.batch);
        int64_t first = 0;
        for (size_t i = 0; i < parts_.size(); i += static_cast<size_t>(interleaved_)) {
            const PlanePart& part = parts_[i];
            const int64_t rows = part.p.axes[row_].out;
            int64_t outer = 1;
            for (int axis = 0; axis < row_; ++axis) outer *= part.p.axes[axis].out;
            const double blocks = std::max(1.0, kTasks / (images * static_cast<double>(outer)));
            row_blocks_.push_back(ceil_div(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rows) / blocks)), kTileRows) *
                                  kTileRows);
            first_task_.push_back(first);
            first += outer * ceil_div(rows, row_blocks_.back());
        }
        first_task_.push_back(first);
    }

    const char* run(Executor& executor) {
        const int64_t per_image = first_task_.back(), tasks = p.groups * p.batch * per_image;
        double products = static_cast<double>(p.channels * p.features);
        for (int i = 0; i < p.dims; ++i) products *= static_cast<double>(p.axes[i].kernel) * static_cast<double>(p.axes[i].out);
        const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kChunkProducts * static_cast<double>(per_image) / products));
        std::atomic<bool> exhausted{false};
        for_chunks(executor, ceil_div(tasks, grain), [&](int64_t chunk) {
            Local local;
            if (!lend(&local)) {
                exhausted.store(true);
                return;
            }
            for (int64_t task = chunk * grain; task < std::min(tasks, (chunk + 1) * grain); ++task) run_task(task, local);
        });
        return exhausted.load() ? "out of memory" : nullptr;
    }

    // True when a weight was infinite or NaN: zeros of the padding have met it.
    bool suspicious() const { return suspicious_.load(); }

private:
    struct Local {
        const T** rows;
        T* weights;
        T* buffer;
    };

    bool lend(Local* local) const {
        int64_t groups = 1, taps = 1;
        for (const PlanePart& part : parts_) groups = std::max(groups, part.groups);
        for (int i = 0; i < p.dims; ++i) taps *= p.axes[i].kernel;
        const int64_t pointers = groups * (kTileRows + 8);
        const int64_t elements = p.channels * taps * interleaved_ + 2 * kTileRows * pitch_ + 64;
        const size_t bytes = static_cast<size_t>(pointers) * sizeof(T*) + static_cast<size_t>(elements) * sizeof(T);
        char* memory = static_cast<char*>(scratch(ScratchSlot::local, bytes));
        if (memory == nullptr) return false;
        local->buffer = reinterpret_cast<T*>(memory);
        local->rows = reinterpret_cast<const T**>(local->buffer + ceil_div(2 * kTileRows * pitch_, 16) * 16);
        local->weights = reinterpret_cast<T*>(local->rows + pointers);
        return true;
    }

    PlanePart make_part(const Problem& problem) const {
        PlanePart part{problem, false, {}, {}, {}, {}, problem.channels};
        const Axis &row = problem.axes[row_], &column = problem.axes[column_];
        for (int i = 0; i < row_; ++i) part.groups *= problem.axes[i].kernel;
        part.tall = row.out >= 3;
        int64_t weight = 0;
        auto add = [&](int64_t first, int64_t step, int taps) {
            part.chunks.push_back({first, step, taps, weight});
            weight += part.groups * column.kernel * taps;
        };
        if (!part.tall) {
            part.groups *= row.kernel;
            add(0, 1, 1);
        } else {
            // Output row r + 1 with one tap meets the input row of output row r with the tap `step` further, if there is one.
            const int64_t common = gcd(row.stride, row.rhs_dilation), step = row.stride / common;
            const bool shared = row.rhs_dilation == common;
            for (int64_t first = 0; first < (shared ? std::min(step, row.kernel) : row.kernel); ++first) {
                int64_t taps = shared ? ceil_div(row.kernel - first, step) : 1;
                for (int64_t h = first; taps > 0;) {
                    const int most = table_.most_taps(taps);
                    const int take = table_.most_taps(ceil_div(taps, ceil_div(taps, most)));
                    add(h, step, take);
                    h += take * step;
                    taps -= take;
                }
            }
        }
        for (int64_t x = 0; x < column.out;) {
            const int64_t left = column.out - x;
            const int vectors = table_.widest(part.tall, static_cast<int>(column.stride), ceil_div(left, table_.lanes));
            RowTile tile{x, std::min<int64_t>(left, int64_t{vectors} * table_.lanes), vectors, -1,
                         static_cast<int64_t>(part.shifts.size())};
            for (int64_t q = 0; q < column.kernel; ++q) part.shifts.push_back(x * column.stride + q * column.rhs_dilation - column.lo);
            const int64_t reads = vectors * table_.lanes * column.stride, first = x * column.stride - column.lo;
            if (first < 0 || first + (column.kernel - 1) * column.rhs_dilation + reads > column.size) {
                tile.mask = static_cast<int64_t>(part.masks.size());
                for (int64_t q = 0; q < column.kernel; ++q)
                    for (int64_t lane = 0; lane < reads; lane += table_.lanes) {
                        uint32_t mask = 0;
                        for (int j = 0; j < table_.lanes; ++j) {
                            const int64_t at = first + q * column.rhs_dilation + lane + j;
                            mask |= static_cast<uint32_t>(at >= 0 && at < column.size) << j;
                        }
                        part.masks.push_back(mask);
                    }
            }
            part.tiles.push_back(tile);
            x += tile.width;
        }
        return part;
    }

    // Where an outer tap of a group (channel, outer taps and, in tiles of one row, row tap) lies in an operand; false: on padding.
    bool group_offset(const PlanePart& part, int64_t group, const int64_t* at, int64_t* lhs, int64_t* rhs) const {
        bool met = true;
        *lhs = *rhs = 0;
        for (int i = part.tall ? row_ - 1 : row_; i >= 0; --i) {
            const Axis& a = part.p.axes[i];
            const int64_t k = group % a.kernel, index = at[i] * a.stride + k * a.rhs_dilation - a.lo;
            met = met && index >= 0 && index < a.size;
            *lhs += index * part.p.lhs.spatial[i];
            *rhs += k * part.p.rhs.spatial[i];
            group /= a.kernel;
        }
        *lhs += group * part.p.lhs.outer[2];
        *rhs += group * part.p.rhs.outer[2];
        return met;
    }

    void pack(const PlanePart& part, const T* rhs, T* to) const {
        const int64_t at[kMaxDims] = {};
        const int64_t column_step = part.p.rhs.spatial[column_];
        T zero = 0;
        for (const TapChunk& chunk : part.chunks)
            for (int64_t g = 0; g < part.groups; ++g) {
                int64_t unused, offset;
                group_offset(part, g, at, &unused, &offset);
                const T* from = rhs + part.p.rhs.offset + offset + (part.tall ? chunk.first * part.p.rhs.spatial[row_] : 0);
                for (int64_t q = 0; q < part.p.axes[column_].kernel; ++q)
                    for (int h = 0; h < chunk.taps; ++h) {
                        *to = from[q * column_step + h * chunk.step * (part.tall ? part.p.rhs.spatial[row_] : 0)];
                        zero += *to++ * T(0);
                    }
            }
        if (zero != zero) suspicious_.store(true, std::memory_order_relaxed);
    }

    void run_task(int64_t task, const Local& local) const {
        const int64_t image = task / first_task_.back(), g = image / p.batch, n = image % p.batch;
        int64_t index = task % first_task_.back();
        size_t which = 0;
        while (index >= first_task_[which + 1]) ++which;
        index -= first_task_[which];
        const PlanePart* parts = &parts_[which * static_cast<size_t>(interleaved_)];
        const int64_t block = row_blocks_[which], rows = parts->p.axes[row_].out, blocks = ceil_div(rows, block);
        int64_t at[kMaxDims];
        const int64_t y = index % blocks * block;
        index /= blocks;
        for (int i = row_ - 1; i >= 0; --i) {
            at[i] = index % parts->p.axes[i].out;
            index /= parts->p.axes[i].out;
        }
        for (int64_t o = 0; o < p.features; ++o) {
            T* weights = local.weights;
            for (int64_t phase = 0; phase < interleaved_; ++phase) {
                pack(parts[phase], rhs_ + g * p.rhs.outer[0] + o * p.rhs.outer[1], weights);
                weights += part_weights(parts[phase]);
            }
            T* out = out_ + parts->p.out.offset + g * p.out.outer[0] + n * p.out.outer[1] + o * p.out.outer[2];
            for (int i = 0; i < row_; ++i) out += at[i] * parts->p.out.spatial[i];
            const T* bias = bias_ == nullptr ? nullptr : bias_ + (g * p.features + o) * p.bias_stride;
            const int64_t height = parts->tall ? kTileRows : 1;
            for (at[row_] = y; at[row_] < std::min(rows, y + block); at[row_] += height) {
                const int64_t taken = std::min(height, rows - at[row_]);
                make_rows(parts, at, g, n, taken, local, out + at[row_] * parts->p.out.spatial[row_], bias);
            }
        }
    }

    int64_t part_weights(const PlanePart& part) const {
        int64_t count = part.p.channels;
        for (int i = 0; i < p.dims; ++i) count *= part.p.axes[i].kernel;
        return count;
    }

    // `rows` rows of outputs from at[row_], of all phases of the columns.
    void make_rows(const PlanePart* parts, const int64_t* at, int64_t g, int64_t n, int64_t rows, const Local& local, T* out,
                   const T* bias) const {
        const int64_t out_step = parts->p.out.spatial[row_], count = p.axes[column_].out;
        const T* lhs = lhs_ + p.lhs.offset + g * p.lhs.outer[0] + n * p.lhs.outer[1];
        const T* weights = local.weights;
        for (int64_t phase = 0; phase < interleaved_; ++phase) {
            T* to = interleaved_ == 1 ? out : local.buffer + phase * kTileRows * pitch_;
            make_part_rows(parts[phase], at, lhs, weights, rows, local, to, interleaved_ == 1 ? out_step : pitch_);
            weights += part_weights(parts[phase]);
        }
        const bool finish = bias != nullptr || p.activation != Activation::none;
        for (int64_t r = 0; r < rows && (finish || interleaved_ == 2); ++r) {
            T* row = out + r * out_step;
            if (interleaved_ == 2) kernels_.interleave(local.buffer + r * pitch_, local.buffer + (kTileRows + r) * pitch_, row, count);
            if (finish) finish_row<T>(row, count, 1, bias, 0, p.activation);
        }
    }

    void make_part_rows(const PlanePart& part, const int64_t* at, const T* lhs, const T* weights, int64_t rows, const Local& local, T* out,
                        int64_t out_step) const {
        const Axis &row = part.p.axes[row_], &column = part.p.axes[column_];
        PlaneArguments<T> a{};
        a.groups = part.groups;
        a.shifts = column.kernel;
        a.row = local.rows;
        a.out_step = out_step;
        a.rows = rows;
        bool first = true;
        for (const TapChunk& chunk : part.chunks) {
            const T** to = local.rows;
            const int64_t count = (part.tall ? kTileRows : 1) + chunk.taps - 1, step = row.stride * part.p.lhs.spatial[row_];
            for (int64_t group = 0; group < part.groups; ++group) {
                int64_t offset, unused;
                const bool met = group_offset(part, group, at, &offset, &unused);
                if (!part.tall) {
                    *to++ = met ? lhs + offset : nullptr;
                    continue;
                }
                int64_t index = at[row_] * row.stride + chunk.first * row.rhs_dilation - row.lo;
                const T* from = lhs + offset + index * part.p.lhs.spatial[row_];
                for (int64_t j = 0; j < count; ++j, index += row.stride, from += step)
                    *to++ = met && index >= 0 && index < row.size ? from : nullptr;
            }
            a.weight = weights + chunk.weight;
            a.accumulate = !first;
            first = false;
            for (const RowTile& tile : part.tiles) {
                a.shift = part.shifts.data() + tile.shift;
                a.mask = tile.mask < 0 ? nullptr : part.masks.data() + tile.mask;
                a.out = out + tile.x;
                a.width = tile.width;
                table_.run[part.tall][column.stride - 1][chunk.taps][tile.vectors](a);
            }
        }
        if (first)  // a phase that no tap meets
            for (int64_t r = 0; r < rows; ++r) std::fill(out + r * out_step, out + r * out_step + column.out, T(0));
    }

    const Problem& p;
    const PlaneKernels<T>& kernels_;
    const PlaneTable<T> table_;
    const int row_, column_;
    const T* lhs_;
    const T* rhs_;
    const T* bias_;
    T* out_;
    std::vector<PlanePart> parts_;
    int64_t interleaved_, pitch_;                   // phases of the columns; elements of a row of one of them in scratch
    std::vector<int64_t> row_blocks_, first_task_;  // of each phase of the other axes
    mutable std::atomic<bool> suspicious_{false};
};

}  // namespace

bool suits_planes(const Problem& p, int lanes) {
    const int column = p.dims - 1;
    const Axis& a = p.axes[column];
    if (p.lhs.spatial[column] != 1 || p.out.spatial[column] != 1) return false;
    const Solver positions(a.stride, a.lhs_dilation, a.size);
    if (positions.period() > 2 || positions.input_step() > 2 || 2 * a.out < lanes * positions.period()) return false;
    double taps = static_cast<double>(p.channels), phases = 1;
    for (int i = 0; i < p.dims; ++i) {
        taps *= static_cast<double>(p.axes[i].kernel);
        phases *= static_cast<double>(std::min(p.axes[i].lhs_dilation, p.axes[i].out));
    }
    if (taps == 0 || taps > kMaxTaps || phases > kMaxPhases) return false;
    return a.kernel <= (p.axes[column - 1].kernel > 2 ? kSharedRowTaps : kRowTaps);
}

template <class T>
const char* run_planes(const Problem& problem, const Buffers& buffers, Executor& executor) {
    Planes<T> planes(problem, buffers);
    const char* why = planes.run(executor);
    return why == nullptr && planes.suspicious() ? run_general(problem, buffers, executor) : why;
}
template const char* run_planes<float>(const Problem&, const Buffers&, Executor&);
template const char* run_planes<double>(const Problem&, const Buffers&, Executor&);

}  // namespace fastconv
