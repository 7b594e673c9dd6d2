#include "drivers/outer_pack.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fastconv {
namespace {

constexpr int kMostLanes = 64;  // that are not neighbours: a panel of 4 vectors of 16

}  // namespace

OuterSpan outer_span(const OuterAxis& a, int64_t from, int64_t pixels) {
    const int64_t begin = from * a.dilation - a.lo;
    const int64_t first = std::max<int64_t>(0, begin), end = std::min(a.size, begin + OuterPlan::reach(a, pixels));
    return {first, std::max<int64_t>(0, end - first)};
}

template <class T>
OuterOperands<T>::OuterOperands(const OuterPlan& plan, const PackKernels<T>& pack, const Buffers& buffers)
    : plan_(plan), f_(plan.form), pack_(pack), lhs_(static_cast<const T*>(buffers.lhs.data)), rhs_(static_cast<const T*>(buffers.rhs.data)),
      row_reach_(OuterPlan::reach(f_.row(), plan.row_step)), pixel_reach_(OuterPlan::reach(f_.pixel(), plan.pixel_step)) {}

template <class T>
int64_t OuterOperands<T>::panel_size() const {
    if (plan_.in_place) return 0;
    return (plan_.lanes_shifted ? plan_.region() : plan_.row_step * plan_.pixel_step) * plan_.tile_vectors * plan_.lanes;
}

// The first positions of two spans, channel 0, for the first tap of the outer axes less its start.
template <class T>
const T* OuterOperands<T>::at_spans(int64_t group, const OuterBlock& block, const OuterSpan& row, const OuterSpan& pixel) const {
    return at(f_.shifted, group) + block.shifted + (row.first - block.row * f_.row().dilation) * f_.row().shifted +
           (pixel.first - block.pixel * f_.pixel().dilation) * f_.pixel().shifted;
}

template <class T>
void OuterOperands<T>::pack(const OuterSide& side, int64_t group, const OuterBlock& block, int64_t first, int64_t count, int64_t pitch,
                            T* to) const {
    if (&side == &f_.still) {
        const T* from = at(side, group) + block.still + first * side.step;
        pack_rows(from, block.rows, f_.row().still, block.pixels, f_.pixel().still, side.step, count, pitch, to);
        return;
    }
    const OuterSpan row = outer_span(f_.row(), block.row, block.rows), pixel = outer_span(f_.pixel(), block.pixel, block.pixels);
    const T* from = at_spans(group, block, row, pixel) + first * side.step;
    for (int64_t outer = 0; outer < f_.outer_taps; ++outer, to += row_reach_ * pixel_reach_ * pitch) {
        int64_t start;
        if (f_.outer_tap(block.outer, outer, &start))
            pack_rows(from + start, row.count, f_.row().shifted, pixel.count, f_.pixel().shifted, side.step, count, pitch, to);
    }
}

template <class T>
void OuterOperands<T>::pack_rows(const T* from, int64_t rows, int64_t row_step, int64_t pixels, int64_t step, int64_t lane_step,
                                 int64_t count, int64_t pitch, T* to) const {
    const int64_t rest = (plan_.lanes - count % plan_.lanes) % plan_.lanes;
    if (row_step == pixels * step) {
        pixels *= rows;
        rows = 1;
    }
    for (int64_t y = 0; y < rows; ++y, from += row_step, to += pixels * pitch) {
        if (lane_step == 1 || std::abs(step) > 2 || step <= 0) {
            pack_.spaced(to, pitch, pixels, from, step, lane_step, count);
        } else {
            const T* lane[kMostLanes];
            int64_t begin[kMostLanes], end[kMostLanes];
            for (int64_t j = 0; j < count; ++j) {
                lane[j] = from + j * lane_step;
                begin[j] = 0;
                end[j] = pixels;
            }
            pack_.walked(to, pitch, pixels, lane, begin, end, count, step);
        }
        if (rest > 0)
            for (int64_t k = 0; k < pixels; ++k) std::memset(to + k * pitch + count, 0, static_cast<size_t>(rest) * sizeof(T));
    }
}

template <class T>
void OuterOperands<T>::copy_region(int64_t group, const OuterBlock& block, T* to) const {
    const OuterAxis &rows = f_.row(), &pixels = f_.pixel();
    const OuterSpan row = outer_span(rows, block.row, block.rows), pixel = outer_span(pixels, block.pixel, block.pixels);
    const T* from = at_spans(group, block, row, pixel);
    const int64_t fold = plan_.folded(), step = fold > 1 ? 1 : pixels.shifted, pitch = pixel_reach_ * fold;
    const int64_t above = row.first - (block.row * rows.dilation - rows.lo), height = OuterPlan::reach(rows, block.rows);
    const int64_t before = std::min(pixel_reach_, pixel.first - (block.pixel * pixels.dilation - pixels.lo)) * fold;
    const int64_t count = pixel.count * fold, after = pitch - before - count;
    for (int64_t c = 0; c < f_.shifted.channels; c += fold)
        for (int64_t outer = 0; outer < f_.outer_taps; ++outer, to += row_reach_ * pitch) {
            int64_t start;
            const bool meets = f_.outer_tap(block.outer, outer, &start) && count > 0;
            for (int64_t y = 0; y < height; ++y) {
                T* line = to + y * pitch;
                if (!meets || y < above || y >= above + row.count) {
                    std::memset(line, 0, static_cast<size_t>(pitch) * sizeof(T));
                    continue;
                }
                const T* source = from + c * f_.shifted.step + start + (y - above) * rows.shifted;
                std::memset(line, 0, static_cast<size_t>(before) * sizeof(T));
                line += before;
                if (step == 1)
                    std::memcpy(line, source, static_cast<size_t>(count) * sizeof(T));
                else
                    for (int64_t x = 0; x < count; ++x) line[x] = source[x * step];
                std::memset(line + count, 0, static_cast<size_t>(after) * sizeof(T));
            }
        }
}

template class OuterOperands<float>;
template class OuterOperands<double>;

}  // namespace fastconv
