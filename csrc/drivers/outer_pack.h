// Lays the operands of an outer plan out: lanes in panels [position][lane], and copies of few channels with zeros around them.
#pragma once

#include "drivers/outer_plan.h"
#include "kernels/tile.h"

namespace fastconv {

// Positions of `shifted` on an axis that lie inside it and that some tap reaches from a block.
struct OuterSpan {
    int64_t first, count;
};
OuterSpan outer_span(const OuterAxis& axis, int64_t from, int64_t pixels);

template <class T>
class OuterOperands {
public:
    OuterOperands(const OuterPlan& plan, const PackKernels<T>& pack, const Buffers& buffers);

    // Elements of a panel (0: read in place), and of the copy of `shifted` (0: it is read where it lies).
    int64_t panel_size() const;
    int64_t region_size() const { return plan_.copied ? plan_.region() * f_.shifted.channels : 0; }

    // Positions of `shifted` that a whole block reaches: the pitches of panels and copies.
    int64_t row_reach() const { return row_reach_; }
    int64_t pixel_reach() const { return pixel_reach_; }

    const T* at(const OuterSide& side, int64_t group) const { return (side.is_lhs ? lhs_ : rhs_) + side.offset + group * side.group; }

    // Channels first ... first + count of a side, [position][channel] with `pitch` elements a position: the block's pixels of
    // `still`, or every position of `shifted` that a tap reaches from them, one plane for each tap of the outer axes. Channels
    // beyond count up to the next whole vector become zero.
    void pack(const OuterSide& side, int64_t group, const OuterBlock& block, int64_t first, int64_t count, int64_t pitch, T* to) const;
    // Every position of `shifted` that a tap reaches from the block, zero outside: [channel][outer tap][row][pixel], or the channels
    // innermost where they lie so.
    void copy_region(int64_t group, const OuterBlock& block, T* to) const;

private:
    const T* at_spans(int64_t group, const OuterBlock& block, const OuterSpan& row, const OuterSpan& pixel) const;
    void pack_rows(const T* from, int64_t rows, int64_t row_step, int64_t pixels, int64_t step, int64_t lane_step, int64_t count,
                   int64_t pitch, T* to) const;

    const OuterPlan& plan_;
    const OuterForm& f_;
    const PackKernels<T>& pack_;
    const T* lhs_;
    const T* rhs_;
    const int64_t row_reach_, pixel_reach_;
};

}  // namespace fastconv
