#include "drivers/grouped.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "drivers/bare.h"
#include "drivers/drivers.h"
#include "drivers/exchange.h"
#include "drivers/geometry.h"
#include "drivers/phases.h"

namespace fastconv {

const char* const kSuspicious = "grouped: infinite or NaN";

namespace {

constexpr int64_t kMaxPhases = 64;  // each is a problem of its own

SweepAxis sweep_axis(const Problem& p, int i, bool gradient) {
    const Axis& a = p.axes[i];
    if (gradient) return {a.size, a.out, a.kernel, a.rhs_dilation, a.stride, a.lo, p.lhs.spatial[i], p.out.spatial[i], p.rhs.spatial[i]};
    return {a.size, a.kernel, a.out, a.stride, a.rhs_dilation, a.lo, p.lhs.spatial[i], p.rhs.spatial[i], p.out.spatial[i]};
}

}  // namespace

int64_t Sweep::far_positions() const {
    int64_t count = 1;
    for (int i = 0; i < far; ++i) count *= axes[i].positions;
    return count;
}

int64_t Sweep::far_taps() const {
    int64_t count = 1;
    for (int i = 0; i < far; ++i) count *= axes[i].taps;
    return count;
}

bool Sweep::far_input(int64_t position, int64_t tap, int64_t* offset) const {
    *offset = 0;
    for (int i = far - 1; i >= 0; --i) {
        const SweepAxis& a = axes[i];
        const int64_t index = position % a.positions * a.stride + tap % a.taps * a.dilation - a.lo;
        if (index < 0 || index >= a.size) return false;
        *offset += index * a.in;
        position /= a.positions;
        tap /= a.taps;
    }
    return true;
}

int64_t Sweep::far_out(int64_t position) const {
    int64_t offset = 0;
    for (int i = far - 1; i >= 0; --i) {
        offset += position % axes[i].positions * axes[i].out;
        position /= axes[i].positions;
    }
    return offset;
}

int64_t Sweep::far_weight(int64_t tap) const {
    int64_t offset = 0;
    for (int i = far - 1; i >= 0; --i) {
        offset += tap % axes[i].taps * axes[i].weight;
        tap /= axes[i].taps;
    }
    return offset;
}

int64_t Sweep::products() const {
    return groups * images * features * channels * far_positions() * far_taps() * y.positions * y.taps * x.positions * x.taps;
}

bool is_gradient(const Problem& p) {
    double outputs = 1, taps = 1;
    for (int i = 0; i < p.dims; ++i) {
        outputs *= static_cast<double>(p.axes[i].out);
        taps *= static_cast<double>(p.axes[i].kernel);
    }
    return outputs * static_cast<double>(p.batch) < taps * static_cast<double>(p.channels);
}

Sweep make_sweep(const Problem& p, bool gradient) {
    Sweep s{};
    s.gradient = gradient;
    s.groups = p.groups;
    s.features = p.features;
    s.channels = gradient ? p.batch : p.channels;
    s.images = gradient ? p.channels : p.batch;
    s.in = p.lhs.offset;
    s.in_group = p.lhs.outer[0];
    s.in_image = p.lhs.outer[gradient ? 2 : 1];
    s.in_channel = p.lhs.outer[gradient ? 1 : 2];
    const Operand& weight = gradient ? p.out : p.rhs;
    s.weight = weight.offset;
    s.weight_group = weight.outer[0];
    s.weight_feature = weight.outer[gradient ? 2 : 1];
    s.weight_channel = weight.outer[gradient ? 1 : 2];
    const Operand& out = gradient ? p.rhs : p.out;
    s.out = out.offset;
    s.out_group = out.outer[0];
    s.out_image = out.outer[gradient ? 2 : 1];
    s.out_feature = out.outer[gradient ? 1 : 2];
    std::vector<SweepAxis> axes;
    for (int i = 0; i < p.dims; ++i) axes.push_back(sweep_axis(p, i, gradient));
    std::stable_sort(axes.begin(), axes.end(), [](const SweepAxis& a, const SweepAxis& b) { return std::abs(a.in) > std::abs(b.in); });
    if (axes.empty()) {  // a matrix product: the images are its positions
        axes.push_back({s.images, 1, s.images, 1, 1, 0, s.in_image, 0, s.out_image});
        s.images = 1;
    }
    s.x = axes.back();
    axes.pop_back();
    s.y = {1, 1, 1, 1, 1, 0, 0, 0, 0};
    if (!axes.empty()) {
        s.y = axes.back();
        axes.pop_back();
    }
    s.far = static_cast<int>(axes.size());
    std::copy(axes.begin(), axes.end(), s.axes);
    return s;
}

namespace {

template <class T>
const char* run_grouped_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    int64_t phases = 1;
    for (int i = 0; i < problem.dims; ++i) {
        phases *= std::min(problem.axes[i].lhs_dilation, problem.axes[i].out);
        if (phases > kMaxPhases) return "grouped: too many phases";
    }
    const T* lhs = static_cast<const T*>(buffers.lhs.data);
    const T* rhs = static_cast<const T*>(buffers.rhs.data);
    T* out = static_cast<T*>(buffers.out.data);
    const Finish<T> finish{problem.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr, problem.bias_stride, problem.activation};
    for (const Problem& part : split_phases(problem)) {
        const char* why = nullptr;
        if (is_bare(part)) {
            why = run_general(part, buffers, executor);
        } else {
            const Sweep sweep = make_sweep(part, is_gradient(part));
            const bool pixels = std::abs(sweep.x.in) == 1 || sweep.in_channel != 1;
            why = pixels ? run_grouped_pixels<T>(sweep, lhs, rhs, out, finish, executor)
                         : run_grouped_lanes<T>(sweep, lhs, rhs, out, finish, executor);
        }
        if (why == kSuspicious) return run_general(problem, buffers, executor);
        if (why != nullptr) return why;
    }
    return nullptr;
}

}  // namespace

const char* run_grouped(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (exchanges(problem)) return run_grouped(exchange(problem), exchange(buffers), executor);
    if (problem.dtype != problem.out_dtype) return "grouped: the output type must be the operands'";
    if (problem.dtype == Dtype::f32) return run_grouped_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_grouped_as<double>(problem, buffers, executor);
    return "grouped: f32 and f64 only";
}

}  // namespace fastconv
