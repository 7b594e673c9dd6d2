#include "drivers/lattice.h"

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// Phases of one axis in one lattice: they have the same number of positions and, unless they are merged, the same number of
// taps and the same first input index.
struct PhaseGroup {
    LatticeAxis axis;
    std::vector<int64_t> rhs, out, input, taps;  // of each phase: offset of its first tap and output, first input index, taps
};

// Stretches the taps of a group over those of all its phases.
void merge_taps(PhaseGroup* group) {
    LatticeAxis& axis = group->axis;
    int64_t low = 0, high = -1;  // input indices at position 0
    for (size_t i = 0; i < group->taps.size(); ++i) {
        if (group->taps[i] == 0) continue;
        const int64_t last = group->input[i] + (group->taps[i] - 1) * axis.t_input;
        low = high < low ? group->input[i] : std::min(low, group->input[i]);
        high = std::max(high, last);
    }
    axis.input = low;
    axis.taps = high < low ? 0 : (high - low) / axis.t_input + 1;
}

std::vector<PhaseGroup> make_groups(const Axis& a, int64_t lhs_step, int64_t rhs_step, int64_t out_step, bool merged) {
    const Solver positions(a.stride, a.lhs_dilation, a.size);
    const Solver taps(a.rhs_dilation, a.lhs_dilation, a.size);
    const int64_t period = positions.period();
    std::vector<PhaseGroup> groups;
    for (int64_t phase = 0; phase < period && phase < a.out; ++phase) {
        const int64_t count = ceil_div(a.out - phase, period);
        const int64_t base = phase * a.stride - a.lo;
        int64_t tap = taps.residue(base), number = 0, input = 0;
        if (tap >= 0 && tap < a.kernel) {
            number = ceil_div(a.kernel - tap, taps.period());
            input = (base + tap * a.rhs_dilation) / a.lhs_dilation;  // exact
            // Drop taps that meet no data at any position.
            const int64_t step = taps.input_step(), reach = (count - 1) * positions.input_step();
            if (input + reach < 0) {
                const int64_t skip = ceil_div(-(input + reach), step);
                tap += skip * taps.period(), input += skip * step, number -= skip;
            }
            if (number > 0 && input + (number - 1) * step >= a.size) number = input >= a.size ? 0 : (a.size - 1 - input) / step + 1;
            if (number < 0) number = 0;
        }
        if (number == 0) tap = 0, input = 0;
        PhaseGroup* group = nullptr;
        for (PhaseGroup& g : groups) {
            // Merged phases meet on one grid of inputs; a phase without taps is on any.
            const bool same =
                merged ? floor_mod(g.axis.input - input, taps.input_step()) == 0 : g.axis.taps == number && g.axis.input == input;
            if (g.axis.positions == count && (same || (merged && number == 0))) group = &g;
        }
        if (group == nullptr) {
            groups.push_back({});
            group = &groups.back();
            group->axis.positions = count;
            group->axis.q_input = positions.input_step();
            group->axis.q_lhs = positions.input_step() * lhs_step;
            group->axis.q_out = period * out_step;
            group->axis.taps = number;
            group->axis.t_input = taps.input_step();
            group->axis.t_lhs = taps.input_step() * lhs_step;
            group->axis.t_rhs = taps.period() * rhs_step;
            group->axis.input = input;
            group->axis.size = a.size;
        }
        group->rhs.push_back(tap * rhs_step);
        group->out.push_back(phase * out_step);
        group->input.push_back(input);
        group->taps.push_back(number);
    }
    if (merged)
        for (PhaseGroup& group : groups) merge_taps(&group);
    return groups;
}

}  // namespace

int64_t Lattice::rows() const {
    int64_t count = batch;
    for (int i = 0; i < dims; ++i) count *= axes[i].positions;
    return count;
}

int64_t Lattice::depth() const {
    int64_t count = channels;
    for (int i = 0; i < dims; ++i) count *= axes[i].taps;
    return count;
}

std::vector<Lattice> make_lattices(const Problem& problem, bool merged) {
    const Problem p = sort_axes(problem);
    std::vector<std::vector<PhaseGroup>> groups;
    for (int i = 0; i < p.dims; ++i) {
        groups.push_back(make_groups(p.axes[i], p.lhs.spatial[i], p.rhs.spatial[i], p.out.spatial[i], merged));
        if (groups.back().empty()) return {};  // no output
    }
    std::vector<Lattice> lattices;
    std::vector<size_t> turn(static_cast<size_t>(p.dims), 0);
    for (;;) {  // every combination of one phase group per axis
        Lattice lattice;
        lattice.dims = 0;  // axes of one position and one tap are constant, unless merged: their tap was kept because it meets data
        lattice.batch = p.batch, lattice.lhs_n = p.lhs.outer[1], lattice.out_n = p.out.outer[1];
        lattice.channels = p.channels, lattice.lhs_c = p.lhs.outer[2], lattice.rhs_c = p.rhs.outer[2];
        lattice.lhs = p.lhs.offset;
        for (int64_t o = 0; o < p.features; ++o)
            lattice.columns.push_back({p.rhs.offset + o * p.rhs.outer[1], p.out.offset + o * p.out.outer[2], o});
        for (int i = 0; i < p.dims; ++i) {
            const PhaseGroup& group = groups[static_cast<size_t>(i)][turn[static_cast<size_t>(i)]];
            if (merged || group.axis.positions != 1 || group.axis.taps != 1) lattice.axes[lattice.dims++] = group.axis;
            lattice.lhs += group.axis.input * p.lhs.spatial[i];
            std::vector<Column> columns;
            std::vector<TapRange> ranges;
            for (size_t j = 0; j < lattice.columns.size(); ++j)
                for (size_t phase = 0; phase < group.rhs.size(); ++phase) {
                    const Column& column = lattice.columns[j];
                    int64_t rhs = column.rhs + group.rhs[phase];
                    if (merged) {
                        const size_t at = j * static_cast<size_t>(i);
                        ranges.insert(ranges.end(), lattice.ranges.begin() + static_cast<int64_t>(at),
                                      lattice.ranges.begin() + static_cast<int64_t>(at) + i);
                        const int64_t taps = group.taps[phase];
                        const int64_t first = taps == 0 ? 0 : (group.input[phase] - group.axis.input) / group.axis.t_input;
                        ranges.push_back({first, first + taps});
                        rhs -= first * group.axis.t_rhs;
                    }
                    columns.push_back({rhs, column.out + group.out[phase], column.feature});
                }
            lattice.columns.swap(columns);
            lattice.ranges.swap(ranges);
        }
        lattices.push_back(lattice);
        int i = p.dims - 1;
        for (; i >= 0; --i) {
            const size_t at = static_cast<size_t>(i);
            if (++turn[at] < groups[at].size()) break;
            turn[at] = 0;
        }
        if (i < 0) return lattices;
    }
}

}  // namespace fastconv
