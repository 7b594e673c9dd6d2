#include "drivers/planes.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/scratch.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "drivers/halves.h"
#include "drivers/phases.h"
#include "drivers/plane_parts.h"

namespace fastconv {
namespace {

constexpr double kMaxPhases = 64, kMaxTaps = 1 << 14;
constexpr int64_t kRowTaps = 12;            // of a row, where no rows share what is read,
constexpr int64_t kSharedRowTaps = 64;      // and where they do
constexpr double kChunkProducts = 1 << 16;  // work below which a thread is not worth waking
constexpr int64_t kTasks = 64;              // so many or more, where rows allow
constexpr double kMostWidened = 1 << 16;    // elements of the rows of half types that a tile keeps as float32

// Rows of the input that a tile of outputs meets, at most.
int64_t rows_met(const Axis& row) {
    return std::max<int64_t>(1, std::min(row.size, (kTileRows - 1) * row.stride + (row.kernel - 1) * row.rhs_dilation + 1));
}

template <class T>
class Planes {
public:
    Planes(const Problem& problem, const Buffers& buffers)
        : p(problem), kernels_(plane_kernels<T>(current_isa())), table_(kernels_), row_(p.dims - 2), column_(p.dims - 1),
          lhs_(buffers.lhs.data), rhs_(static_cast<const T*>(buffers.rhs.data)),
          bias_(p.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr), out_(buffers.out.data), halves_(p.dtype) {
        for (const Phase& phase : phases_of(p)) parts_.push_back(make_plane_part(phase.problem, table_));
        const Axis& a = p.axes[column_];
        interleaved_ = std::min(Solver(a.stride, a.lhs_dilation, a.size).period(), a.out);
        pitch_ = ceil_div(ceil_div(a.out, interleaved_), table_.lanes) * table_.lanes;
        if (halves_.convert()) {
            for (const PlanePart& part : parts_)
                while (part.tall && kept_rows_ < rows_met(part.p.axes[row_])) kept_rows_ *= 2;
            // Rows that adjoin in memory do so in scratch, and are converted together.
            kept_pitch_ = p.lhs.spatial[row_] == a.size ? a.size : padded(a.size);
            made_pitch_ = p.out.spatial[row_] == a.out && p.axes[row_].lhs_dilation == 1 ? a.out : padded(a.out);
        }
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
    static int64_t padded(int64_t elements) { return (elements + 31) / 16 * 16; }

    struct Local {
        const T** rows;
        T* weights;
        T* buffer;
        T* kept;  // of half types: rows of the input as T, by group and row, the last ones that were met,
        T* made;  // and rows of outputs
    };

    bool lend(Local* local) const {
        int64_t groups = 1, taps = 1;
        for (const PlanePart& part : parts_) groups = std::max(groups, part.groups);
        for (int i = 0; i < p.dims; ++i) taps *= p.axes[i].kernel;
        const int64_t pointers = groups * (kTileRows + 8);
        const int64_t kept = padded(groups * kept_rows_ * kept_pitch_), made = padded(kTileRows * made_pitch_);
        const int64_t elements = kept + made + p.channels * taps * interleaved_ + 2 * kTileRows * pitch_ + 64;
        const size_t bytes = static_cast<size_t>(pointers) * sizeof(T*) + static_cast<size_t>(elements) * sizeof(T);
        char* memory = static_cast<char*>(scratch(ScratchSlot::local, bytes));
        if (memory == nullptr) return false;
        local->kept = reinterpret_cast<T*>(memory);
        local->made = local->kept + kept;
        local->buffer = local->made + made;
        local->rows = reinterpret_cast<const T**>(local->buffer + ceil_div(2 * kTileRows * pitch_, 16) * 16);
        local->weights = reinterpret_cast<T*>(local->rows + pointers);
        return true;
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
            int64_t out = parts->p.out.offset + g * p.out.outer[0] + n * p.out.outer[1] + o * p.out.outer[2], widened = 0;
            for (int i = 0; i < row_; ++i) out += at[i] * parts->p.out.spatial[i];
            const T* bias = bias_ == nullptr ? nullptr : bias_ + (g * p.features + o) * p.bias_stride;
            const int64_t height = parts->tall ? kTileRows : 1;
            for (at[row_] = y; at[row_] < std::min(rows, y + block); at[row_] += height) {
                const int64_t taken = std::min(height, rows - at[row_]);
                const int64_t lhs = p.lhs.offset + g * p.lhs.outer[0] + n * p.lhs.outer[1];
                if (halves_.convert()) widened = widen_rows(*parts, at, lhs, widened, local);
                make_rows(parts, at, lhs, taken, local, out + at[row_] * parts->p.out.spatial[row_], bias);
            }
        }
    }

    int64_t part_weights(const PlanePart& part) const {
        int64_t count = part.p.channels;
        for (int i = 0; i < p.dims; ++i) count *= part.p.axes[i].kernel;
        return count;
    }

    // Keeps the rows of the input that outputs from at[row_] on meet, but for those below `from`, which are kept; returns where
    // they end.
    int64_t widen_rows(const PlanePart& part, const int64_t* at, int64_t lhs, int64_t from, const Local& local) const {
        const Axis& row = part.p.axes[row_];
        int64_t first = 0, last = 1;
        if (part.tall) {
            first = std::max(from, at[row_] * row.stride - row.lo);
            last = std::min(row.size, (at[row_] + kTileRows - 1) * row.stride + (row.kernel - 1) * row.rhs_dilation - row.lo + 1);
        }
        for (int64_t group = 0; group < part.groups; ++group) {
            int64_t offset, unused;
            if (!group_offset(part, group, at, &offset, &unused)) continue;
            const bool adjoin = kept_pitch_ == p.axes[column_].size;
            for (int64_t index = first, run; index < last; index += run) {
                run = adjoin ? std::min(last - index, kept_rows_ - (index & (kept_rows_ - 1))) : 1;
                halves_.widen((run - 1) * kept_pitch_ + p.axes[column_].size, kept_row(local, group, index), lhs_,
                              lhs + offset + (part.tall ? index * part.p.lhs.spatial[row_] : 0));
            }
        }
        return std::max(from, last);
    }
    T* kept_row(const Local& local, int64_t group, int64_t index) const {
        return local.kept + (group * kept_rows_ + (index & (kept_rows_ - 1))) * kept_pitch_;
    }

    // `rows` rows of outputs from at[row_], of all phases of the columns.
    void make_rows(const PlanePart* parts, const int64_t* at, int64_t lhs, int64_t rows, const Local& local, int64_t out,
                   const T* bias) const {
        const int64_t out_step = parts->p.out.spatial[row_], count = p.axes[column_].out;
        const bool narrow = halves_.convert();
        T* made = narrow ? local.made : static_cast<T*>(out_) + out;
        const int64_t made_step = narrow ? made_pitch_ : out_step;
        const T* weights = local.weights;
        for (int64_t phase = 0; phase < interleaved_; ++phase) {
            T* to = interleaved_ == 1 ? made : local.buffer + phase * kTileRows * pitch_;
            make_part_rows(parts[phase], at, lhs, weights, rows, local, to, interleaved_ == 1 ? made_step : pitch_);
            weights += part_weights(parts[phase]);
        }
        const bool finish = bias != nullptr || p.activation != Activation::none;
        for (int64_t r = 0; r < rows && (finish || narrow || interleaved_ == 2); ++r) {
            T* row = made + r * made_step;
            if (interleaved_ == 2) kernels_.interleave(local.buffer + r * pitch_, local.buffer + (kTileRows + r) * pitch_, row, count);
            if (finish) finish_row<T>(row, count, 1, bias, 0, p.activation);
            if (narrow && made_step != count) halves_.narrow(count, out_, out + r * out_step, row);
        }
        if (narrow && made_step == count) halves_.narrow(rows * count, out_, out, made);
    }

    void make_part_rows(const PlanePart& part, const int64_t* at, int64_t lhs, const T* weights, int64_t rows, const Local& local, T* out,
                        int64_t out_step) const {
        const Axis &row = part.p.axes[row_], &column = part.p.axes[column_];
        PlaneArguments<T> a{};
        a.groups = part.groups;
        a.shifts = column.kernel;
        a.row = local.rows;
        a.out_step = out_step;
        a.rows = rows;
        const T* in_place = static_cast<const T*>(lhs_) + lhs;
        bool first = true;
        for (const TapChunk& chunk : part.chunks) {
            const T** to = local.rows;
            const int64_t count = (part.tall ? kTileRows : 1) + chunk.taps - 1, step = row.stride * part.p.lhs.spatial[row_];
            for (int64_t group = 0; group < part.groups; ++group) {
                int64_t offset, unused;
                const bool met = group_offset(part, group, at, &offset, &unused);
                if (!part.tall) {
                    *to++ = !met ? nullptr : halves_.convert() ? kept_row(local, group, 0) : in_place + offset;
                    continue;
                }
                int64_t index = at[row_] * row.stride + chunk.first * row.rhs_dilation - row.lo;
                const T* from = in_place + offset + index * part.p.lhs.spatial[row_];
                for (int64_t j = 0; j < count; ++j, index += row.stride, from += step) {
                    const bool exists = met && index >= 0 && index < row.size;
                    *to++ = !exists ? nullptr : halves_.convert() ? kept_row(local, group, index) : from;
                }
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
    const void* lhs_;
    const T* rhs_;
    const T* bias_;
    void* out_;
    const Halves<T> halves_;  // lhs and out may be of a half type
    std::vector<PlanePart> parts_;
    int64_t interleaved_, pitch_;  // phases of the columns; elements of a row of one of them in scratch
    int64_t kept_rows_ = 1;        // a power of two
    int64_t kept_pitch_ = 0, made_pitch_ = 0;
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

bool planes_take_halves(const Problem& p) {
    double widened = static_cast<double>(p.channels) * static_cast<double>(p.axes[p.dims - 1].size);
    for (int i = 0; i < p.dims - 2; ++i) widened *= static_cast<double>(p.axes[i].kernel);
    const Axis& row = p.axes[p.dims - 2];
    return widened * static_cast<double>(std::max(row.kernel, rows_met(row))) <= kMostWidened;
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
