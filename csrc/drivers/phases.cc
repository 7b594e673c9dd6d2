#include "drivers/phases.h"

#include <algorithm>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// The same with phase `phase` of axis i in place of the axis.
Phase take_phase(const Phase& whole, int i, int64_t phase) {
    Phase part = whole;
    Problem& p = part.problem;
    Axis& a = p.axes[i];
    const Solver positions(a.stride, a.lhs_dilation, a.size), taps(a.rhs_dilation, a.lhs_dilation, a.size);
    const int64_t base = phase * a.stride - a.lo, first = taps.residue(base);
    const bool met = first >= 0 && first < a.kernel;
    part.first[i] = phase;
    part.step[i] = positions.period();
    part.tap_first[i] = met ? first : 0;
    part.tap_step[i] = taps.period();
    a.out = ceil_div(a.out - phase, positions.period());
    a.kernel = met ? ceil_div(a.kernel - first, taps.period()) : 0;
    a.lo = met ? -((base + first * a.rhs_dilation) / a.lhs_dilation) : 0;  // exact
    a.stride = positions.input_step();
    a.rhs_dilation = taps.input_step();
    a.lhs_dilation = 1;
    p.rhs.offset += part.tap_first[i] * p.rhs.spatial[i];
    p.rhs.spatial[i] *= taps.period();
    p.out.offset += phase * p.out.spatial[i];
    p.out.spatial[i] *= positions.period();
    return part;
}

}  // namespace

std::vector<Phase> phases_of(const Problem& problem) {
    std::vector<Phase> parts{{problem, {}, {}, {}, {}}};
    for (int i = 0; i < problem.dims; ++i) parts.front().step[i] = parts.front().tap_step[i] = 1;
    for (int i = 0; i < problem.dims; ++i) {
        const Axis& a = problem.axes[i];
        if (a.lhs_dilation == 1) continue;
        const int64_t period = Solver(a.stride, a.lhs_dilation, a.size).period();
        std::vector<Phase> split;
        for (const Phase& part : parts)
            for (int64_t phase = 0; phase < std::min(period, a.out); ++phase) split.push_back(take_phase(part, i, phase));
        parts.swap(split);
    }
    return parts;
}

std::vector<Problem> split_phases(const Problem& problem) {
    std::vector<Problem> problems;
    for (const Phase& part : phases_of(problem)) problems.push_back(part.problem);
    return problems;
}

}  // namespace fastconv
