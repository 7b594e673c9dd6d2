// Rows of any number of groups between memory and panels, where the groups lie side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/lanes.h"

namespace fastconv {

template <class T>
class LaneRows {
public:
    // dtype: of the memory, T or a half type.
    explicit LaneRows(Dtype dtype)
        : lanes_(lane_kernels<T>(current_isa()).lanes), item_(dtype_size(dtype)), set_(lane_kernels<T>(current_isa()).of(dtype)) {}

    // As LaneSet::gather and scatter, from or to memory[index + ...].
    void gather(const LaneRow<T>& row, const void* memory, int64_t index, T* panel) const {
        for (int64_t l = 0; l < row.lanes; l += lanes_)
            set_.gather(piece(row, l), static_cast<const char*>(memory) + (index + l * row.lane_step) * item_, panel + l);
    }
    void scatter(const LaneRow<T>& row, const T* panel, void* memory, int64_t index) const {
        for (int64_t l = 0; l < row.lanes; l += lanes_)
            set_.scatter(piece(row, l), panel + l, static_cast<char*>(memory) + (index + l * row.lane_step) * item_);
    }

private:
    LaneRow<T> piece(LaneRow<T> row, int64_t first) const {
        row.lanes = std::min<int64_t>(lanes_, row.lanes - first);
        return row;
    }

    const int lanes_;
    const int64_t item_;
    const LaneSet<T>& set_;
};

}  // namespace fastconv
