// The block algorithm: dense convolution whose pixels are read where they lie, or from one copy, never unfolded.
//
// Two forms share one kernel (kernels/block.h). Vectors along features: the rows of a tile are pixels, each with a pointer a tap
// (Dukhan 2019, "The indirect convolution algorithm"); a tap on padding points to zeros. Vectors along pixels: the rows of a tile
// are features, and the vectors walk a padded copy of a block of lines as if it were one line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "drivers/epilogue.h"
#include "kernels/block.h"
#include "kernels/tile.h"
#include "problem.h"

namespace fastconv {

constexpr int kBlockMaxRows = 8, kBlockMaxVectors = 4;

// Every tap of a problem without dilated input: what it moves in lhs, rhs, and on each axis of the input.
struct BlockTaps {
    explicit BlockTaps(const Problem& problem);
    int64_t count;
    std::vector<int64_t> lhs, rhs, reach;  // reach[tap * dims + axis]
};

// Taps that an output meets, of all that there are: on average.
double met_taps(const Problem& problem);

// Cycles of one step of a tile: two multiply-adds and two loads a cycle, and a latency of four.
inline double block_tile_cycles(int rows, int vectors) { return 0.4 + std::max({4.0, 0.5 * rows * vectors, 0.5 * (rows + vectors)}); }

// Cycles an element costs that is copied in vectors, through a transposition in registers, or alone (docs/performance.md).
constexpr double kCopied = 0.2, kTransposed = 0.9, kAlone = 2.0;

// The kernels of one ISA by shape.
template <class T>
struct BlockSet {
    explicit BlockSet(const BlockKernels<T>& kernels);
    int lanes, max_vectors = 0;
    int max_rows[kBlockMaxVectors + 1] = {};
    BlockFunction<T> at[kBlockMaxRows + 1][kBlockMaxVectors + 1] = {};
};

// One call: the problem (axes sorted, input not dilated, some taps and channels) with its operands.
template <class T>
struct BlockCall {
    Problem p;
    const T* rhs;
    const T* bias;  // or nullptr
    T* out;
    // Set where a sum that padding took part in came out infinite or NaN: zeros were multiplied. Null where weights are known to be
    // finite.
    std::atomic<bool>* suspicious;

    bool has_epilogue() const { return bias != nullptr || p.activation != Activation::none; }
    // Notes it when `count` finished sums, some of padding, are not all finite.
    void look_at(const TileKernels<T>& kernels, const T* sums, int64_t count) const;
};

// A form laid out for a call, before its memory is known.
template <class T>
class BlockForm {
public:
    virtual ~BlockForm() = default;
    virtual double cycles() const = 0;        // of one core, estimated
    virtual int64_t shared_size() const = 0;  // elements of scratch that its threads share
    // Reads the problem's lhs from `lhs`, writes to `out`. Returns nullptr or a message.
    virtual const char* run(const T* lhs, T* out, T* shared, Executor& executor) = 0;
};
// Channels of lhs must lie side by side.
template <class T>
std::unique_ptr<BlockForm<T>> block_by_features(const BlockCall<T>& call, const BlockSet<T>& set);
template <class T>
std::unique_ptr<BlockForm<T>> block_by_pixels(BlockCall<T> call, const BlockSet<T>& set);

// Weights as panels of vectors, missing features zero. A panel is laid out in chunks of channels: one row of lanes for every tap and
// channel, in whichever order they lie in rhs. Panels differ by one vector at most.
struct BlockPanels {
    BlockPanels(const Problem& problem, int lanes, int max_vectors);
    int lanes, max_vectors;  // of the widest panel
    int64_t features, vectors, count, taps, channels;
    bool taps_outside;    // of a chunk's channels
    int64_t run;          // rhs runs on over channels and taps, taps inside: 1, backwards -1, or not at all: 0
    int64_t run_of_taps;  // the same where only taps do
    int64_t first_vector(int64_t panel) const { return vectors * panel / count; }
    int panel_vectors(int64_t panel) const { return static_cast<int>(first_vector(panel + 1) - first_vector(panel)); }
    int64_t size() const { return vectors * lanes * taps * channels; }  // of a group
    // Where a chunk of `size` channels has a tap's row of its first channel, and how many rows on the next channel is.
    int64_t row(int64_t tap, int64_t size) const {
        if (taps_outside) return tap * size;
        return run < 0 ? taps * size - 1 - tap : run_of_taps < 0 ? taps - 1 - tap : tap;
    }
    int64_t channel_step() const { return taps_outside ? 1 : run < 0 ? -taps : taps; }
};
// One chunk: channels [first, first + size) of a panel.
template <class T>
void pack_block_chunk(const BlockCall<T>& call, const BlockTaps& taps, const BlockPanels& panels, int64_t group, int64_t panel,
                      int64_t first, int64_t size, T* to);

// lhs with its channels innermost, [group][image][positions][channel]: the problem that reads it, its size, and the copying.
Problem with_channels_last(const Problem& problem);
int64_t channels_last_size(const Problem& problem);
template <class T>
void put_channels_last(const Problem& problem, const T* lhs, T* to, Executor& executor);

// The same for out, whose innermost axis must be one of neighbours.
Problem with_features_last(const Problem& problem);
int64_t features_last_size(const Problem& problem);
template <class T>
void take_features_last(const Problem& problem, const T* from, T* out, Executor& executor);

}  // namespace fastconv
