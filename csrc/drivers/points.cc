// Dense convolution of every kind by points: vectors of columns (features and phases), each multiplied by the inputs of several
// output points, which are read where they lie through a table of offsets (Dukhan 2019, The Indirect Convolution Algorithm).
// A task copies its piece of the input, as it lies, only where padding or far channels ask for it, so that nothing is unfolded.
#include <algorithm>
#include <atomic>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "drivers/points_operands.h"
#include "drivers/points_weights.h"
#include "kernels/point.h"

namespace fastconv {
namespace {

constexpr int64_t kDepthBytes = 384 << 10;  // of a panel's weights that stay in the second cache
constexpr int64_t kPackAlone = 1 << 16;     // elements of weights that the calling thread packs alone
constexpr int64_t kPackSteps = 512;         // packed at a time
constexpr int64_t kCacheBytes = 2 << 20;    // of a core: outputs that are more lie far away when they are written, and so do weights
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kPackChannels = 16;  // the same where all phases are
constexpr int kMaxRows = 16, kMaxVectors = 4;

template <class T>
struct PointTable {
    explicit PointTable(const PointKernels<T>& kernels) {
        for (int i = 0; i < kernels.count; ++i) {
            const PointKernel<T>& kernel = kernels.rows[i];
            run[kernel.rows][kernel.vectors] = kernel.run;
            rows[kernel.vectors] = std::max(rows[kernel.vectors], kernel.rows);
            vectors = std::max(vectors, kernel.vectors);
        }
    }
    PointFunction<T> run[kMaxRows + 1][kMaxVectors + 1] = {};  // every number of rows up to the most
    int rows[kMaxVectors + 1] = {}, vectors = 0;
};

template <class T>
class Points {
public:
    Points(const Problem& problem, const PointPlan& plan, const Buffers& buffers)
        : p_(problem), plan_(plan), kernels_(point_kernels<T>(current_isa())), table_(kernels_), tiles_(tile_kernels<T>(current_isa())),
          lhs_(static_cast<const T*>(buffers.lhs.data)), rhs_(static_cast<const T*>(buffers.rhs.data)),
          bias_(problem.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr), out_(static_cast<T*>(buffers.out.data)) {
        for (const PointPart& part : plan_.parts) {
            first_task_.push_back(tasks_);
            tasks_ += p_.groups * part.blocks() * part.pieces;
            const int64_t sums = 2 * part.points() * part.width;  // of a set and its twin
            const int64_t lists = 4 * part.points() * static_cast<int64_t>(sizeof(T*));
            local_ = std::max(local_, (part.scratch + sums + 3 * 16) * static_cast<int64_t>(sizeof(T)) + lists);
        }
        pack_late_ = !plan_.merged && p_.groups * plan_.packed * static_cast<int64_t>(sizeof(T)) > kCacheBytes;
        for (const PointPart& part : plan_.parts) pack_late_ = pack_late_ && part.blocks() == 1;
        if (pack_late_) local_ += kDepthBytes + int64_t{kMaxVectors} * kernels_.lanes * static_cast<int64_t>(sizeof(T)) + 64;
        double outputs = static_cast<double>(p_.groups * p_.batch * p_.features);
        for (int i = 0; i < p_.dims; ++i) outputs *= static_cast<double>(p_.axes[i].out);
        far_ = outputs * static_cast<double>(sizeof(T)) > kCacheBytes;
    }

    // Packs the weights; `finite`: whether none of them is infinite or NaN, so that padding may be multiplied.
    const char* prepare(Executor& executor, bool* finite) {
        *finite = true;
        if (pack_late_) return nullptr;
        packed_ = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(p_.groups * plan_.packed + 16) * sizeof(T)));
        if (packed_ == nullptr) return "out of memory";
        InlineExecutor alone;  // waking others costs more than packing little
        pack(p_.groups * plan_.packed < kPackAlone ? alone : executor);
        *finite = finite_weights_.load();
        return nullptr;
    }

    const char* run(Executor& executor) const {
        return for_tasks(executor, tasks_, static_cast<size_t>(local_),
                         [&](int64_t task, void* local) { run_task(task, static_cast<char*>(local)); });
    }

    // Whether padding may have been multiplied by an infinity or NaN: weights, or sums that zeros of merged phases took part in.
    bool suspicious() const { return suspicious_.load() || !finite_weights_.load(); }

private:
    // Of each point: where its offsets count from, where its outputs do, and where its sums are made, of a set and of its twin.
    struct Lists {
        const T** row;
        T** out;
        T** sum[2];
        T* weights;  // packed when their turn comes
    };

    static T* align(void* from) { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(from) + 63) / 64 * 64); }

    // Chunks: steps of depth of a panel.
    void pack(Executor& executor) {
        const WeightRuns runs = find_weight_runs(p_, plan_, kernels_.lanes);
        if (runs.length > 0) {
            const int64_t pieces = ceil_div(p_.channels, kPackChannels);
            for_chunks(executor, p_.groups * pieces, [&](int64_t chunk) {
                const int64_t group = chunk / pieces, first = chunk % pieces * kPackChannels;
                const int64_t count = std::min(kPackChannels, p_.channels - first);
                const T* data = rhs_ + group * p_.rhs.outer[0];
                if (!pack_weight_runs(runs, p_, kernels_, data, first, count, packed_ + group * plan_.packed))
                    finite_weights_.store(false, std::memory_order_relaxed);
            });
            return;
        }
        for (const PointPart& part : plan_.parts)
            for (const PointSet& set : part.sets) {
                const int64_t panels = static_cast<int64_t>(set.panels.size()), pieces = ceil_div(set.depth, kPackSteps);
                for_chunks(executor, p_.groups * pieces * panels, [&](int64_t chunk) {
                    const PointPanel& panel = set.panels[static_cast<size_t>(chunk % panels)];
                    const int64_t group = chunk / panels / pieces, first = chunk / panels % pieces * kPackSteps;
                    const int64_t count = std::min(kPackSteps, set.depth - first);
                    pack_panel(set, panel, group, first, count, packed_ + group * plan_.packed + panel.packed + first * panel.width);
                });
            }
    }

    // Depth first <= k < first + count.
    void pack_panel(const PointSet& set, const PointPanel& panel, int64_t group, int64_t first, int64_t count, T* to) const {
        const T* data = rhs_ + group * p_.rhs.outer[0];
        if (plan_.merged) {
            pack_merged(set, panel, data, first, count, to);
        } else {
            Lanes side;
            column_lanes(set.lattice, panel.first, panel.columns, &side);
            pack_rhs<T>(set.rhs_loops, tiles_.pack, data, side, first, count, panel.width, to);
        }
        if (!tiles_.finite(to, count * panel.width)) finite_weights_.store(false, std::memory_order_relaxed);
    }

    PointBlock block_of(const PointPart& part, int64_t index) const {
        PointBlock b;
        b.points = 1;
        for (int i = part.axes - 1; i >= 0; --i) {
            const PointAxis& a = part.axis[i];
            b.first[i] = index % a.blocks * a.block;
            b.count[i] = std::min(a.block, a.positions - b.first[i]);
            b.points *= b.count[i];
            index /= a.blocks;
        }
        b.group = index;
        return b;
    }

    // Whether every tap of every point meets data.
    static bool inside(const PointPart& part, const PointBlock& b) {
        for (int i = 0; i < part.axes; ++i) {
            const PointAxis& a = part.axis[i];
            const int64_t low = b.first[i] * a.q_input + a.low;
            if (low < 0 || low + (b.count[i] - 1) * a.q_input + a.reach >= a.size) return false;
        }
        return true;
    }

    void run_task(int64_t task, char* local) const {
        size_t number = plan_.parts.size() - 1;
        while (first_task_[number] > task) --number;
        const PointPart& part = plan_.parts[number];
        const int64_t index = task - first_task_[number], piece = index % part.pieces;
        const PointBlock b = block_of(part, index / part.pieces);
        const int64_t points = part.points();
        T* input = align(reinterpret_cast<T**>(local) + 4 * points);
        T* sums = align(input + part.scratch);
        const Lists lists{reinterpret_cast<const T**>(local),
                          reinterpret_cast<T**>(local) + points,
                          {reinterpret_cast<T**>(local) + 2 * points, reinterpret_cast<T**>(local) + 3 * points},
                          align(sums + 2 * points * part.width)};
        const T* lhs = lhs_ + b.group * p_.lhs.outer[0];
        const bool in_place = part.in_place && inside(part, b);
        if (!in_place && !part.empty) copy_points(part, b, kernels_, lhs, input);
        find_points(part, b, in_place, in_place ? lhs : input, lists);
        const int64_t units = static_cast<int64_t>(part.units.size());
        for (int64_t i = units * piece / part.pieces; i < units * (piece + 1) / part.pieces; ++i) {
            const PointUnit& unit = part.units[static_cast<size_t>(i)];
            const PointSet& set = part.sets[static_cast<size_t>(unit.set)];
            const PointPanel& panel = set.panels[static_cast<size_t>(unit.panel)];
            if (unit.twin < 0 && panel.at_output() && !plan_.merged) {
                multiply(set, panel, b, in_place, lists, lists.out, panel.runs[0].out, {});
                continue;
            }
            const Strips strips = strips_of(part, panel, b, lists.out, unit.twin >= 0);
            if (strips.lines && set.depth == 0 && (unit.twin < 0 || part.sets[static_cast<size_t>(unit.twin)].depth == 0)) {
                store_empty(set, strips, b);
                continue;
            }
            for (int64_t point = 0; point < b.points; ++point) {
                lists.sum[0][point] = sums + point * panel.width;
                lists.sum[1][point] = sums + (points + point) * panel.width;
            }
            const int fetched = !is_far(strips) ? 0 : unit.twin >= 0 ? panel.columns / 2 : panel.columns;
            multiply(set, panel, b, in_place, lists, lists.sum[0], 0, {&strips, 0, fetched});
            if (unit.twin >= 0) {
                const PointSet& twin = part.sets[static_cast<size_t>(unit.twin)];
                multiply(twin, twin.panels[static_cast<size_t>(unit.panel)], b, in_place, lists, lists.sum[1], 0,
                         {&strips, fetched, fetched > 0 ? panel.columns : 0});
            }
            store(strips, panel.width, lists.sum[0], unit.twin >= 0 ? lists.sum[1] : nullptr);
        }
    }

    // Points one after the other along lines.
    void find_points(const PointPart& part, const PointBlock& b, bool in_place, const T* input, const Lists& lists) const {
        const PointAxis& line = part.axis[part.line];
        const int64_t length = b.count[part.line];
        int64_t digits[kMaxDims + 1] = {}, first = 0, out = 0;
        for (int i = 0; i < part.axes; ++i) {
            first += (b.first[i] * part.axis[i].q_input + part.axis[i].low) * part.axis[i].step;
            out += b.first[i] * part.axis[i].q_out;
        }
        const T* from = input + (in_place ? part.origin + first : 0);
        T* to = out_ + b.group * p_.out.outer[0] + out;
        const int64_t step = line.q_input * (in_place ? line.step : line.pitch);
        for (int64_t point = 0; point < b.points; point += length) {
            int64_t place = 0;
            out = 0;
            for (int i = 0; i < part.line; ++i) {  // axes beyond the line have one point
                place += digits[i] * part.axis[i].q_input * (in_place ? part.axis[i].step : part.axis[i].pitch);
                out += digits[i] * part.axis[i].q_out;
            }
            for (int64_t j = 0; j < length; ++j) {
                lists.row[point + j] = from + place + j * step;
                lists.out[point + j] = to + out + j * line.q_out;
            }
            for (int i = part.line - 1; i >= 0; --i) {
                if (++digits[i] < b.count[i]) break;
                digits[i] = 0;
            }
        }
    }

    // How the outputs of a unit lie: `each` neighbours a point, `step` from point to point of a strip; as lines where there is no gap.
    struct Strips {
        const PointPanel* panel;
        T* const* out;
        int64_t points, length, step, each;
        bool lines;
    };

    static Strips strips_of(const PointPart& part, const PointPanel& panel, const PointBlock& b, T* const* out, bool twins) {
        const PointAxis& line = part.axis[part.line];
        int64_t length = b.count[part.line];
        if (part.row >= 0 && length == line.positions && part.axis[part.row].q_out == length * line.q_out) length *= b.count[part.row];
        return {&panel, out, b.points, length, line.q_out, twins ? 2 : 1, twins || line.q_out == 1};
    }

    // Whether a unit's lines are better fetched: columns whole pages apart would push each other out of the first cache.
    bool is_far(const Strips& strips) const {
        return far_ && strips.lines && strips.panel->runs[0].step * static_cast<int64_t>(sizeof(T)) % kPageBytes != 0;
    }

    // Columns whose lines are fetched while others are summed: writing to lines that lie far away would wait for each.
    struct Fetch {
        const Strips* strips;
        int first, last;
    };

    void fetch(const Fetch& columns, int64_t tile, int64_t tiles) const {
        const int64_t count = columns.last - columns.first;
        const int64_t first = columns.first + count * tile / tiles, last = columns.first + count * (tile + 1) / tiles;
        const Strips& strips = *columns.strips;
        for (const ColumnRun& run : strips.panel->runs) {
            const int64_t from = std::max<int64_t>(first - run.start, 0), end = std::min<int64_t>(last - run.start, run.length);
            for (int64_t point = 0; point < strips.points && from < end; point += strips.length)
                kernels_.fetch(strips.out[point] + run.out + from * run.step, run.step, end - from, strips.length * strips.each);
        }
    }

    // The sums of a block's points and a panel's columns, finished.
    void multiply(const PointSet& set, const PointPanel& panel, const PointBlock& b, bool in_place, const Lists& lists, T* const* sum,
                  int64_t to, const Fetch& fetched) const {
        const int32_t* offset = in_place ? set.in_place.data() : set.in_scratch.data();
        const int vectors = panel.width / kernels_.lanes;
        const int64_t depth = set.depth, points = b.points, tiles = ceil_div(points, table_.rows[vectors]);
        const int64_t blocks = std::max<int64_t>(1, ceil_div(depth * panel.width * static_cast<int64_t>(sizeof(T)), kDepthBytes));
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t first = depth * block / blocks, last = depth * (block + 1) / blocks;
            const T* weight = lists.weights;
            if (pack_late_)
                pack_panel(set, panel, b.group, first, last - first, lists.weights);
            else
                weight = packed_ + b.group * plan_.packed + panel.packed + first * panel.width;
            PointArguments<T> a{last - first, offset + first, nullptr, weight, nullptr, to, block > 0};
            for (int64_t tile = 0; tile < tiles; ++tile) {
                const int64_t from = points * tile / tiles, end = points * (tile + 1) / tiles;
                if (last == depth && fetched.first < fetched.last) fetch(fetched, tile, tiles);
                a.row = lists.row + from;
                a.sum = sum + from;
                table_.run[end - from][vectors](a);
            }
        }
        if (plan_.merged && !tiles_.finite(sum[0], points * panel.width)) suspicious_.store(true, std::memory_order_relaxed);
        finish(set, panel, b, sum, to);
    }

    void finish(const PointSet& set, const PointPanel& panel, const PointBlock& b, T* const* sum, int64_t to) const {
        if (bias_ == nullptr && p_.activation == Activation::none) return;
        T bias[kMaxLanes];
        find_bias(set, panel, b, bias);
        for (int64_t point = 0; point < b.points; ++point)
            finish_row<T>(sum[point] + to, panel.columns, 1, bias_ == nullptr ? nullptr : bias, 1, p_.activation);
    }

    // Of each column, where there is one.
    void find_bias(const PointSet& set, const PointPanel& panel, const PointBlock& b, T* to) const {
        for (int j = 0; j < panel.columns && bias_ != nullptr; ++j) {
            const int64_t feature = set.lattice.columns[static_cast<size_t>(panel.first + j)].feature;
            to[j] = bias_[(b.group * p_.features + feature) * p_.bias_stride];
        }
    }

    // Lines of outputs that no tap meets.
    void store_empty(const PointSet& set, const Strips& strips, const PointBlock& b) const {
        const PointPanel& panel = *strips.panel;
        T bias[kMaxLanes], value[kMaxLanes] = {};
        find_bias(set, panel, b, bias);
        finish_row<T>(value, panel.columns, 1, bias_ == nullptr ? nullptr : bias, 1, p_.activation);
        for (const ColumnRun& run : panel.runs)
            for (int j = 0; j < run.length; ++j)
                for (int64_t point = 0; point < strips.points; point += strips.length)
                    std::fill_n(strips.out[point] + run.out + j * run.step, strips.length * strips.each, value[run.start + j]);
    }

    // The way out. A few columns at a time for all lines: neighbouring lines of a feature lie near each other.
    void store(const Strips& strips, int64_t width, T* const* sum, T* const* twin) const {
        for (const ColumnRun& run : strips.panel->runs) {
            const bool by_lines = strips.each > 1 || (strips.lines && run.length >= kShortRun);
            const int some = by_lines ? kernels_.lanes : run.step == 1 ? run.length : 1;
            for (int j = 0; j < run.length; j += some) {
                const int columns = std::min(some, run.length - j), from = run.start + j;
                for (int64_t point = 0; point < strips.points; point += strips.length) {
                    T* to = strips.out[point] + run.out + j * run.step;
                    if (by_lines)
                        kernels_.lines(to, run.step, sum[point] + from, twin == nullptr ? nullptr : twin[point] + from, width,
                                       strips.length, columns);
                    else
                        kernels_.copy(to, strips.step, sum[point] + from, width, strips.length, columns);
                }
            }
        }
    }

    static constexpr int kShortRun = 4;  // columns not worth a transposition

    const Problem& p_;
    const PointPlan& plan_;
    const PointKernels<T>& kernels_;
    const PointTable<T> table_;
    const TileKernels<T>& tiles_;
    const T* lhs_;
    const T* rhs_;
    const T* bias_;
    T* out_;
    std::vector<int64_t> first_task_;
    int64_t tasks_ = 0, local_ = 0;
    bool pack_late_ = false;  // many weights that each serve one task alone stay in its second cache: memory holds no packed copy
    bool far_ = false;        // whether outputs are more than a cache holds
    T* packed_ = nullptr;
    mutable std::atomic<bool> suspicious_{false};
    mutable std::atomic<bool> finite_weights_{true};
};

template <class T>
const char* run_points_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    const PointTable<T> table(point_kernels<T>(current_isa()));
    const PointTiles tiles{point_kernels<T>(current_isa()).lanes, table.vectors, static_cast<int>(sizeof(T))};
    for (const bool merge : {true, false}) {
        PointPlan plan;
        if (const char* why = plan_points(problem, tiles, merge, &plan)) {
            if (plan.merged) continue;  // takes more memory
            return why;
        }
        Points<T> points(problem, plan, buffers);
        bool finite;
        if (const char* why = points.prepare(executor, &finite)) return why;
        if (!finite) break;
        if (const char* why = points.run(executor)) return why;
        if (!points.suspicious()) return nullptr;  // else: zeros in place of weights may have met infinities
    }
    return run_general(problem, buffers, executor);
}

}  // namespace

const char* run_points(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "points: the output type must be the operands'";
    double columns = static_cast<double>(problem.features);
    for (int i = 0; i < problem.dims; ++i) columns *= static_cast<double>(std::min(problem.axes[i].lhs_dilation, problem.axes[i].out));
    if (columns > 1 << 18) return "points: too many columns";
    if (problem.dtype == Dtype::f32) return run_points_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_points_as<double>(problem, buffers, executor);
    return "points: f32 and f64 only";
}

}  // namespace fastconv
