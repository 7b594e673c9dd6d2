// Rows of many groups between memory and panels, where the groups lie side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "drivers/geometry.h"
#include "drivers/halves.h"
#include "kernels/lanes.h"

namespace fastconv {

template <class T>
class LaneRows {
public:
    // dtype: of the memory, T or a half type.
    explicit LaneRows(Dtype dtype) : kernels_(lane_kernels<T>(current_isa())), halves_(dtype) {}

    // As LaneKernels::gather and scatter, but of any number of lanes, from or to memory[index + ...].
    void gather(const LaneRow<T>& row, const void* memory, int64_t index, T* panel) const {
        if (halves_.convert() && row.lane_step == 1) {
            const int64_t padded = ceil_div(row.lanes, kernels_.lanes) * kernels_.lanes;
            for (int64_t x = 0; x < row.count; ++x, panel += row.panel_step) {
                halves_.widen(row.lanes, panel, memory, index + x * row.step);
                std::fill(panel + row.lanes, panel + padded, T(0));
            }
            return;
        }
        each_piece(row, [&](const LaneRow<T>& piece, int64_t offset, int64_t at) {
            if (!halves_.convert()) return kernels_.gather(piece, static_cast<const T*>(memory) + index + offset, panel + at);
            T lines[kMostLanes * kLine];
            for (int64_t l = 0; l < piece.lanes; ++l)
                halves_.widen(piece.count, lines + l * kLine, memory, index + offset + l * row.lane_step, row.step);
            kernels_.gather({piece.lanes, kLine, piece.count, 1, piece.panel_step}, lines, panel + at);
        });
    }
    void scatter(const LaneRow<T>& row, const T* panel, void* memory, int64_t index) const {
        if (halves_.convert() && row.lane_step == 1) {
            for (int64_t x = 0; x < row.count; ++x) halves_.narrow(row.lanes, memory, index + x * row.step, panel + x * row.panel_step);
            return;
        }
        each_piece(row, [&](const LaneRow<T>& piece, int64_t offset, int64_t at) {
            if (!halves_.convert()) return kernels_.scatter(piece, panel + at, static_cast<T*>(memory) + index + offset);
            T lines[kMostLanes * kLine];
            kernels_.scatter({piece.lanes, kLine, piece.count, 1, piece.panel_step}, panel + at, lines);
            for (int64_t l = 0; l < piece.lanes; ++l)
                halves_.narrow(piece.count, memory, index + offset + l * row.lane_step, lines + l * kLine, row.step);
        });
    }

private:
    static constexpr int64_t kMostLanes = 16, kLine = 80, kPiece = 64;  // lines are not a power of two apart

    // body(piece, where it starts in memory, and in the panel)
    template <class Body>
    void each_piece(const LaneRow<T>& row, Body&& body) const {
        const int64_t most = halves_.convert() ? kPiece : row.count;
        for (int64_t l = 0; l < row.lanes; l += kernels_.lanes)
            for (int64_t x = 0; x < row.count; x += most)
                body({std::min<int64_t>(kernels_.lanes, row.lanes - l), row.lane_step, std::min(most, row.count - x), row.step,
                      row.panel_step},
                     l * row.lane_step + x * row.step, x * row.panel_step + l);
    }

    const LaneKernels<T>& kernels_;
    const Halves<T> halves_;
};

}  // namespace fastconv
