// Few outputs, each a long sum (the weight gradient of few channels): dot products along memory, lanes kept apart until the end.
//
// lhs and rhs are both images here, and an output is a shift between them. For one row of lhs, the rows of rhs that meet it
// (one per output row) and the shifts (one per output column) make a register tile of dot products: each loaded vector is used
// by a whole row or column of the tile.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/finite.h"
#include "drivers/geometry.h"
#include "kernels/stencil.h"

namespace fastconv {
namespace {

constexpr int kMaxSide = 32, kMaxLeft = 8;
constexpr int64_t kSplits = 16;                 // parts of the sum; a function of the problem, not of the threads
constexpr int64_t kSplitProducts = 1 << 17;     // a part smaller than this is not worth its own sums
constexpr int64_t kMaxSums = int64_t{1} << 20;  // elements of one part's sums
constexpr int64_t kMaxRow = int64_t{1} << 24;   // elements of a scratch row of lhs

template <class T>
struct DotSet {
    explicit DotSet(const StencilKernels<T>& kernels) : lanes(kernels.lanes) {
        for (int i = 0; i < kernels.dot_count; ++i) {
            const DotKernel<T>& kernel = kernels.dots[i];
            table[kernel.left][kernel.right] = kernel.run;
            max_left = std::max(max_left, kernel.left);
        }
    }
    // The most of `left` or `right` that one kernel takes.
    int take_left(int64_t count) const { return static_cast<int>(std::min<int64_t>(count, max_left)); }
    int take_right(int left, int64_t count) const {
        int right = static_cast<int>(std::min<int64_t>(count, kMaxSide));
        while (table[left][right] == nullptr) --right;
        return right;
    }
    int lanes, max_left = 0;
    DotFunction<T> table[kMaxLeft + 1][kMaxSide + 1] = {};
};

template <class T>
class Reduce {
public:
    Reduce(const Problem& sorted, const Buffers& buffers)
        : p(sorted), dots_(stencil_kernels<T>(current_isa())), lhs_(static_cast<const T*>(buffers.lhs.data)),
          rhs_(static_cast<const T*>(buffers.rhs.data)), bias_(sorted.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr),
          out_(static_cast<T*>(buffers.out.data)) {
        lane_ = p.dims - 1;
        row_ = p.dims - 2;
        outer_ = std::max(0, p.dims - 2);
        const Axis& lane = p.axes[lane_];
        // A scratch row of lhs: `rhs_dilation` sub-rows, so that a dot product's elements lie side by side.
        const int64_t first = -lane.lo, last = (lane.out - 1) * lane.stride - lane.lo + (lane.kernel - 1) * lane.rhs_dilation;
        first_ = floor_div(first, lane.rhs_dilation) * lane.rhs_dilation;
        pitch_ = ceil_div(last - first_ + 1, lane.rhs_dilation);
        pitch_ = ceil_div(pitch_, dots_.lanes) * dots_.lanes;
        outer_taps_ = outer_outputs_ = 1;
        for (int i = 0; i < outer_; ++i) {
            outer_taps_ *= p.axes[i].kernel;
            outer_outputs_ *= p.axes[i].out;
        }
        rows_ = row_ < 0 ? 1 : p.axes[row_].size;
        units_ = p.channels * outer_taps_ * rows_;
        row_outputs_ = row_ < 0 ? 1 : p.axes[row_].out;
        sums_ = p.features * outer_outputs_ * row_outputs_ * lane.out * dots_.lanes;
        const double products = static_cast<double>(units_) * static_cast<double>(lane.kernel) * static_cast<double>(sums_ / dots_.lanes);
        splits_ = std::max<int64_t>(
            1, std::min({kSplits / std::max<int64_t>(1, p.groups * p.batch), units_, static_cast<int64_t>(products / kSplitProducts)}));
    }

    // nullptr, or why these extents do not suit the algorithm.
    const char* refuse() const {
        if (p.axes[lane_].rhs_dilation > kMaxRow || p.axes[lane_].rhs_dilation * pitch_ > kMaxRow) return "reduce: the rows are too long";
        return sums_ > kMaxSums ? "reduce: too many outputs" : nullptr;
    }

    const char* run(Executor& executor) {
        const int64_t parts = p.groups * p.batch * splits_;
        T* sums = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(parts * sums_) * sizeof(T)));
        if (sums == nullptr) return "out of memory";
        const Axis& lane = p.axes[lane_];
        const int64_t elements = lane.rhs_dilation * pitch_ + kMaxLeft * lane.kernel + 64 + 2 * kMaxSide * 16;
        const char* why = for_tasks(executor, parts, static_cast<size_t>(elements) * sizeof(T),
                                    [&](int64_t part, void* local) { run_part(part, sums + part * sums_, static_cast<T*>(local)); });
        if (why != nullptr) return why;
        for_chunks(executor, p.groups * p.batch, [&](int64_t image) { finish(image, sums + image * splits_ * sums_); });
        return nullptr;
    }

    // True when an output came out NaN.
    bool suspicious() const { return suspicious_.load(); }

private:
    void run_part(int64_t part, T* sums, T* local) const {
        std::memset(sums, 0, static_cast<size_t>(sums_) * sizeof(T));
        const int64_t split = part % splits_, image = part / splits_ % p.batch, group = part / splits_ / p.batch;
        const T* lhs = lhs_ + p.lhs.offset + group * p.lhs.outer[0] + image * p.lhs.outer[1];
        const T* rhs = rhs_ + p.rhs.offset + group * p.rhs.outer[0];
        for (int64_t unit = units_ * split / splits_; unit < units_ * (split + 1) / splits_; ++unit) {
            const int64_t y = unit % rows_, tap = unit / rows_ % outer_taps_, c = unit / rows_ / outer_taps_;
            // Every place of the outer axes where this tap of theirs meets data.
            for (int64_t at = 0; at < outer_outputs_; ++at) {
                int64_t from = c * p.lhs.outer[2], with = c * p.rhs.outer[2];
                if (!outer_offsets(at, tap, &from, &with)) continue;
                add_row(lhs + from, rhs + with, y, sums + at * row_outputs_ * p.axes[lane_].out * dots_.lanes, local);
            }
        }
    }

    bool outer_offsets(int64_t at, int64_t tap, int64_t* from, int64_t* with) const {
        for (int i = outer_ - 1; i >= 0; --i) {
            const Axis& a = p.axes[i];
            const int64_t k = tap % a.kernel, index = at % a.out * a.stride + k * a.rhs_dilation - a.lo;
            if (index < 0 || index >= a.size) return false;
            *from += index * p.lhs.spatial[i];
            *with += k * p.rhs.spatial[i];
            tap /= a.kernel;
            at /= a.out;
        }
        return true;
    }

    void copy_lhs_row(const T* from, T* to) const {
        const Axis& lane = p.axes[lane_];
        const int64_t step = p.lhs.spatial[lane_];
        for (int64_t phase = 0; phase < lane.rhs_dilation; ++phase, to += pitch_) {
            const int64_t base = first_ + phase, move = lane.rhs_dilation;
            const int64_t begin = std::min(pitch_, std::max<int64_t>(0, ceil_div(-base, move)));
            const int64_t end = std::max(begin, std::min(pitch_, ceil_div(lane.size - base, move)));
            std::memset(to, 0, static_cast<size_t>(begin) * sizeof(T));
            for (int64_t t = begin; t < end; ++t) to[t] = from[(base + t * move) * step];
            std::memset(to + end, 0, static_cast<size_t>(pitch_ - end) * sizeof(T));
        }
    }

    // Row y of lhs against every row of rhs that meets it.
    void add_row(const T* lhs, const T* rhs, int64_t y, T* sums, T* local) const {
        const Axis& lane = p.axes[lane_];
        int64_t first_row = 0, last_row = 1;  // output rows q with (y + lo - q * stride) / rhs_dilation a tap
        if (row_ >= 0) {
            const Axis& row = p.axes[row_];
            const int64_t reach = y + row.lo;
            first_row = std::max<int64_t>(0, ceil_div(reach - (row.kernel - 1) * row.rhs_dilation, row.stride));
            last_row = std::min(row.out, floor_div(reach, row.stride) + 1);
            if (last_row <= first_row) return;
        }
        T* copy = local;
        copy_lhs_row(lhs + (row_ < 0 ? 0 : y * p.lhs.spatial[row_]), copy);
        const T* right[kMaxSide];
        const int64_t per_feature = outer_outputs_ * row_outputs_ * lane.out * dots_.lanes, per_row = lane.out * dots_.lanes;
        T* rows = copy + lane.rhs_dilation * pitch_;
        T* tails = rows + kMaxLeft * lane.kernel;
        for (int64_t column = 0; column < lane.out;) {
            int64_t taken = lane.out - column;
            for (int64_t o = 0; o < p.features; ++o) {
                for (int64_t q = first_row; q < last_row;) {
                    // Rows of rhs for the next output rows; a tap between rhs rows (rhs_dilation) ends the stretch.
                    const T* left[kMaxLeft];
                    int count = 0;
                    int64_t skipped = 0;
                    while (q + count < last_row && count < dots_.max_left) {
                        const T* row = rhs_row(rhs, o, q + count, y);
                        if (row == nullptr) {
                            skipped = 1;
                            break;
                        }
                        left[count++] = row;
                    }
                    if (count > 0) {
                        taken = std::min<int64_t>(
                            taken,
                            dots_.take_right(dots_.take_left(std::min<int64_t>(dots_.max_left, last_row - first_row)), lane.out - column));
                        for (int64_t j = 0; j < taken; ++j) right[j] = shifted(copy, column + j);
                        if (p.rhs.spatial[lane_] != 1)
                            for (int i = 0; i < count; ++i) left[i] = gather_row(left[i], rows + i * lane.kernel);
                        add_dots(left, count, right, static_cast<int>(taken), sums + o * per_feature + q * per_row + column * dots_.lanes,
                                 per_row, tails);
                    }
                    q += count + skipped;
                }
            }
            column += taken;
        }
    }

    const T* shifted(const T* copy, int64_t column) const {
        const Axis& lane = p.axes[lane_];
        const int64_t base = column * lane.stride - lane.lo - first_;
        return copy + base % lane.rhs_dilation * pitch_ + base / lane.rhs_dilation;
    }

    const T* rhs_row(const T* rhs, int64_t feature, int64_t q, int64_t y) const {
        const T* row = rhs + feature * p.rhs.outer[1];
        if (row_ < 0) return row;
        const Axis& a = p.axes[row_];
        const int64_t reach = y + a.lo - q * a.stride;
        return reach % a.rhs_dilation != 0 ? nullptr : row + reach / a.rhs_dilation * p.rhs.spatial[row_];
    }

    const T* gather_row(const T* from, T* to) const {
        for (int64_t k = 0; k < p.axes[lane_].kernel; ++k) to[k] = from[k * p.rhs.spatial[lane_]];
        return to;
    }

    // One register tile over the whole row. The kernels' sums are left x right without gaps; here rows of outputs lie `step` apart.
    void add_dots(const T* const* left, int count, const T* const* right, int shifts, T* sums, int64_t step, T* tails) const {
        const int64_t depth = p.axes[lane_].kernel, lanes = dots_.lanes, whole = depth / lanes * lanes;
        T tile[64 * 16];
        const size_t bytes = static_cast<size_t>(shifts * lanes) * sizeof(T);
        for (int done = 0; done < shifts;) {
            const int width = dots_.take_right(count, shifts - done);
            for (int i = 0; i < count; ++i) std::memcpy(tile + i * width * lanes, sums + i * step + done * lanes, bytes / shifts * width);
            dots_.table[count][width](whole, left, right + done, tile);
            if (whole < depth) {  // the last, partial vector: both sides cut off at zero
                const T* a[kMaxSide];
                const T* b[kMaxSide];
                T* place = tails;
                auto cut = [&](const T* from) {
                    T* to = place;
                    place += lanes;
                    std::memset(to, 0, static_cast<size_t>(lanes) * sizeof(T));
                    std::memcpy(to, from + whole, static_cast<size_t>(depth - whole) * sizeof(T));
                    return to;
                };
                for (int i = 0; i < count; ++i) a[i] = cut(left[i]);
                for (int j = 0; j < width; ++j) b[j] = cut(right[done + j]);
                dots_.table[count][width](lanes, a, b, tile);
            }
            for (int i = 0; i < count; ++i) std::memcpy(sums + i * step + done * lanes, tile + i * width * lanes, bytes / shifts * width);
            done += width;
        }
    }

    // Adds the parts in order, then the lanes in order.
    void finish(int64_t image, const T* sums) const {
        const int64_t n = image % p.batch, group = image / p.batch;
        const Axis& lane = p.axes[lane_];
        T* out = out_ + p.out.offset + group * p.out.outer[0] + n * p.out.outer[1];
        const T* from = sums;
        for (int64_t o = 0; o < p.features; ++o)
            for (int64_t at = 0; at < outer_outputs_ * row_outputs_; ++at) {
                T* to = out + o * p.out.outer[2];
                int64_t index = at / row_outputs_;
                if (row_ >= 0) to += at % row_outputs_ * p.out.spatial[row_];
                for (int i = outer_ - 1; i >= 0; --i) {
                    to += index % p.axes[i].out * p.out.spatial[i];
                    index /= p.axes[i].out;
                }
                for (int64_t x = 0; x < lane.out; ++x, from += dots_.lanes) {
                    T total = 0;
                    for (int j = 0; j < dots_.lanes; ++j) {
                        T value = from[j];
                        for (int64_t split = 1; split < splits_; ++split) value += from[split * sums_ + j];
                        total += value;
                    }
                    if (total != total) suspicious_.store(true, std::memory_order_relaxed);
                    const T* bias = bias_ == nullptr ? nullptr : bias_ + (group * p.features + o) * p.bias_stride;
                    finish_row<T>(&total, 1, 1, bias, 0, p.activation);
                    to[x * p.out.spatial[lane_]] = total;
                }
            }
    }

    const Problem p;
    const DotSet<T> dots_;
    const T* lhs_;
    const T* rhs_;
    const T* bias_;
    T* out_;
    mutable std::atomic<bool> suspicious_{false};
    int lane_, row_, outer_;  // axis numbers; outer_: number of axes above the rows
    int64_t first_, pitch_, outer_taps_, outer_outputs_, rows_, units_, row_outputs_, sums_, splits_;
};

template <class T>
const char* run_reduce_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const Problem sorted = sort_axes(problem);
    Reduce<T> reduce(sorted, buffers);
    if (const char* why = reduce.refuse()) return why;
    const char* why = reduce.run(executor);
    if (why == nullptr && reduce.suspicious() && !rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data)))
        return run_general(problem, buffers, executor);
    return why;
}

}  // namespace

const char* run_reduce(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "reduce: the output type must be the operands'";
    if (problem.dims == 0) return "reduce: no spatial axis";
    for (int i = 0; i < problem.dims; ++i)
        if (problem.axes[i].lhs_dilation != 1) return "reduce: the input is dilated";
    if (problem.dtype == Dtype::f32) return run_reduce_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_reduce_as<double>(problem, buffers, executor);
    return "reduce: f32 and f64 only";
}

}  // namespace fastconv
