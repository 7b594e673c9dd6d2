// Which columns the tiles of merged phases have, and which taps.
#include <algorithm>

#include "drivers/block_merged.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kSumBytes = 64 << 10;  // of a slice's columns
constexpr double kStart = 50.0;          // cycles to start a tile ...
constexpr double kSegment = 20.0;        // ... and to turn to another tap

// Taps of two tiles together.
std::vector<int32_t> united(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    std::vector<int32_t> both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
}

}  // namespace

MergedProblem::MergedProblem(const Problem& original) : possible(original.channels > 0), problem(original), phases(phases_of(original)) {
    const int lane = original.dims - 1;
    taps = 1;
    for (int i = 0; i <= lane; ++i) {
        Axis& a = problem.axes[i];
        possible = possible && a.size > 0;
        if (a.lhs_dilation != 1) a = phases[0].problem.axes[i];  // the first phase has the most outputs
        bool met = false;
        int64_t low = 0, high = 0;
        for (const Phase& phase : phases) {
            const Axis& b = phase.problem.axes[i];
            if (b.kernel == 0) continue;
            const int64_t first = -b.lo, last = first + (b.kernel - 1) * b.rhs_dilation;
            possible = possible && (!met || floor_mod(first - low, b.rhs_dilation) == 0);
            low = met ? std::min(low, first) : first;
            high = met ? std::max(high, last) : last;
            met = true;
        }
        possible = possible && met;
        a.lo = -low;
        a.kernel = (high - low) / a.rhs_dilation + 1;
        taps *= a.kernel;
    }
    inner = 1;
    const int64_t count = static_cast<int64_t>(phases.size());
    while (inner < count && phases[static_cast<size_t>(inner)].first[lane] != 0) ++inner;
    problem.features *= count;
}

int64_t MergedProblem::tap_of(const Phase& phase, const int64_t* digits) const {
    int64_t tap = 0;
    for (int i = 0; i < problem.dims; ++i) {
        const Axis& a = problem.axes[i];
        tap = tap * a.kernel + (a.lo - phase.problem.axes[i].lo) / a.rhs_dilation + digits[i];
    }
    return tap;
}

MergedTiles::MergedTiles(const MergedProblem& merged) {
    for (const Phase& phase : merged.phases) {
        const Problem& p = phase.problem;
        std::vector<int64_t> at(static_cast<size_t>(merged.taps), kNoWeight);
        int64_t digits[kMaxDims] = {}, count = 1;
        for (int i = 0; i < p.dims; ++i) count *= p.axes[i].kernel;
        for (int64_t tap = 0; tap < count; ++tap) {
            int64_t from = p.rhs.offset;
            for (int i = 0; i < p.dims; ++i) from += digits[i] * p.rhs.spatial[i];
            at[static_cast<size_t>(merged.tap_of(phase, digits))] = from;
            for (int i = p.dims - 1; i >= 0 && ++digits[i] == p.axes[i].kernel; --i) digits[i] = 0;
        }
        weight_at.push_back(std::move(at));
    }
}

void MergedTiles::lay_out(int64_t features, int64_t channels, int64_t channel_block, int64_t width, int64_t element, int most_rows,
                          double vectors) {
    const int64_t phases = static_cast<int64_t>(weight_at.size());
    const int64_t most = std::max<int64_t>(1, kSumBytes / element / width / phases), count = ceil_div(features, most);
    const double blocks = static_cast<double>(ceil_div(channels, channel_block));
    auto cost = [&](int64_t rows, size_t taps) {
        // Most vectors cross a cache line, and take two loads.
        const double many = static_cast<double>(rows), step = 0.4 + std::max({4.0, 0.5 * many * vectors, 0.5 * many + vectors});
        return kStart * blocks + (step * static_cast<double>(channels) + kSegment * blocks) * static_cast<double>(taps);
    };
    slices.clear();
    cycles = 0;
    weights = segments = pointers = columns = 0;
    for (int64_t i = 0; i < count; ++i) {
        MergedSlice slice{features * i / count, 0, {}};
        slice.features = features * (i + 1) / count - slice.feature;
        for (int64_t phase = 0; phase < phases; ++phase) {
            std::vector<int32_t> taps;
            for (size_t tap = 0; tap < weight_at[static_cast<size_t>(phase)].size(); ++tap)
                if (weight_at[static_cast<size_t>(phase)][tap] != kNoWeight) taps.push_back(static_cast<int32_t>(tap));
            const int64_t pieces = ceil_div(slice.features, most_rows);
            for (int64_t piece = 0; piece < pieces; ++piece) {
                const int64_t first = slice.features * piece / pieces, rows = slice.features * (piece + 1) / pieces - first;
                slice.tiles.push_back({phase * slice.features + first, rows, taps, true, 0, 0, 0});
                // With the one before where that costs less: the phases of an axis have all but one of their taps in common.
                while (slice.tiles.size() > 1) {
                    MergedTile &b = slice.tiles.back(), &a = slice.tiles[slice.tiles.size() - 2];
                    if (a.rows + b.rows > most_rows) break;
                    std::vector<int32_t> both = united(a.taps, b.taps);
                    if (cost(a.rows + b.rows, both.size()) > cost(a.rows, a.taps.size()) + cost(b.rows, b.taps.size())) break;
                    a.exact = a.exact && b.exact && a.taps == both && b.taps == both;
                    a.rows += b.rows;
                    a.taps.swap(both);
                    slice.tiles.pop_back();
                }
            }
        }
        columns = std::max(columns, slice.features * phases);
        for (MergedTile& tile : slice.tiles) {
            const int64_t taps = static_cast<int64_t>(tile.taps.size());
            tile.weights = weights;
            tile.segments = segments;
            tile.pointers = pointers;
            weights += taps * channels * tile.rows;
            segments += taps;
            pointers += taps * tile.rows;
            cycles += cost(tile.rows, tile.taps.size());
        }
        slices.push_back(std::move(slice));
    }
}

}  // namespace fastconv
