#include "drivers/outer_form.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

OuterAxis point() { return {1, 1, 1, 1, 1, 0, 0, 0, 0}; }

// Pixels for which tap t meets data: first <= p < end.
void range(const OuterAxis& a, int64_t tap, int64_t* first, int64_t* end) {
    const int64_t at = a.lo - tap * a.stride;
    *first = std::clamp<int64_t>(ceil_div(at, a.dilation), 0, a.pixels);
    *end = std::clamp<int64_t>(floor_div(a.size - 1 + at, a.dilation) + 1, *first, a.pixels);
}

// An axis of one tap becomes a plain run of pixels: what the tap misses is cut off.
void make_plain(OuterForm* f, OuterAxis* a) {
    int64_t first, end;
    range(*a, 0, &first, &end);
    f->shifted.offset += (first * a->dilation - a->lo) * a->shifted;
    f->still.offset += first * a->still;
    *a = {end - first, 1, end - first, 1, 1, 0, a->shifted * a->dilation, a->still, 0};
    f->empty = f->empty || end == first;
}

bool joins(const OuterAxis& a, const OuterAxis& b) {
    return a.taps == 1 && b.taps == 1 && a.shifted == b.pixels * b.shifted && a.still == b.pixels * b.still;
}

// Drops axes of one pixel and tap, joins plain axes that continue each other, puts neighbours in memory last.
void tidy(OuterForm* f) {
    int count = 0;
    for (int i = 0; i < f->count; ++i) {
        if (f->axes[i].taps == 1) make_plain(f, &f->axes[i]);
        if (f->axes[i].taps > 1 || f->axes[i].pixels > 1) f->axes[count++] = f->axes[i];
    }
    f->count = count;
    for (int i = 0; i < f->count; ++i)
        for (int j = 0; j < f->count; ++j)
            if (i != j && joins(f->axes[i], f->axes[j])) {
                f->axes[j].pixels = f->axes[j].size = f->axes[i].pixels * f->axes[j].pixels;
                f->axes[i] = f->axes[--f->count];
                i = j = -1;
                break;
            }
    // Insertion sort: axes of one pixel first, then falling steps.
    auto before = [](const OuterAxis& a, const OuterAxis& b) {
        if ((a.pixels == 1) != (b.pixels == 1)) return a.pixels == 1;
        return std::abs(a.still) + std::abs(a.shifted) > std::abs(b.still) + std::abs(b.shifted);
    };
    for (int i = 1; i < f->count; ++i)
        for (int j = i; j > 0 && before(f->axes[j], f->axes[j - 1]); --j) std::swap(f->axes[j - 1], f->axes[j]);
    while (f->count < 2) {
        for (int i = f->count++; i > 0; --i) f->axes[i] = f->axes[i - 1];
        f->axes[0] = point();
    }
}

}  // namespace

OuterForm make_outer_form(const Problem& p, bool exchange) {
    OuterForm f{};
    const OuterSide lhs{p.lhs.offset, p.lhs.outer[0], p.batch, p.lhs.outer[1], p.out.outer[1], true};
    const OuterSide rhs{p.rhs.offset, p.rhs.outer[0], p.features, p.rhs.outer[1], p.out.outer[2], false};
    f.shifted = exchange ? rhs : lhs;
    f.still = exchange ? lhs : rhs;
    f.groups = p.groups;
    f.out = p.out.offset;
    f.out_group = p.out.outer[0];
    const Operand& moving = exchange ? p.rhs : p.lhs;
    const Operand& fixed = exchange ? p.lhs : p.rhs;
    f.axes[f.count++] = {p.channels, 1, p.channels, 1, 1, 0, moving.outer[2], fixed.outer[2], 0};
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        if (exchange) {
            f.axes[f.count++] = {a.size,           a.out,
                                 a.kernel,         a.stride,
                                 a.lhs_dilation,   (a.out - 1) * a.stride - a.lo,
                                 p.rhs.spatial[i], p.lhs.spatial[i],
                                 -p.out.spatial[i]};
            f.out += (a.out - 1) * p.out.spatial[i];
        } else {
            f.axes[f.count++] = {a.kernel,         a.out,           a.size, a.stride, a.rhs_dilation, a.lo, p.lhs.spatial[i],
                                 p.rhs.spatial[i], p.out.spatial[i]};
        }
    }
    for (int i = 0; i < f.count; ++i) f.empty = f.empty || f.axes[i].pixels == 0 || f.axes[i].size == 0;
    if (!f.empty) tidy(&f);
    f.outer_taps = 1;
    for (int i = 0; i + 2 < f.count; ++i) f.outer_taps *= f.axes[i].taps;
    return f;
}

int64_t OuterForm::pixels() const {
    int64_t n = 1;
    for (int i = 0; i < count; ++i) n *= axes[i].pixels;
    return n;
}

bool OuterForm::every_tap_meets_every_pixel() const {
    for (int i = 0; i < count; ++i)
        for (const int64_t tap : {int64_t{0}, axes[i].taps - 1}) {
            int64_t first, end;
            range(axes[i], tap, &first, &end);
            if (first > 0 || end < axes[i].pixels) return false;
        }
    return true;
}

bool OuterForm::outer_tap(const int64_t* at, int64_t tap, int64_t* start) const {
    *start = 0;
    for (int i = count - 3; i >= 0; --i) {
        const OuterAxis& a = axes[i];
        const int64_t shift = tap % a.taps * a.stride - a.lo, position = shift + at[i] * a.dilation;
        if (position < 0 || position >= a.size) return false;
        *start += shift * a.shifted;
        tap /= a.taps;
    }
    return true;
}

std::vector<OuterTap> outer_taps(const OuterForm& f) {
    const int row = f.count - 2, pixel = f.count - 1;
    int order[kMaxDims + 2];  // axes by falling output steps
    for (int i = 0; i < f.count; ++i) order[i] = i;
    for (int i = 1; i < f.count; ++i)
        for (int j = i; j > 0 && std::abs(f.axes[order[j]].out) > std::abs(f.axes[order[j - 1]].out); --j)
            std::swap(order[j], order[j - 1]);
    std::vector<OuterTap> taps(static_cast<size_t>(f.taps()));
    int64_t digit[kMaxDims + 2] = {};
    for (OuterTap& tap : taps) {
        tap = {};
        int64_t at[kMaxDims + 2];
        for (int i = 0; i < f.count; ++i) {
            const OuterAxis& a = f.axes[i];
            at[i] = a.out < 0 ? a.taps - 1 - digit[i] : digit[i];
            tap.start += (at[i] * a.stride - a.lo) * a.shifted;
            tap.out += at[i] * a.out;
            if (i < row) tap.outer = tap.outer * a.taps + at[i];
        }
        tap.row_shift = at[row] * f.row().stride;
        tap.pixel_shift = at[pixel] * f.pixel().stride;
        range(f.row(), at[row], &tap.row_first, &tap.row_end);
        range(f.pixel(), at[pixel], &tap.pixel_first, &tap.pixel_end);
        for (int i = f.count - 1; i >= 0; --i) {
            if (++digit[order[i]] < f.axes[order[i]].taps) break;
            digit[order[i]] = 0;
        }
    }
    return taps;
}

}  // namespace fastconv
