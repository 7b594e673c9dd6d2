#include "drivers/exchange.h"

#include <utility>

namespace fastconv {

bool exchanges(const Problem& p) {
    bool dilated = false;
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        if (a.rhs_dilation != 1 || a.kernel < a.out || a.size == 0 || a.out == 0) return false;
        if (a.lhs_dilation > 1 && a.kernel == a.out) return false;
        dilated = dilated || a.lhs_dilation > 1;
    }
    return dilated && !p.has_bias && p.activation == Activation::none;
}

namespace {

void flip(Operand* operand, int axis, int64_t extent) {
    operand->offset += (extent - 1) * operand->spatial[axis];
    operand->spatial[axis] = -operand->spatial[axis];
}

}  // namespace

// k = i * lhs_dilation - p * stride + lo: p must be counted from its other end to add to k, or i and k from theirs. Elements that lie
// backwards are moved alone, so it is whichever are fewer.
Problem exchange(const Problem& problem) {
    Problem p = problem;
    std::swap(p.lhs, p.rhs);
    std::swap(p.batch, p.features);
    std::swap(p.out.outer[1], p.out.outer[2]);
    double lhs = static_cast<double>(p.batch * p.channels), rhs = static_cast<double>(p.features * p.channels);
    double out = static_cast<double>(p.batch * p.features);
    for (int i = 0; i < p.dims; ++i) {
        lhs *= static_cast<double>(p.axes[i].kernel);
        rhs *= static_cast<double>(p.axes[i].size);
        out *= static_cast<double>(p.axes[i].out);
    }
    for (int i = 0; i < p.dims; ++i) {
        const Axis a = p.axes[i];
        int64_t lo = (a.out - 1) * a.stride - a.lo;
        if (out <= lhs + rhs) {
            flip(&p.out, i, a.out);
        } else {
            flip(&p.lhs, i, a.kernel);
            flip(&p.rhs, i, a.size);
            lo = (a.size - 1) * a.lhs_dilation + a.lo - (a.kernel - 1);
        }
        p.axes[i] = {a.kernel, a.size, a.out, a.stride, lo, 1, a.lhs_dilation};
    }
    return p;
}

Buffers exchange(const Buffers& buffers) { return {buffers.rhs, buffers.lhs, buffers.bias, buffers.out}; }

}  // namespace fastconv
