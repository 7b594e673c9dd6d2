// Weight gradients: sums of outer products over pixels, in register tiles of rows (channels or taps of one operand, broadcast from
// where they lie) times vectors (channels of the other, laid out [pixel][channel] in cache).
//
// Taps move the place where an operand is read, nothing is unfolded; padding only narrows the range of pixels, so it is never
// multiplied, but where few channels make tiles of several taps: there the shifted operand is copied with zeros around it. Sums
// restart for every block of pixels and are added in order, which keeps them accurate and independent of threads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/drivers.h"
#include "drivers/finite.h"
#include "drivers/outer_pack.h"
#include "kernels/outer.h"
#include "kernels/tile.h"

namespace fastconv {
namespace {

constexpr int kMaxRows = 27, kMaxVectors = 4, kMaxRun = 64;

template <class T>
struct OuterSet {
    explicit OuterSet(const OuterKernels<T>& kernels) : shapes{kernels.lanes, 0, {}}, add_parts(kernels.add_parts) {
        for (int i = 0; i < kernels.count; ++i) {
            const OuterKernel<T>& kernel = kernels.tiles[i];
            run[kernel.rows][kernel.vectors] = kernel.run;
            int& most = kernel.rows > kOuterPlaces ? shapes.most_by_threes : shapes.most_rows[kernel.vectors];
            most = std::max(most, kernel.rows);
        }
    }
    OuterShapes shapes;
    void (*add_parts)(T* into, const T* from, int64_t step, int64_t parts, int64_t count);
    OuterFunction<T> run[kMaxRows + 1][kMaxVectors + 1] = {};
};

template <class T>
class Outer {
public:
    Outer(const OuterPlan& plan, const OuterSet<T>& kernels, const Buffers& buffers)
        : plan_(plan), f_(plan_.form), kernels_(kernels), tiles_(tile_kernels<T>(current_isa())), operands_(plan_, tiles_.pack, buffers),
          taps_(outer_taps(f_)), out_(static_cast<T*>(buffers.out.data)), panel_size_(operands_.panel_size()),
          packed_(round(panel_size_ * ceil(plan_.panels, plan_.lane_blocks))),
          copied_(round(plan_.rows_packed ? plan_.row_positions() * plan_.row_pitch() : operands_.region_size())),
          sums_(round(plan_.sums())), row_pitch_(plan_.row_pitch()), row_starts_(row_starts()) {}

    const char* run(Executor& executor) {
        const int64_t blocks = plan_.tasks() / plan_.splits;
        T* parts = nullptr;
        if (plan_.splits > 1) {
            parts = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(plan_.tasks() * sums_) * sizeof(T)));
            if (parts == nullptr) return "out of memory";
        }
        const size_t bytes = static_cast<size_t>(packed_ + copied_ + (parts == nullptr ? sums_ : 0)) * sizeof(T);
        const char* why = for_tasks(executor, plan_.tasks(), bytes, [&](int64_t index, void* memory) {
            T* local = static_cast<T*>(memory);
            const OuterTask task = plan_.task(index);
            T* sums = parts == nullptr ? local + packed_ + copied_ : parts + index * sums_;
            add_products(task, local, sums);
            if (parts == nullptr) write(task, sums, 0, plan_.row_taps() * task.rows);
        });
        if (why != nullptr || parts == nullptr) return why;
        for_chunks(executor, blocks * kPieces, [&](int64_t chunk) {  // the parts of each sum in order, whoever computed them
            const OuterTask task = plan_.task(chunk / kPieces * plan_.splits);
            const int64_t piece = chunk % kPieces, count = plan_.row_taps() * task.rows;
            write(task, parts + chunk / kPieces * plan_.splits * sums_, count * piece / kPieces, count * (piece + 1) / kPieces);
        });
        return nullptr;
    }

    // True when a sum that copied zeros took part in came out infinite or NaN.
    bool suspicious() const { return suspicious_.load(); }

private:
    static constexpr int64_t kPieces = 8;  // of the rows of a block whose parts are added

    static int64_t ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
    static int64_t round(int64_t elements) { return ceil(elements, 64) * 64; }

    int64_t lanes_of(int64_t panel) const { return std::min(plan_.width(panel), plan_.lane_side().channels - plan_.first_lane(panel)); }

    void add_products(const OuterTask& task, T* local, T* sums) const {
        const int64_t blocks = plan_.blocks();
        std::vector<Aim> aims(static_cast<size_t>(plan_.row_taps()));
        bool first = true;
        for (int64_t i = blocks * task.split / plan_.splits; i < blocks * (task.split + 1) / plan_.splits; ++i) {
            const OuterBlock block = plan_.block(i);
            for (int64_t p = 0; p < task.panels && !plan_.in_place; ++p)
                operands_.pack(plan_.lane_side(), task.group, block, plan_.first_lane(task.panel + p), lanes_of(task.panel + p),
                               plan_.width(task.panel + p), local + p * panel_size_);
            if (plan_.rows_packed) operands_.pack(plan_.row_side(), task.group, block, task.row, task.rows, row_pitch_, local + packed_);
            if (plan_.copied) operands_.copy_region(task.group, block, local + packed_);
            add_block(task, block, local, aims, sums, first);
            first = false;
        }
    }

    // An operand as a tile sees it: channel 0 at a pixel, and what rows and pixels move.
    struct View {
        const T* at;
        int64_t row, pixel;
    };

    // What the tiles of a panel share at one tap: the pixels of the block that it meets (maybe none), and both operands there.
    struct Aim {
        int64_t rows, pixels;
        View lanes, steps;
    };

    // Adds (first: stores) the products of one block to the sums of every tile of the task.
    void add_block(const OuterTask& task, const OuterBlock& block, const T* local, std::vector<Aim>& aims, T* sums, bool first) const {
        const T* copy = plan_.rows_packed || plan_.copied ? local + packed_ : nullptr;
        for (int64_t p = 0; p < task.panels; ++p) {
            const int64_t width = plan_.width(task.panel + p);
            const T* panel = plan_.in_place ? nullptr : local + p * panel_size_;
            for (size_t tap = 0; tap < aims.size(); ++tap)
                aims[tap] = plan_.mixed ? aim_mixed(task, block, panel, width, copy) : aim_tap(task, block, taps_[tap], panel, width, copy);
            for (int64_t t = task.tile; t < task.tile + task.tiles; ++t) {
                const int64_t row = plan_.first_row(t), rows = plan_.first_row(t + 1) - row;
                for (const Aim& aim : aims) {
                    if (aim.rows > 0)
                        run_tile(task, aim, row, rows, width, sums, !first);
                    else if (first)
                        std::memset(sums, 0, static_cast<size_t>(rows * width) * sizeof(T));
                    sums += rows * width;
                }
            }
        }
    }

    void run_tile(const OuterTask& task, const Aim& aim, int64_t row, int64_t rows, int64_t width, T* sums, bool accumulate) const {
        const T* places[kMaxRows];
        if (plan_.mixed) {
            for (int64_t m = 0; m < rows; ++m) places[m] = aim.steps.at + row_starts_[static_cast<size_t>(row + m)];
        } else {
            const int64_t step = plan_.rows_packed ? 1 : plan_.row_side().step, first = plan_.rows_packed ? row - task.row : row;
            for (int64_t m = 0; m < rows; ++m) places[m] = aim.steps.at + (first + m) * step;
        }
        const int64_t apart = rows > 1 ? places[1] - places[0] : 0;
        kernels_.run[rows][width / plan_.lanes]({aim.rows, aim.pixels, places, aim.steps.row, aim.steps.pixel, apart, aim.lanes.at,
                                                 aim.lanes.row, aim.lanes.pixel, sums, accumulate, plan_.in_place});
    }

    // Rows that continue each other in both operands are one.
    static Aim joined(Aim aim) {
        if (aim.steps.row == aim.pixels * aim.steps.pixel && aim.lanes.row == aim.pixels * aim.lanes.pixel) {
            aim.pixels *= aim.rows;
            aim.rows = 1;
        }
        return aim;
    }

    // Rows are channels, all at one tap.
    Aim aim_tap(const OuterTask& task, const OuterBlock& block, const OuterTap& tap, const T* panel, int64_t width, const T* copy) const {
        const int64_t top = std::max(block.row, tap.row_first), left = std::max(block.pixel, tap.pixel_first);
        const int64_t rows = std::min(block.row + block.rows, tap.row_end) - top;
        const int64_t pixels = std::min(block.pixel + block.pixels, tap.pixel_end) - left;
        int64_t start;
        if (rows <= 0 || pixels <= 0 || !f_.outer_tap(block.outer, tap.outer, &start)) return {};
        if (plan_.lanes_shifted)
            return joined(
                {rows, pixels, of_shifted(task, block, tap, top, left, panel, width), of_still(task, block, top, left, copy, row_pitch_)});
        return joined(
            {rows, pixels, of_still(task, block, top, left, panel, width), of_shifted(task, block, tap, top, left, copy, row_pitch_)});
    }

    // Rows are channels and taps; every tap meets every pixel.
    Aim aim_mixed(const OuterTask& task, const OuterBlock& block, const T* panel, int64_t width, const T* region) const {
        View steps{region, f_.row().dilation * operands_.pixel_reach() * plan_.folded(), f_.pixel().dilation * plan_.folded()};
        if (region == nullptr)
            steps = {operands_.at(f_.shifted, task.group) + block.shifted, f_.row().dilation * f_.row().shifted,
                     f_.pixel().dilation * f_.pixel().shifted};
        return joined({block.rows, block.pixels, of_still(task, block, block.row, block.pixel, panel, width), steps});
    }

    // Where the rows of mixed tiles start, channels outside and taps inside.
    std::vector<int64_t> row_starts() const {
        std::vector<int64_t> starts;
        if (!plan_.mixed) return starts;
        const int64_t fold = plan_.folded(), pitch = operands_.pixel_reach() * fold;
        for (int64_t channel = 0; channel < f_.shifted.channels; ++channel)
            for (const OuterTap& tap : taps_)
                starts.push_back(plan_.copied ? (channel / fold * f_.outer_taps + tap.outer) * operands_.row_reach() * pitch +
                                                    tap.row_shift * pitch + tap.pixel_shift * fold + channel % fold
                                              : channel * f_.shifted.step + tap.start);
        return starts;
    }

    // `still` at a pixel: packed (OuterOperands::pack), or where it lies when `packed` is nullptr.
    View of_still(const OuterTask& task, const OuterBlock& block, int64_t top, int64_t left, const T* packed, int64_t pitch) const {
        const OuterAxis &ys = f_.row(), &xs = f_.pixel();
        View v{packed, block.pixels * pitch, pitch};
        if (packed == nullptr) v = {operands_.at(f_.still, task.group) + block.still, ys.still, xs.still};
        v.at += (top - block.row) * v.row + (left - block.pixel) * v.pixel;
        return v;
    }

    // `shifted` where a tap finds it from a pixel; likewise.
    View of_shifted(const OuterTask& task, const OuterBlock& block, const OuterTap& tap, int64_t top, int64_t left, const T* packed,
                    int64_t pitch) const {
        const OuterAxis &ys = f_.row(), &xs = f_.pixel();
        if (packed == nullptr) {
            View v{operands_.at(f_.shifted, task.group) + block.shifted + tap.start, ys.dilation * ys.shifted, xs.dilation * xs.shifted};
            v.at += (top - block.row) * v.row + (left - block.pixel) * v.pixel;
            return v;
        }
        const OuterSpan row = outer_span(ys, block.row, block.rows), pixel = outer_span(xs, block.pixel, block.pixels);
        const int64_t down = tap.row_shift + top * ys.dilation - ys.lo - row.first;
        const int64_t right = tap.pixel_shift + left * xs.dilation - xs.lo - pixel.first;
        const int64_t plane = operands_.row_reach() * operands_.pixel_reach();
        return {packed + (tap.outer * plane + down * pixel.count + right) * pitch, ys.dilation * pixel.count * pitch, xs.dilation * pitch};
    }

    // Walks the rows of a task as the output's memory runs: taps inside channels, or the other way round where the output's channels
    // are neighbours. `sum` is the row's place among the sums of a panel.
    class RowWalk {
    public:
        RowWalk(const OuterPlan& plan, const OuterTask& task, int64_t taps, int64_t index)
            : plan_(plan), task_(task), taps_(taps), channels_inside_(!plan.mixed && plan.row_side().out == 1), sum_(index) {
            const int64_t row = plan.mixed ? task.row + index : index;
            tap = channels_inside_ ? row / task.rows : row % taps;
            channel = plan.mixed ? row / taps : task.row + (channels_inside_ ? row % task.rows : row / taps);
            find_tile(task.tile);
        }
        void next() {
            ++sum_;
            if (channels_inside_ ? ++channel == task_.row + task_.rows : ++tap == taps_) {
                if (channels_inside_) {
                    channel = task_.row;
                    ++tap;
                    find_tile(task_.tile);
                } else {
                    tap = 0;
                    ++channel;
                }
            }
            if (channel >= end_) find_tile(tile_);
        }
        int64_t sum() const { return plan_.mixed ? sum_ : (first_ - task_.row) * taps_ + tap * (end_ - first_) + channel - first_; }
        int64_t channel = 0, tap = 0;

    private:
        // The tile that holds the channel, from tile `from` on.
        void find_tile(int64_t from) {
            if (plan_.mixed) {
                end_ = INT64_MAX;
                return;
            }
            tile_ = from;
            while (tile_ + 1 < task_.tile + task_.tiles && plan_.first_row(tile_ + 1) <= channel) ++tile_;
            first_ = plan_.first_row(tile_);
            end_ = plan_.first_row(tile_ + 1);
        }
        const OuterPlan& plan_;
        const OuterTask& task_;
        const int64_t taps_;
        const bool channels_inside_;
        int64_t sum_, tile_ = 0, first_ = 0, end_ = 0;
    };

    // Adds the parts of rows begin <= index < end in order and writes them to the output.
    void write(const OuterTask& task, T* sums, int64_t begin, int64_t end) const {
        const int64_t step = plan_.lane_side().out;
        for (int64_t p = task.panel; p < task.panel + task.panels; ++p) {
            const int64_t width = plan_.width(p), lanes = lanes_of(p);
            T* out = out_ + f_.out + task.group * f_.out_group + plan_.first_lane(p) * step;
            const T* from[kMaxRun];  // rows that lie side by side in the output
            int64_t count = 0, next = 0;
            const int64_t zeros[kMaxRun] = {};
            int64_t ends[kMaxRun];
            std::fill_n(ends, kMaxRun, lanes);
            RowWalk row(plan_, task, static_cast<int64_t>(taps_.size()), begin);
            for (int64_t index = begin; index < end; ++index, row.next()) {
                T* sum = sums + row.sum() * width;
                const int64_t place = row.channel * plan_.row_side().out + taps_[static_cast<size_t>(row.tap)].out;
                if (plan_.splits > 1) kernels_.add_parts(sum, sum + sums_, sums_, plan_.splits - 1, width);
                if (plan_.copied && !tiles_.finite(sum, width)) suspicious_.store(true, std::memory_order_relaxed);
                if (step == 1) {
                    std::memcpy(out + place, sum, static_cast<size_t>(lanes) * sizeof(T));
                    continue;
                }
                if (count > 0 && (place != next || count == kMaxRun)) {
                    tiles_.pack.walked(out + next - count, step, lanes, from, zeros, ends, count, 1);
                    count = 0;
                }
                from[count++] = sum;
                next = place + 1;
            }
            if (count > 0) tiles_.pack.walked(out + next - count, step, lanes, from, zeros, ends, count, 1);
            sums += task.rows * plan_.row_taps() * width;
        }
    }

    const OuterPlan plan_;
    const OuterForm& f_;
    const OuterSet<T>& kernels_;
    const TileKernels<T>& tiles_;
    const OuterOperands<T> operands_;
    const std::vector<OuterTap> taps_;
    T* out_;
    const int64_t panel_size_, packed_, copied_, sums_, row_pitch_;  // elements
    const std::vector<int64_t> row_starts_;
    mutable std::atomic<bool> suspicious_{false};
};

// Whether the operand that met copied zeros holds numbers only.
template <class T>
bool still_is_finite(const Problem& problem, const OuterPlan& plan, const Buffers& buffers) {
    if (!plan.form.still.is_lhs) return rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data));
    Problem turned = problem;
    turned.rhs = problem.lhs;
    turned.features = problem.batch;
    for (int i = 0; i < problem.dims; ++i) turned.axes[i].kernel = problem.axes[i].size;
    return rhs_is_finite(turned, static_cast<const T*>(buffers.lhs.data));
}

template <class T>
const char* run_outer_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const OuterSet<T> kernels(outer_kernels<T>(current_isa()));
    OuterPlan plan;
    if (const char* why = plan_outer(problem, kernels.shapes, &plan)) return why;
    if (plan.form.empty) return run_general(problem, buffers, executor);  // zeros
    Outer<T> outer(plan, kernels, buffers);
    const char* why = outer.run(executor);
    if (why == nullptr && outer.suspicious() && !still_is_finite<T>(problem, plan, buffers)) return run_general(problem, buffers, executor);
    return why;
}

}  // namespace

const char* run_outer(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "outer: the output type must be the operands'";
    if (problem.dtype == Dtype::f32) return run_outer_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_outer_as<double>(problem, buffers, executor);
    return "outer: f32 and f64 only";
}

}  // namespace fastconv
