#include "drivers/points_plan.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kSums = 8192;                         // of a task's panel, about: they stay near the first cache
constexpr int64_t kFewPoints = 128, kManyPoints = 512;  // of a task
constexpr int64_t kScratchBytes = int64_t{1} << 19;     // aimed at
constexpr int64_t kMostScratch = int64_t{1} << 21;      // elements of one copy of the input
constexpr int64_t kMostPacked = int64_t{1} << 28;       // elements
constexpr int64_t kTasks = 16;                          // enough to keep many cores even
constexpr int64_t kShare = 4;                           // threads that few tasks should share out between
constexpr int64_t kTaskProducts = 1 << 17;              // a task smaller than this costs more to hand out than to run
constexpr int64_t kAliases = 1024;                      // channels this many elements apart share a set of the first cache
constexpr int64_t kFewChannels = 8;                     // may be read where they lie, however far apart
constexpr int64_t kFewFeatures = 4;                     // not worth a transposition on the way out

int64_t even_block(int64_t count, int64_t target) { return ceil_div(count, ceil_div(count, target)); }

// Multiply-adds of vectors a row.
double cost_of(const std::vector<Lattice>& lattices, int lanes) {
    double cost = 0;
    for (const Lattice& l : lattices)
        cost += static_cast<double>(ceil_div(static_cast<int64_t>(l.columns.size()), lanes)) * static_cast<double>(l.depth());
    return cost;
}

// Columns in the order `less` of their numbers.
template <class Less>
void sort_columns(Lattice* lattice, Less&& less) {
    std::vector<size_t> order(lattice->columns.size());
    for (size_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return less(lattice->columns[a], lattice->columns[b]); });
    Lattice from = *lattice;
    const size_t dims = static_cast<size_t>(lattice->dims);
    for (size_t j = 0; j < order.size(); ++j) {
        lattice->columns[j] = from.columns[order[j]];
        if (!from.ranges.empty()) std::copy_n(&from.ranges[order[j] * dims], dims, &lattice->ranges[j * dims]);
    }
}

// Between the outputs of neighbouring points: those along the last axis that has several.
int64_t line_step(const Lattice& lattice) {
    for (int i = lattice.dims - 1; i >= 0; --i)
        if (lattice.axes[i].positions > 1) return lattice.axes[i].q_out;
    return lattice.out_n;
}

// Whether other outputs lie between the outputs of neighbouring points.
bool alternates(const Lattice& lattice) { return line_step(lattice) == 2; }

// Takes the columns that are right neighbours of the others into a lattice of their own, if every other one is.
bool split_twins(Lattice* lattice, Lattice* right) {
    const std::vector<Column> columns = lattice->columns;
    if (columns.size() % 2 != 0) return false;
    for (size_t j = 0; j < columns.size(); j += 2)
        if (columns[j + 1].out != columns[j].out + 1 || columns[j + 1].feature != columns[j].feature) return false;
    *right = *lattice;
    lattice->columns.clear();
    right->columns.clear();
    for (size_t j = 0; j < columns.size(); ++j) (j % 2 == 0 ? lattice : right)->columns.push_back(columns[j]);
    return true;
}

int64_t origin_of(const Lattice& lattice) {
    int64_t origin = lattice.lhs;
    for (int i = 0; i < lattice.dims; ++i) origin -= lattice.axes[i].input * (lattice.axes[i].q_lhs / lattice.axes[i].q_input);
    return origin;
}

// Whether lattices have the same points and read the input at the same steps.
bool share_points(const Lattice& a, const Lattice& b) {
    if (a.dims != b.dims || origin_of(a) != origin_of(b)) return false;
    for (int i = 0; i < a.dims; ++i) {
        const LatticeAxis &x = a.axes[i], &y = b.axes[i];
        if (x.positions != y.positions || x.q_out != y.q_out || x.q_input != y.q_input || x.q_lhs != y.q_lhs || x.size != y.size)
            return false;
    }
    return true;
}

bool is_right_twin(const Lattice& a, const Lattice& b) {
    if (a.columns.size() != b.columns.size()) return false;
    for (size_t j = 0; j < a.columns.size(); ++j)
        if (b.columns[j].out != a.columns[j].out + 1) return false;
    return true;
}

Loops depth_of(const Lattice& lattice) {
    Loops loops;
    loops.loop[loops.count++] = {-1, lattice.channels, lattice.lhs_c, lattice.rhs_c, 0, -1};
    for (int i = 0; i < lattice.dims; ++i)
        loops.loop[loops.count++] = {i, lattice.axes[i].taps, lattice.axes[i].t_lhs, lattice.axes[i].t_rhs, 0, -1};
    std::stable_sort(loops.loop, loops.loop + loops.count, [](const Loop& a, const Loop& b) { return std::abs(a.rhs) > std::abs(b.rhs); });
    return loops;
}

void add_axes(PointPart* part) {
    const Lattice& first = part->sets[0].lattice;
    part->axes = 0;
    part->axis[part->axes++] = {first.batch, 1, 1, 1, first.out_n, 0, 0, first.batch, first.lhs_n, 0};
    for (int i = 0; i < first.dims; ++i) {
        const LatticeAxis& a = first.axes[i];
        int64_t low = std::numeric_limits<int64_t>::max(), high = std::numeric_limits<int64_t>::min();
        for (const PointSet& set : part->sets) {
            const LatticeAxis& b = set.lattice.axes[i];
            if (set.depth == 0) continue;
            low = std::min(low, b.input);
            high = std::max(high, b.input + (b.taps - 1) * b.t_input);
        }
        if (high < low) low = high = 0;
        part->axis[part->axes++] = {a.positions, 1, 1, a.q_input, a.q_out, low, high - low, a.size, a.q_lhs / a.q_input, 0};
    }
    part->channels = first.channels;
    part->channel_step = first.lhs_c;
    part->origin = origin_of(first);
    part->orders = 0;
    part->order[part->orders++] = -1;
    for (int i = 0; i < part->axes; ++i) part->order[part->orders++] = i;
    auto step_of = [&](int axis) { return std::abs(axis < 0 ? part->channel_step : part->axis[axis].step); };
    std::stable_sort(part->order, part->order + part->orders, [&](int a, int b) { return step_of(a) > step_of(b); });
}

// Pitches of the scratch copy for the blocks as they stand; returns its elements.
int64_t lay_out(PointPart* part) {
    int64_t pitch = 1;
    for (int i = part->orders - 1; i >= 0; --i) {
        if (part->order[i] < 0) {
            if (pitch % kAliases == 0) pitch += 16;
            part->channel_pitch = pitch;
            pitch *= part->channels;
        } else {
            PointAxis& a = part->axis[part->order[i]];
            a.pitch = pitch;
            pitch *= (a.block - 1) * a.q_input + a.reach + 1;
        }
    }
    return pitch;
}

// Blocks are lines, or several neighbouring short ones.
void choose_blocks(PointPart* part, const PointTiles& tiles) {
    auto several = [&](int below) {
        while (--below >= 0 && part->axis[below].positions == 1) {
        }
        return below;
    };
    part->line = std::max(0, several(part->axes));
    part->row = several(part->line);
    int64_t columns = 1;
    for (const PointSet& set : part->sets) columns = std::max(columns, static_cast<int64_t>(set.lattice.columns.size()));
    const int64_t width = std::min<int64_t>(columns, int64_t{tiles.most_vectors} * tiles.lanes);
    const int64_t points = std::clamp(kSums / width, kFewPoints, kManyPoints);
    PointAxis& line = part->axis[part->line];
    line.block = even_block(line.positions, points);
    PointAxis* row = part->row >= 0 ? &part->axis[part->row] : nullptr;
    if (row != nullptr) row->block = even_block(row->positions, std::max<int64_t>(1, points / line.block));
    while (lay_out(part) > kScratchBytes / tiles.element) {
        PointAxis* axis = row != nullptr && row->block > 1 ? row : line.block > 8 ? &line : nullptr;
        if (axis == nullptr) break;
        axis->block = even_block(axis->positions, axis->block / 2);
    }
    // Few blocks of a line are as many as two threads or four share out evenly.
    const int64_t blocks = ceil_div(line.positions, line.block);
    if (blocks > kShare && blocks < kTasks * kShare) line.block = ceil_div(line.positions, ceil_div(blocks, kShare) * kShare);
    part->scratch = lay_out(part);
    for (int i = 0; i < part->axes; ++i) part->axis[i].blocks = ceil_div(part->axis[i].positions, part->axis[i].block);
}

void add_offsets(PointPart* whole, PointSet* set) {
    const PointPart& part = *whole;
    const Lattice& lattice = set->lattice;
    const int64_t steps = set->depth;
    set->in_place.reserve(static_cast<size_t>(steps));
    set->in_scratch.reserve(static_cast<size_t>(steps));
    int64_t digits[kMaxDims + 1] = {};
    for (int64_t k = 0; k < steps; ++k, set->loops.advance(digits)) {
        int64_t place = 0, copy = 0;
        for (int d = 0; d < set->loops.count; ++d) {
            const int i = set->loops.loop[d].axis;
            if (i < 0) {
                place += digits[d] * part.channel_step;
                copy += digits[d] * part.channel_pitch;
            } else {
                const PointAxis& axis = part.axis[i + 1];
                const int64_t index = lattice.axes[i].input + digits[d] * lattice.axes[i].t_input - axis.low;
                place += index * axis.step;
                copy += index * axis.pitch;
            }
        }
        if (std::abs(place) > std::numeric_limits<int32_t>::max()) whole->in_place = false;
        set->in_place.push_back(static_cast<int32_t>(place));
        set->in_scratch.push_back(static_cast<int32_t>(copy));
    }
}

std::vector<ColumnRun> runs_of(const Lattice& lattice, int64_t first, int count) {
    std::vector<ColumnRun> runs;
    auto out = [&](int j) { return lattice.columns[static_cast<size_t>(first + j)].out; };
    for (int j = 0; j < count;) {
        ColumnRun run{j, 1, out(j), 1};
        if (j + 1 < count) run.step = out(j + 1) - out(j);
        while (j + run.length < count && out(j + run.length) == run.out + run.length * run.step) ++run.length;
        j += run.length;
        runs.push_back(run);
    }
    return runs;
}

void add_panels(const PointTiles& tiles, PointSet* set) {
    const int64_t columns = static_cast<int64_t>(set->lattice.columns.size());
    const int64_t vectors = ceil_div(columns, tiles.lanes), panels = ceil_div(vectors, tiles.most_vectors);
    for (int64_t i = 0; i < panels; ++i) {
        const int64_t first = vectors * i / panels, last = vectors * (i + 1) / panels;
        PointPanel panel{};
        panel.first = first * tiles.lanes;
        panel.width = static_cast<int>(last - first) * tiles.lanes;
        panel.columns = static_cast<int>(std::min<int64_t>(panel.width, columns - panel.first));
        panel.runs = runs_of(set->lattice, panel.first, panel.columns);
        set->panels.push_back(panel);
    }
}

// Units in the order of their outputs: sets of the same features follow each other.
void add_units(PointPart* part, bool alternate) {
    std::vector<int> twin(part->sets.size(), -1);
    std::vector<bool> taken(part->sets.size(), false);
    const int sets = static_cast<int>(part->sets.size());
    for (int a = 0; a < sets && alternate; ++a)
        for (int b = 0; b < sets; ++b) {
            const size_t left = static_cast<size_t>(a), right = static_cast<size_t>(b);
            if (taken[left] || taken[right] || twin[left] >= 0 || a == b) continue;
            if (!is_right_twin(part->sets[left].lattice, part->sets[right].lattice)) continue;
            twin[left] = b;
            taken[right] = true;
        }
    for (int i = 0; i < sets; ++i) {
        if (taken[static_cast<size_t>(i)]) continue;
        const int panels = static_cast<int>(part->sets[static_cast<size_t>(i)].panels.size());
        for (int panel = 0; panel < panels; ++panel) part->units.push_back({i, twin[static_cast<size_t>(i)], panel});
    }
    auto place = [&](const PointUnit& unit) {
        const std::vector<PointPanel>& panels = part->sets[static_cast<size_t>(unit.set)].panels;
        return static_cast<double>(unit.panel) / static_cast<double>(panels.size());
    };
    std::stable_sort(part->units.begin(), part->units.end(), [&](const PointUnit& a, const PointUnit& b) { return place(a) < place(b); });
}

// Lattices as sets of parts.
std::vector<PointPart> make_parts(const Problem& problem, std::vector<Lattice> lattices, bool by_lines) {
    std::vector<PointPart> parts;
    auto add = [&](Lattice lattice) {
        sort_columns(&lattice, [&](const Column& a, const Column& b) {
            if (!by_lines) return a.out < b.out;
            // On the way out lines want features a constant step apart: phase after phase.
            const int64_t step = problem.out.outer[2];
            const int64_t phase_a = a.out - a.feature * step, phase_b = b.out - b.feature * step;
            return phase_a != phase_b ? phase_a < phase_b : a.feature < b.feature;
        });
        const int64_t depth = lattice.depth();
        for (PointPart& part : parts)
            if (share_points(part.sets[0].lattice, lattice)) {
                part.sets.push_back({std::move(lattice), depth, {}, {}, {}, {}, {}});
                return;
            }
        parts.push_back({});
        parts.back().sets.push_back({std::move(lattice), depth, {}, {}, {}, {}, {}});
    };
    for (Lattice& lattice : lattices) {
        if (lattice.rows() == 0 || lattice.columns.empty()) continue;
        Lattice right;
        const bool split = by_lines && alternates(lattice) && split_twins(&lattice, &right);
        add(std::move(lattice));
        if (split) add(std::move(right));
    }
    return parts;
}

}  // namespace

const char* plan_points(const Problem& problem, const PointTiles& tiles, bool merge, PointPlan* plan) {
    std::vector<Lattice> lattices = make_lattices(problem);
    plan->merged = false;
    if (merge && lattices.size() > 1) {
        std::vector<Lattice> merged = make_lattices(problem, true);
        plan->merged = cost_of(merged, tiles.lanes) < 0.9 * cost_of(lattices, tiles.lanes);
        if (plan->merged) lattices.swap(merged);
    }
    // Features that lie apart leave as lines of points, one line a feature.
    bool by_lines = !plan->merged && std::abs(problem.out.outer[2]) != 1 && problem.features >= kFewFeatures;
    for (const Lattice& lattice : lattices) by_lines = by_lines && line_step(lattice) > 0 && line_step(lattice) <= 2;
    plan->parts = make_parts(problem, std::move(lattices), by_lines);
    plan->packed = 0;
    for (PointPart& part : plan->parts) {
        add_axes(&part);
        choose_blocks(&part, tiles);
        if (part.scratch > kMostScratch) return "points: the input of a tile is too large";
        // Channels that lie apart are copied: a tile would read a cache line of each.
        part.in_place = part.channel_step == 1 || part.channels <= kFewChannels;
        part.empty = true;
        double products = 0;
        for (PointSet& set : part.sets) {
            set.loops = depth_of(set.lattice);
            set.rhs_loops = set.loops.merged_rhs();
            add_offsets(&part, &set);
            add_panels(tiles, &set);
            part.empty = part.empty && set.depth == 0;
            for (PointPanel& panel : set.panels) {
                panel.packed = plan->packed;
                plan->packed += panel.width * set.depth;
                part.width = std::max<int64_t>(part.width, panel.width);
            }
            products +=
                static_cast<double>(set.lattice.rows()) * static_cast<double>(set.lattice.columns.size()) * static_cast<double>(set.depth);
        }
        if (plan->packed > kMostPacked / problem.groups) return "points: the weights are too large to pack";
        add_units(&part, by_lines && alternates(part.sets[0].lattice));
        const double tasks = std::min(static_cast<double>(kTasks), products * static_cast<double>(problem.groups) / kTaskProducts);
        const int64_t more = ceil_div(static_cast<int64_t>(tasks), problem.groups * part.blocks());
        part.pieces = std::clamp<int64_t>(more, 1, static_cast<int64_t>(part.units.size()));
    }
    return nullptr;
}

}  // namespace fastconv
