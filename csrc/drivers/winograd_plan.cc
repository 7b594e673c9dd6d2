#include "drivers/winograd_plan.h"

#include <algorithm>
#include <utility>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kInputBytes = 1 << 20;  // transformed input of one task: stays in the second cache
constexpr int64_t kFewTiles = 14;         // ... unless so few tiles exceed it: the weights stream past each task
constexpr int64_t kMostTiles = 56;
constexpr double kMostWeights = 1 << 30;   // elements of transformed weights
constexpr double kMostInputs = 1 << 25;    // elements of one task's transformed input
constexpr double kMostFeatures = 1 << 18;  // the direct algorithm must be able to take over

// Cycles: of copying a vector in, of transforming one tile of one vector of channels in and out; of reading a vector of transformed
// weights, from the second cache and, where they take more bytes than that, from beyond it; of transforming it.
constexpr double kCopy = 4, kTransform = 24, kOutput = 40, kNear = 1, kFar = 5, kMade = 8;
constexpr int64_t kNearBytes = 1 << 20;

bool transformable(const Axis& a) { return a.kernel == 3 && a.stride == 1 && a.rhs_dilation == 1 && a.lhs_dilation == 1; }

void move_axis(Problem* p, int from, int to) {
    for (; from < to; ++from) {
        std::swap(p->axes[from], p->axes[from + 1]);
        for (Operand* operand : {&p->lhs, &p->rhs, &p->out}) std::swap(operand->spatial[from], operand->spatial[from + 1]);
    }
}

// The two transformable axes that lie innermost in lhs go last, in this order. False when there are none.
bool choose_axes(Problem* p) {
    *p = sort_axes(*p);
    int inner = p->dims - 1;
    while (inner >= 0 && !transformable(p->axes[inner])) --inner;
    int next = inner - 1;
    while (next >= 0 && !transformable(p->axes[next])) --next;
    if (next < 0) return false;
    move_axis(p, inner, p->dims - 1);
    move_axis(p, next, p->dims - 2);
    return true;
}

double task_cycles(const WinogradPlan& w, int64_t item_bytes) {
    const double tiles = static_cast<double>(w.task_tiles()), depth = static_cast<double>(w.taps * w.blocks);
    const double vectors = static_cast<double>(std::min(2 * w.pairs, w.vectors));
    const double copies = static_cast<double>((2 * w.rows + 2) * w.columns());
    const double products = 16.0 * static_cast<double>(w.p.channels * w.taps) * vectors;
    const bool near = !w.share_weights() || w.weights() * item_bytes <= kNearBytes;
    const double weights = (near ? kNear : kFar) + (w.share_weights() ? 0 : kMade);
    return depth * (kCopy * copies + kTransform * tiles) + products * (tiles / 2 + weights) + kOutput * tiles * vectors;
}

// Time of all tasks on few and on many threads, weighed alike.
double makespan(const WinogradPlan& w, int64_t item_bytes) {
    double total = 0;
    for (const int64_t threads : {2, 8}) total += static_cast<double>(threads * ceil_div(w.tasks(), threads));
    if (!w.share_weights()) return total * task_cycles(w, item_bytes);
    const double made = (kMade + kFar) * static_cast<double>(w.p.groups * w.weights() / w.lanes);  // before the tasks, by all threads
    return total * task_cycles(w, item_bytes) + 2 * made;
}

}  // namespace

const char* plan_winograd(const Problem& problem, int lanes, int64_t item_bytes, WinogradPlan* plan) {
    WinogradPlan& w = *plan;
    w = WinogradPlan{};
    w.p = problem;
    if (problem.dims < 2 || !choose_axes(&w.p)) return "winograd: needs two axes with 3 taps, stride 1 and no dilation";
    w.outer = problem.dims - 2;
    double weights = 16.0 * static_cast<double>(problem.channels);
    for (int i = 0; i < w.outer; ++i) {
        if (w.p.axes[i].lhs_dilation != 1) return "winograd: the input is dilated";
        weights *= static_cast<double>(w.p.axes[i].kernel);
    }
    if (problem.channels == 0 || weights == 0) return "winograd: there is nothing to sum";
    if ((weights + 16.0 * lanes) * kFewTiles > kMostInputs) return "winograd: too many channels";
    if (static_cast<double>(problem.features) > kMostFeatures) return "winograd: too many features";
    weights *= static_cast<double>(problem.groups) * static_cast<double>(problem.features + lanes);
    if (weights > kMostWeights) return "winograd: too many weights";

    w.lanes = lanes;
    w.blocks = ceil_div(problem.channels, lanes);
    w.vectors = ceil_div(problem.features, lanes);
    w.taps = 1;
    w.planes = problem.batch;
    for (int i = 0; i < w.outer; ++i) {
        w.taps *= w.p.axes[i].kernel;
        w.planes *= w.p.axes[i].out;
    }
    w.tiles_y = ceil_div(w.y().out, 2);
    w.tiles_x = ceil_div(w.x().out, 2);
    const int64_t tile_bytes = 16 * w.taps * w.blocks * lanes * item_bytes;
    const int64_t most_tiles = std::min(std::max(kInputBytes / tile_bytes, kFewTiles), kMostTiles);
    w.segments = ceil_div(w.tiles_x, most_tiles);
    w.width = ceil_div(w.tiles_x, w.segments);
    w.segments = ceil_div(w.tiles_x, w.width);

    double best = 0;
    WinogradPlan chosen = w;
    const int64_t most_rows = std::min({most_tiles / w.width, w.tile_rows(), kWinogradRows});
    for (w.rows = 1; w.rows <= std::max<int64_t>(most_rows, 1); ++w.rows) {
        w.row_tasks = ceil_div(w.tile_rows(), w.rows);
        for (w.splits = 1; w.splits <= std::min<int64_t>(w.all_pairs(), 16); ++w.splits) {
            w.pairs = ceil_div(w.all_pairs(), w.splits);
            if (ceil_div(w.all_pairs(), w.pairs) != w.splits) continue;
            const double time = makespan(w, item_bytes);
            if (best == 0 || time < best) {
                best = time;
                chosen = w;
            }
        }
    }
    w = chosen;
    return nullptr;
}

}  // namespace fastconv
