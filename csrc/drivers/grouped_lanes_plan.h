// How a sweep with channels in lanes is cut: a function of the problem and the ISA alone, never of the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "drivers/geometry.h"
#include "drivers/grouped.h"

namespace fastconv {

constexpr int kVectorLanes = 16;

// Positions of an axis fall into classes in which neighbours' taps meet neighbouring inputs: position own + count * t with tap k
// meets input(own, 0) + dilation * (t * step + k).
struct Classes {
    explicit Classes(const SweepAxis& a) : axis(a), dilation(a.taps == 1 ? a.stride : a.dilation) {
        count = dilation / gcd(dilation, a.stride);
        step = count * a.stride / dilation;
        longest = ceil_div(a.positions, count);
    }
    int64_t positions(int64_t own) const { return axis.positions <= own ? 0 : ceil_div(axis.positions - own, count); }
    int64_t position(int64_t own, int64_t t) const { return own + count * t; }
    int64_t input(int64_t own, int64_t t) const { return position(own, t) * axis.stride - axis.lo; }

    SweepAxis axis;
    int64_t dilation, count, step, longest;
};

// A block of rows and columns of an image at a far position, of one class on each axis.
struct LanesUnit {
    int64_t image, far, own_y, y, rows, own_x, x, count;
};

// Lanes of one vector of outputs: how many exist, and where each lies.
struct LanesSide {
    int64_t first, count;  // output channels
    int64_t in[kVectorLanes], out[kVectorLanes], weight[kVectorLanes];
    bool out_adjoins, weight_adjoins;
    // Spreading by permutations: lane j takes element index[j] + c of `sources` vectors at `base`; 0 sources: one by one.
    int sources;
    int64_t base, last;
    int32_t index[kVectorLanes];
};
LanesSide lanes_side(const Sweep& sweep, int64_t vector, int lanes);

struct LanesPlan {
    LanesPlan(const Sweep& sweep, int lanes, int64_t element);

    LanesUnit unit(int64_t index) const;

    Classes x, y;
    int64_t images, far_positions, far_taps;
    int64_t vectors;  // of output channels
    int64_t units;    // of each vector
    int64_t splits;   // parts of a weight gradient's sum
    int64_t x_block, x_blocks, y_block, y_blocks;
    int64_t chunk;           // channels spread at a time
    bool kept;               // a unit's sums wait for far taps or for other chunks
    bool same;               // the lanes of every vector share a group, so that inputs need no spreading: the ring holds them once
    int64_t pitch;           // places in a row of one channel of the ring
    int64_t place, channel;  // elements from one place to the next, and to the next channel
    int64_t slot;            // elements in a row of the ring: a chunk of channels
    int64_t depth;           // channels x row taps x taps of a full chunk
    // Where a term's input lies in the ring, by turn of the ring, channel, row tap (and tap).
    std::vector<int64_t> offsets, row_offsets;
};

}  // namespace fastconv
