#include "drivers/points_weights.h"

#include <algorithm>
#include <cstdlib>

namespace fastconv {
namespace {

// One tap of one phase: where it lies in rhs and in the depth of its set, for the first feature and channel.
struct PhaseTap {
    const PointSet* set;
    size_t column;
    int64_t from, depth, channel;  // channel: depth steps from one to the next
};

// Whether a set's columns are its phases in turn, each all features in order.
bool by_phases(const Problem& p, const Lattice& lattice) {
    const size_t features = static_cast<size_t>(p.features);
    if (lattice.columns.size() % features != 0) return false;
    for (size_t j = 0; j < lattice.columns.size(); ++j) {
        const Column &column = lattice.columns[j], &first = lattice.columns[j / features * features];
        const int64_t feature = static_cast<int64_t>(j % features);
        if (column.feature != feature || column.rhs != first.rhs + feature * p.rhs.outer[1]) return false;
    }
    return true;
}

void add_taps(const Problem& p, const PointSet& set, std::vector<PhaseTap>* taps) {
    int64_t step[kMaxDims + 1], channel = 1, taps_of_phase = 1;
    for (int64_t d = set.loops.count - 1, steps = 1; d >= 0; --d) {
        step[d] = steps;
        steps *= set.loops.loop[d].extent;
        if (set.loops.loop[d].axis < 0)
            channel = step[d];
        else
            taps_of_phase *= set.loops.loop[d].extent;
    }
    for (size_t column = 0; column < set.lattice.columns.size(); column += static_cast<size_t>(p.features))
        for (int64_t tap = 0; tap < taps_of_phase; ++tap) {
            PhaseTap at{&set, column, set.lattice.columns[column].rhs, 0, channel};
            int64_t rest = tap;
            for (int d = 0; d < set.loops.count; ++d) {
                const Loop& loop = set.loops.loop[d];
                if (loop.axis < 0) continue;
                at.from += rest % loop.extent * loop.rhs;
                at.depth += rest % loop.extent * step[d];
                rest /= loop.extent;
            }
            taps->push_back(at);
        }
}

const PointPanel& panel_of(const PointSet& set, int64_t column) {
    size_t i = 0;
    while (column >= set.panels[i].first + set.panels[i].width) ++i;
    return set.panels[i];
}

}  // namespace

WeightRuns find_weight_runs(const Problem& p, const PointPlan& plan, int lanes) {
    size_t sets = 0, columns = 0;
    for (const PointPart& part : plan.parts)
        for (const PointSet& set : part.sets) {
            if (set.depth == 0) continue;
            if (p.features % lanes != 0 || plan.merged || !by_phases(p, set.lattice)) return {};
            ++sets;
            columns += set.lattice.columns.size();
        }
    if (columns <= static_cast<size_t>(p.features)) return {};  // one phase: its channels and taps are one run
    std::vector<PhaseTap> taps;
    for (const PointPart& part : plan.parts)
        for (const PointSet& set : part.sets)
            if (set.depth > 0) add_taps(p, set, &taps);
    const int64_t length = static_cast<int64_t>(taps.size());
    if (length < lanes / 2 || length > kMostTapsInRun) return {};
    std::sort(taps.begin(), taps.end(), [](const PhaseTap& a, const PhaseTap& b) { return a.from < b.from; });
    for (int64_t k = 0; k < length; ++k)
        if (taps[static_cast<size_t>(k)].from != taps[0].from + k) return {};
    WeightRuns runs;
    runs.length = length;
    runs.first = taps[0].from;
    for (int64_t feature = 0; feature < p.features; feature += lanes)
        for (const PhaseTap& tap : taps) {
            const int64_t column = static_cast<int64_t>(tap.column) + feature;
            const PointPanel& panel = panel_of(*tap.set, column);
            runs.to.push_back(panel.packed + tap.depth * panel.width + column - panel.first);
            runs.step.push_back(tap.channel * panel.width);
        }
    return runs;
}

template <class T>
bool pack_weight_runs(const WeightRuns& runs, const Problem& p, const PointKernels<T>& kernels, const T* data, int64_t first, int64_t count,
                      T* packed) {
    // Features next to channels, or the other way round, as they lie in memory.
    const int64_t vectors = p.features / kernels.lanes;
    const bool apart = std::abs(p.rhs.outer[1]) > std::abs(p.rhs.outer[2]);
    int64_t place[kMostTapsInRun];
    bool finite = true;
    for (int64_t i = 0; i < count * vectors; ++i) {
        const int64_t channel = first + (apart ? i % count : i / vectors), vector = apart ? i / count : i % vectors;
        const int64_t *to = runs.to.data() + vector * runs.length, *step = runs.step.data() + vector * runs.length;
        for (int64_t k = 0; k < runs.length; ++k) place[k] = to[k] + channel * step[k];
        const T* from = data + runs.first + channel * p.rhs.outer[2] + vector * kernels.lanes * p.rhs.outer[1];
        finite &= kernels.spread(packed, place, from, p.rhs.outer[1], runs.length);
    }
    return finite;
}

template bool pack_weight_runs<float>(const WeightRuns&, const Problem&, const PointKernels<float>&, const float*, int64_t, int64_t,
                                      float*);
template bool pack_weight_runs<double>(const WeightRuns&, const Problem&, const PointKernels<double>&, const double*, int64_t, int64_t,
                                       double*);

}  // namespace fastconv
