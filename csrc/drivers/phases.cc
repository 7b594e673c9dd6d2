#include "drivers/phases.h"

#include <algorithm>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// The problem with phase `phase` of axis i in place of the axis.
Problem take_phase(const Problem& problem, int i, int64_t phase) {
    Problem p = problem;
    Axis& a = p.axes[i];
    const Solver positions(a.stride, a.lhs_dilation, a.size), taps(a.rhs_dilation, a.lhs_dilation, a.size);
    const int64_t base = phase * a.stride - a.lo, first = taps.residue(base);
    const bool met = first >= 0 && first < a.kernel;
    a.out = ceil_div(a.out - phase, positions.period());
    a.kernel = met ? ceil_div(a.kernel - first, taps.period()) : 0;
    a.lo = met ? -((base + first * a.rhs_dilation) / a.lhs_dilation) : 0;  // exact
    a.stride = positions.input_step();
    a.rhs_dilation = taps.input_step();
    a.lhs_dilation = 1;
    p.rhs.offset += (met ? first : 0) * p.rhs.spatial[i];
    p.rhs.spatial[i] *= taps.period();
    p.out.offset += phase * p.out.spatial[i];
    p.out.spatial[i] *= positions.period();
    return p;
}

}  // namespace

std::vector<Problem> split_phases(const Problem& problem) {
    std::vector<Problem> parts{problem};
    for (int i = 0; i < problem.dims; ++i) {
        const Axis& a = problem.axes[i];
        if (a.lhs_dilation == 1) continue;
        const int64_t period = Solver(a.stride, a.lhs_dilation, a.size).period();
        std::vector<Problem> split;
        for (const Problem& part : parts)
            for (int64_t phase = 0; phase < std::min(period, a.out); ++phase) split.push_back(take_phase(part, i, phase));
        parts.swap(split);
    }
    return parts;
}

}  // namespace fastconv
