#include "drivers/lane_sweep.h"

#include <algorithm>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// The taps of `box` that meet data at output `at`.
Span taps_at(const Axis& a, int64_t at, Span box) {
    const int64_t base = at * a.stride - a.lo;
    const int64_t lo = std::max(box.lo, base >= 0 ? 0 : ceil_div(-base, a.rhs_dilation));
    return {lo, std::max(lo, std::min(box.hi, floor_div(a.size - 1 - base, a.rhs_dilation) + 1))};
}

Span common(Span a, Span b) {
    const int64_t lo = std::max(a.lo, b.lo);
    return {lo, std::max(lo, std::min(a.hi, b.hi))};
}

// Outputs whose every tap of `box` meets data.
Span interior(const Axis& a, Span box) {
    const int64_t first = box.lo * a.rhs_dilation - a.lo, last = (box.hi - 1) * a.rhs_dilation - a.lo;
    return {ceil_div(-first, a.stride), floor_div(a.size - 1 - last, a.stride) + 1};
}

constexpr int64_t kLongRow = 8;  // taps of a row above which tiles at its ends hold outputs of different taps

// Outer taps as the kernels read them.
struct TapList {
    int64_t *lhs, *rhs;
    int64_t count;
    void add(int64_t lhs_offset, int64_t rhs_offset) {
        lhs[count] = lhs_offset;
        rhs[count++] = rhs_offset;
    }
};

template <class T>
class Walk {
public:
    explicit Walk(const LaneSweep<T>& sweep)
        : s(sweep), p(*sweep.problem), row_(p.dims - 2), column_(p.dims - 1), inside_(interior(p.axes[column_], s.taps[column_])) {
        const int64_t room = s.list_elements() / 6;
        for (int i = 0; i < 3; ++i) lists_[i] = {s.lists + 2 * i * room, s.lists + (2 * i + 1) * room, 0};
        arguments_.lanes = s.lanes;
        arguments_.inner_lhs = p.axes[column_].rhs_dilation * s.lhs.step[column_];
        arguments_.inner_rhs = s.rhs.step[column_];
        arguments_.row_lhs = p.axes[row_].stride * s.lhs.step[row_];
        arguments_.column_lhs = p.axes[column_].stride * s.lhs.step[column_];
        neighbours_ = arguments_.column_lhs == arguments_.inner_lhs;
        arguments_.row_out = s.out.step[row_];
        arguments_.column_out = s.out.step[column_];
    }

    void run() {
        for (int i = 0; i < p.dims; ++i)
            if (s.outputs[i].length() == 0) return;
        int64_t at[kMaxDims];
        for (int i = 0; i < row_; ++i) at[i] = s.outputs[i].lo;
        for (;;) {  // every output of the outer axes
            lists_[0].count = 0;
            for (int64_t c = 0; c < s.channels; ++c) collect(0, at, s.lhs.origin + c * s.lhs_channel, s.rhs.origin + c * s.rhs_channel);
            int64_t out = s.out.origin;
            for (int i = 0; i < row_; ++i) out += at[i] * s.out.step[i];
            add_rows(out);
            int i = row_ - 1;
            for (; i >= 0; --i) {
                if (++at[i] < s.outputs[i].hi) break;
                at[i] = s.outputs[i].lo;
            }
            if (i < 0) return;
        }
    }

private:
    // Taps of the axes from `axis` up to the rows.
    void collect(int axis, const int64_t* at, int64_t lhs, int64_t rhs) {
        if (axis == row_) {
            lists_[0].add(lhs, rhs);
            return;
        }
        const Axis& a = p.axes[axis];
        const Span taps = taps_at(a, at[axis], s.taps[axis]);
        for (int64_t k = taps.lo; k < taps.hi; ++k)
            collect(axis + 1, at, lhs + (at[axis] * a.stride + k * a.rhs_dilation - a.lo) * s.lhs.step[axis], rhs + k * s.rhs.step[axis]);
    }

    // Appends every outer tap with the row taps of `taps`, for output row `y`.
    void extend(TapList* list, int64_t y, Span taps) const {
        const Axis& a = p.axes[row_];
        const TapList& outer = lists_[0];
        for (int64_t i = 0; i < outer.count; ++i)
            for (int64_t k = taps.lo; k < taps.hi; ++k)
                list->add(outer.lhs[i] + (y * a.stride + k * a.rhs_dilation - a.lo) * s.lhs.step[row_],
                          outer.rhs[i] + k * s.rhs.step[row_]);
    }

    void add_rows(int64_t out) {
        const Axis& a = p.axes[row_];
        const Span box = s.outputs[row_];
        const int most = s.few_outputs ? kLaneRows : 2;
        for (int64_t y = box.lo; y < box.hi;) {
            Span each[kLaneRows];
            Span shared = each[0] = taps_at(a, y, s.taps[row_]);
            int rows = 1;
            for (; rows < most && y + rows < box.hi; ++rows) {
                each[rows] = taps_at(a, y + rows, s.taps[row_]);
                if (!s.few_outputs && !(each[rows] == shared)) break;
                shared = common(shared, each[rows]);
            }
            TapList& list = lists_[1];
            list.count = 0;
            extend(&list, y, shared);
            const int64_t place = out + y * s.out.step[row_];
            add_columns(list, rows, place, s.accumulate);
            for (int r = 0; r < rows; ++r) {  // what single rows have beyond
                if (each[r] == shared) continue;
                TapList& rest = lists_[2];
                rest.count = 0;
                extend(&rest, y + r, {each[r].lo, std::min(each[r].hi, shared.lo)});
                extend(&rest, y + r, {std::max(each[r].lo, shared.hi), each[r].hi});
                add_columns(rest, 1, place + r * s.out.step[row_], true);
            }
            y += rows;
        }
    }

    void add_columns(const TapList& list, int rows, int64_t out, bool accumulate) {
        const Span box = s.outputs[column_];
        if (list.count == 0 && accumulate) return;
        const LaneFunction<T> single = s.tiles->widest(rows, 1, 1).run;
        for (int64_t x = box.lo; x < box.hi;) {
            Span shared = taps(x);
            const bool inside = inside_.lo <= x && x < inside_.hi;
            const bool mixed = s.few_outputs || (!inside && !s.once && s.taps[column_].length() > kLongRow);
            int64_t run = 1;  // outputs of the same taps, or all up to the next border
            if (s.few_outputs)
                run = box.hi - x;
            else if (inside)
                run = std::min(inside_.hi, box.hi) - x;
            else if (mixed)
                run = (x < inside_.lo ? std::min(inside_.lo, box.hi) : box.hi) - x;
            else
                while (x + run < box.hi && run < 8 && taps(x + run) == shared) ++run;
            while (run > 0) {
                const typename LaneTiles<T>::Tile tile =
                    s.tiles->widest(rows, std::min(run, s.most_columns), neighbours_ ? taps(x).length() : 1);
                const int columns = tile.columns;
                if (mixed) {
                    shared = taps(x);
                    for (int j = 1; j < columns; ++j) shared = common(shared, taps(x + j));
                }
                call(tile.run, list, x, shared, out, accumulate);
                for (int j = 0; mixed && j < columns; ++j) {  // what single columns have beyond
                    const Span each = taps(x + j);
                    call(single, list, x + j, {each.lo, std::min(each.hi, shared.lo)}, out, true);
                    call(single, list, x + j, {std::max(each.lo, shared.hi), each.hi}, out, true);
                }
                x += columns;
                run -= columns;
            }
        }
    }

    Span taps(int64_t x) const { return taps_at(p.axes[column_], x, s.taps[column_]); }

    void call(LaneFunction<T> run, const TapList& list, int64_t x, Span taps, int64_t out, bool accumulate) {
        if (accumulate && taps.length() == 0) return;
        const Axis& a = p.axes[column_];
        arguments_.outer = list.count;
        arguments_.lhs_offset = list.lhs;
        arguments_.rhs_offset = list.rhs;
        arguments_.inner = taps.length();
        const int64_t first = arguments_.inner == 0 ? 0 : taps.lo;
        arguments_.lhs = s.lhs.at((x * a.stride + first * a.rhs_dilation - a.lo) * s.lhs.step[column_]);
        arguments_.rhs = s.rhs.at(first * s.rhs.step[column_]);
        arguments_.out = s.out.at(out + x * s.out.step[column_]);
        arguments_.accumulate = accumulate;
        run(arguments_);
    }

    const LaneSweep<T>& s;
    const Problem& p;
    const int row_, column_;
    const Span inside_;
    bool neighbours_;  // neighbouring columns meet neighbouring taps
    TapList lists_[3];
    LaneArguments<T> arguments_{};
};

}  // namespace

template <class T>
LaneTiles<T>::LaneTiles(const LaneKernels<T>& kernels, Dtype memory, LaneHalves halves) {
    for (int i = 0; i < kernels.count; ++i) {
        const LaneKernel<T>& kernel =
            halves == LaneHalves::none ? kernels.own.of[0][i] : kernels.of(memory).of[static_cast<int>(halves)][i];
        table_[kernel.rows][kernel.taps][kernel.columns] = kernel.run;
    }
}

template <class T>
typename LaneTiles<T>::Tile LaneTiles<T>::widest(int rows, int64_t left, int64_t taps) const {
    const int most = static_cast<int>(std::min<int64_t>(left, kMaxColumns));
    if (taps > 1) {
        for (int shared = static_cast<int>(std::min<int64_t>(taps, kMaxTaps)); shared > 1; --shared)
            for (int columns = most; columns > 0; --columns)
                if (table_[rows][shared][columns] != nullptr) return {columns, table_[rows][shared][columns]};
    }
    int columns = most;
    while (table_[rows][1][columns] == nullptr) --columns;
    return {columns, table_[rows][1][columns]};
}

template <class T>
int64_t LaneSweep<T>::list_elements() const {
    int64_t room = channels;
    for (int i = 0; i + 1 < problem->dims; ++i) room *= taps[i].length();
    return 6 * std::max<int64_t>(1, room);
}

template <class T>
void LaneSweep<T>::run() const {
    Walk<T>(*this).run();
}

template class LaneTiles<float>;
template class LaneTiles<double>;
template struct LaneSweep<float>;
template struct LaneSweep<double>;

}  // namespace fastconv
