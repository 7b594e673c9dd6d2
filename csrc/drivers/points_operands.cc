#include "drivers/points_operands.h"

#include <algorithm>
#include <cstring>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// One dimension of the scratch copy: the channels or an axis.
struct Span {
    int64_t count, begin, end;  // indices; data lies at begin <= index < end
    int64_t step, pitch;
    int64_t period, reach;  // indices used: those with index % period <= reach
};

Span span_of(const PointPart& part, const PointBlock& b, int axis, int64_t* start) {
    if (axis < 0) return {part.channels, 0, part.channels, part.channel_step, part.channel_pitch, 1, 0};
    const PointAxis& a = part.axis[axis];
    const int64_t index = b.first[axis] * a.q_input + a.low, count = (b.count[axis] - 1) * a.q_input + a.reach + 1;
    const int64_t begin = std::clamp<int64_t>(-index, 0, count);
    *start += index * a.step;
    return {count, begin, std::clamp<int64_t>(a.size - index, begin, count), a.step, a.pitch, a.q_input, a.reach};
}

// Its indices first, first + period, ...
Span every_period(const Span& span, int64_t first) {
    auto before = [&](int64_t index) { return std::max<int64_t>(0, ceil_div(index - first, span.period)); };
    return {before(span.count), before(span.begin), before(span.end), span.step * span.period, span.pitch * span.period, 1, 0};
}

// from: nullptr where all of it is padding.
template <class T>
void copy_plane(const PointKernels<T>& kernels, const Span& rows, const Span& line, int64_t unit, const T* from, T* to) {
    const int64_t length = line.count * unit, begin = line.begin * unit, end = line.end * unit;
    const int64_t first = from == nullptr ? rows.count : rows.begin, last = from == nullptr ? rows.count : rows.end;
    for (int64_t i = 0; i < first; ++i) std::memset(to + i * rows.pitch, 0, static_cast<size_t>(length) * sizeof(T));
    for (int64_t i = last; i < rows.count; ++i) std::memset(to + i * rows.pitch, 0, static_cast<size_t>(length) * sizeof(T));
    if (begin > 0)
        for (int64_t i = first; i < last; ++i) std::memset(to + i * rows.pitch, 0, static_cast<size_t>(begin) * sizeof(T));
    if (end < length)
        for (int64_t i = first; i < last; ++i) std::memset(to + i * rows.pitch + end, 0, static_cast<size_t>(length - end) * sizeof(T));
    if (unit > 1 || line.step == 1) {
        if (first < last && begin < end)
            kernels.copy(to + first * rows.pitch + begin, rows.pitch, from + first * rows.step + begin, rows.step, last - first,
                         end - begin);
        return;
    }
    for (int64_t i = first; i < last; ++i)
        for (int64_t j = begin; j < end; ++j) to[i * rows.pitch + j] = from[i * rows.step + j * line.step];
}

}  // namespace

template <class T>
void copy_points(const PointPart& part, const PointBlock& b, const PointKernels<T>& kernels, const T* lhs, T* to) {
    Span span[kMaxDims + 2];
    int64_t start = part.origin;
    int spans = 0;
    for (int i = 0; i < part.orders; ++i) {
        span[spans] = span_of(part, b, part.order[i], &start);
        const bool trivial = span[spans].count == 1 && span[spans].end > span[spans].begin;
        if (!trivial || i == part.orders - 1) ++spans;
    }
    int64_t unit = 1;  // elements that lie side by side at each index of the innermost span
    if (spans > 1 && part.order[part.orders - 1] < 0 && part.channel_step == 1 && span[spans - 2].step == part.channels) {
        unit = part.channels;
        --spans;
    }
    const Span one{1, 0, 1, 0, 0, 1, 0};
    const Span line = span[--spans], rows = spans > 0 ? span[--spans] : one;
    const bool gaps = rows.period > rows.reach + 1;  // rows that no tap reads are passed over
    const int64_t turns = gaps ? rows.reach + 1 : 1;
    int64_t digits[kMaxDims + 2] = {};
    for (;;) {
        int64_t from = start, place = 0;
        bool data = true, used = true;
        for (int i = 0; i < spans; ++i) {
            data = data && digits[i] >= span[i].begin && digits[i] < span[i].end;
            used = used && digits[i] % span[i].period <= span[i].reach;
            from += digits[i] * span[i].step;
            place += digits[i] * span[i].pitch;
        }
        for (int64_t i = 0; i < turns && used; ++i)
            copy_plane(kernels, gaps ? every_period(rows, i) : rows, line, unit, data ? lhs + from + i * rows.step : nullptr,
                       to + place + i * rows.pitch);
        int i = spans - 1;
        for (; i >= 0; --i) {
            if (++digits[i] < span[i].count) break;
            digits[i] = 0;
        }
        if (i < 0) return;
    }
}

template <class T>
void pack_merged(const PointSet& set, const PointPanel& panel, const T* data, int64_t first, int64_t count, T* to) {
    const Lattice& lattice = set.lattice;
    int64_t digits[kMaxDims + 1];
    set.loops.split(first, digits);
    for (int64_t k = 0; k < count; ++k, to += panel.width, set.loops.advance(digits)) {
        int64_t offset = 0;
        for (int d = 0; d < set.loops.count; ++d) offset += digits[d] * set.loops.loop[d].rhs;
        for (int j = 0; j < panel.width; ++j) {
            bool has = j < panel.columns;
            const size_t column = static_cast<size_t>(panel.first + j);
            for (int d = 0; d < set.loops.count && has; ++d) {
                const int axis = set.loops.loop[d].axis;
                if (axis < 0) continue;
                const TapRange& range = lattice.ranges[column * static_cast<size_t>(lattice.dims) + static_cast<size_t>(axis)];
                has = digits[d] >= range.first && digits[d] < range.last;
            }
            to[j] = has ? data[lattice.columns[column].rhs + offset] : T(0);
        }
    }
}

#define FASTCONV_POINTS(T) \
    template void copy_points<T>(const PointPart&, const PointBlock&, const PointKernels<T>&, const T*, T*); \
    template void pack_merged<T>(const PointSet&, const PointPanel&, const T*, int64_t, int64_t, T*);
FASTCONV_POINTS(float)
FASTCONV_POINTS(double)
#undef FASTCONV_POINTS

}  // namespace fastconv
