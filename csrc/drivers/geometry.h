// Index arithmetic of one spatial axis: which positions or taps meet data.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "problem.h"

namespace fastconv {

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
inline int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
inline int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

inline int64_t gcd(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// The same problem with its axes in order of falling lhs stride, so that neighbours in memory come last.
inline Problem sort_axes(const Problem& problem) {
    Problem p = problem;
    for (int i = 1; i < p.dims; ++i)
        for (int j = i; j > 0 && std::abs(p.lhs.spatial[j - 1]) < std::abs(p.lhs.spatial[j]); --j) {
            std::swap(p.axes[j - 1], p.axes[j]);
            for (Operand* operand : {&p.lhs, &p.rhs, &p.out}) std::swap(operand->spatial[j - 1], operand->spatial[j]);
        }
    return p;
}

// The values first, first + step, ... (count of them), and the input index at the first one.
struct Progression {
    int64_t first, count, input;
};

// Solves for v in [0, extent): (base + v * step) / lhs_dilation is an integer in [0, size).
class Solver {
public:
    Solver() = default;
    Solver(int64_t step, int64_t lhs_dilation, int64_t size) : step_(step), dilation_(lhs_dilation), size_(size) {
        common_ = gcd(step, lhs_dilation);
        period_ = lhs_dilation / common_;
        inverse_ = 0;
        if (period_ > 1) {  // extended Euclid: (step / common) * inverse = 1 modulo period
            int64_t a = (step / common_) % period_, b = period_, x = 1, y = 0;
            while (b != 0) {
                const int64_t q = a / b, r = a % b, z = x - q * y;
                a = b, b = r, x = y, y = z;
            }
            inverse_ = floor_mod(x, period_);
        }
    }

    // Distance of two solutions, and how far the input index moves between them.
    int64_t period() const { return period_; }
    int64_t input_step() const { return step_ / common_; }

    // The smallest v >= 0 for which base + v * step is a multiple of lhs_dilation, or -1.
    int64_t residue(int64_t base) const {
        if (base % common_ != 0) return -1;
        return period_ == 1 ? 0 : floor_mod(-base / common_, period_) * inverse_ % period_;
    }

    Progression solve(int64_t base, int64_t extent) const {
        const int64_t start = residue(base);
        if (size_ == 0 || start < 0) return {0, 0, 0};
        int64_t first = base >= 0 ? 0 : ceil_div(-base, step_);
        int64_t last = floor_div((size_ - 1) * dilation_ - base, step_);
        if (last > extent - 1) last = extent - 1;
        first += floor_mod(start - first, period_);
        if (last < first) return {0, 0, 0};
        return {first, (last - first) / period_ + 1, (base + first * step_) / dilation_};
    }

private:
    int64_t step_ = 1, dilation_ = 1, size_ = 0, common_ = 1, period_ = 1, inverse_ = 0;
};

}  // namespace fastconv
