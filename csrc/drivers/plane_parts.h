// The parts that the planes of a depthwise convolution are made in: their taps and tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "drivers/geometry.h"
#include "kernels/planes.h"
#include "problem.h"

namespace fastconv {

constexpr int kTileRows = 4;

// The kernels of one ISA: by rows (1 or kTileRows), taps, vectors, step.
template <class T>
struct PlaneTable {
    explicit PlaneTable(const PlaneKernels<T>& kernels) : lanes(kernels.lanes) {
        for (int i = 0; i < kernels.count; ++i) {
            const PlaneKernel<T>& k = kernels.planes[i];
            run[k.rows > 1][k.step - 1][k.taps][k.vectors] = k.run;
        }
    }
    int widest(bool tall, int step, int64_t vectors) const {
        int most = static_cast<int>(std::min<int64_t>(vectors, 8));
        while (run[tall][step - 1][1][most] == nullptr) --most;
        return most;
    }
    int most_taps(int64_t taps) const {
        int most = static_cast<int>(std::min<int64_t>(taps, 7));
        while (run[1][0][most][1] == nullptr) --most;
        return most;
    }
    int lanes;
    PlaneFunction<T> run[2][2][8][9] = {};
};

// Row taps first, first + step, ... whose rows neighbouring outputs share.
struct TapChunk {
    int64_t first, step;
    int taps;
    int64_t weight;  // where its weights start
};

// Neighbouring outputs of a row.
struct RowTile {
    int64_t x, width;
    int vectors;
    int64_t mask;   // where its masks start, or -1: every lane exists
    int64_t shift;  // where its taps' places in a row start
};

// One phase of the problem.
struct PlanePart {
    Problem p;
    bool tall;  // tiles of several rows; else the row taps are groups of their own
    std::vector<TapChunk> chunks;
    std::vector<RowTile> tiles;
    std::vector<uint32_t> masks;
    std::vector<int64_t> shifts;
    int64_t groups;  // of one chunk: channels and outer taps
};

template <class T>
PlanePart make_plane_part(const Problem& problem, const PlaneTable<T>& table) {
    PlanePart part{problem, false, {}, {}, {}, {}, problem.channels};
    const int rows = problem.dims - 2;
    const Axis &row = problem.axes[rows], &column = problem.axes[rows + 1];
    for (int i = 0; i < rows; ++i) part.groups *= problem.axes[i].kernel;
    part.tall = row.out >= 3;
    int64_t weight = 0;
    auto add = [&](int64_t first, int64_t step, int taps) {
        part.chunks.push_back({first, step, taps, weight});
        weight += part.groups * column.kernel * taps;
    };
    if (!part.tall) {
        part.groups *= row.kernel;
        add(0, 1, 1);
    } else {
        // Output row r + 1 with one tap meets the input row of output row r with the tap `step` further, if there is one.
        const int64_t common = gcd(row.stride, row.rhs_dilation), step = row.stride / common;
        const bool shared = row.rhs_dilation == common;
        for (int64_t first = 0; first < (shared ? std::min(step, row.kernel) : row.kernel); ++first) {
            int64_t taps = shared ? ceil_div(row.kernel - first, step) : 1;
            for (int64_t h = first; taps > 0;) {
                const int most = table.most_taps(taps);
                const int take = table.most_taps(ceil_div(taps, ceil_div(taps, most)));
                add(h, step, take);
                h += take * step;
                taps -= take;
            }
        }
    }
    for (int64_t x = 0; x < column.out;) {
        const int64_t left = column.out - x;
        const int vectors = table.widest(part.tall, static_cast<int>(column.stride), ceil_div(left, table.lanes));
        RowTile tile{x, std::min<int64_t>(left, int64_t{vectors} * table.lanes), vectors, -1, static_cast<int64_t>(part.shifts.size())};
        for (int64_t q = 0; q < column.kernel; ++q) part.shifts.push_back(x * column.stride + q * column.rhs_dilation - column.lo);
        const int64_t reads = vectors * table.lanes * column.stride, first = x * column.stride - column.lo;
        if (first < 0 || first + (column.kernel - 1) * column.rhs_dilation + reads > column.size) {
            tile.mask = static_cast<int64_t>(part.masks.size());
            for (int64_t q = 0; q < column.kernel; ++q)
                for (int64_t lane = 0; lane < reads; lane += table.lanes) {
                    uint32_t mask = 0;
                    for (int j = 0; j < table.lanes; ++j) {
                        const int64_t at = first + q * column.rhs_dilation + lane + j;
                        mask |= static_cast<uint32_t>(at >= 0 && at < column.size) << j;
                    }
                    part.masks.push_back(mask);
                }
        }
        part.tiles.push_back(tile);
        x += tile.width;
    }
    return part;
}

}  // namespace fastconv
