// The block algorithm on a dilated input with all its phases together: the phases are features of one convolution whose input is not
// dilated (Shi et al. 2016), so that few features in s phases fill tiles as s times as many would.
//
// As with vectors along pixels (drivers/block_pixels.cc) a tile's rows are features, here columns (a feature of a phase), and the
// vectors walk a copy of a block of lines. A tile sums over the taps that any of its columns has; zeros stand in for the weights that
// the others lack. Sums are interleaved on the way out.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "drivers/block.h"
#include "drivers/block_lines.h"
#include "drivers/phases.h"

namespace fastconv {

// The problem without dilated input whose taps span those of all phases, and whose features are the columns.
struct MergedProblem {
    // problem: axes sorted, with some dilated input.
    explicit MergedProblem(const Problem& problem);
    bool possible;  // the phases meet on one grid of inputs, and there are sums
    Problem problem;
    std::vector<Phase> phases;                                        // those of the innermost axis follow each other
    int64_t inner;                                                    // phases of the innermost axis
    int64_t taps;                                                     // of the problem
    int64_t tap_of(const Phase& phase, const int64_t* digits) const;  // digits: of a tap of the phase
};

// Columns column <= j < column + rows of a slice: `phase * features + feature`.
struct MergedTile {
    int64_t column, rows;
    std::vector<int32_t> taps;            // that some column has, in order
    bool exact;                           // whether every column has them all: no zero stands in for a weight
    int64_t weights, segments, pointers;  // elements of weights ([tap][channel][row]), segments and pointers before its own
};

// Features whose sums are made together.
struct MergedSlice {
    int64_t feature, features;
    std::vector<MergedTile> tiles;
};

struct MergedTiles {
    static constexpr int64_t kNoWeight = INT64_MIN;
    explicit MergedTiles(const MergedProblem& merged);
    // For tiles of at most `most_rows` rows and stretches of `vectors` vectors on average, `width` lanes at most.
    void lay_out(int64_t features, int64_t channels, int64_t channel_block, int64_t width, int64_t element, int most_rows, double vectors);

    std::vector<std::vector<int64_t>> weight_at;  // [phase][tap]: of feature and channel 0 in rhs
    std::vector<MergedSlice> slices;
    int64_t weights, segments, pointers;  // of all tiles
    int64_t columns;                      // of a slice, at most
    double cycles;                        // of one stretch, all slices
};

template <class T>
class MergedPhases {
public:
    // call: the original problem and its operands.
    MergedPhases(const MergedProblem& merged, const BlockCall<T>& call, const BlockSet<T>& set);

    double cycles() const;                                             // as BlockForm
    int64_t shared_size() const { return p.groups * tiles_.weights; }  // as BlockForm

    // Returns nullptr or a message. *finite: whether all sums are finite. If they are not, outputs are undefined: zeros may have met an
    // infinity or NaN where the definition leaves the term out.
    const char* run(const T* lhs, T* shared, Executor& executor, bool* finite);

private:
    struct Task {
        int64_t group, image, slice, slices;
        T* copy;
        T* sums;  // [column][lane] of one stretch
        const T** b;
    };
    // Neighbouring positions of one line, at `place` in the copy; outer: the line's indices on the axes before the last two.
    struct Stretch {
        int64_t outer[kMaxDims], place, first, count;
        int vectors;
    };

    int64_t wanted_tasks() const;
    int64_t channel_block(int vectors) const;
    int64_t line_vectors() const;
    void choose_tiles();
    int64_t copy_size() const;
    size_t local_bytes() const;
    void pack(T* to, Executor& executor);
    void pack_tile(const MergedSlice& slice, const MergedTile& tile, int64_t group, T* to) const;
    void run_task(const T* lhs, int64_t index, void* local);
    void run_slice(const Task& t, const MergedSlice& slice, const BlockCopy& copy, const Stretch& stretch);
    void finish(const Task& t, int64_t feature, T* sums, int64_t count) const;  // bias and activation
    bool is_left_out(const MergedSlice& slice, const MergedTile& tile) const;
    void store(const Task& t, const MergedSlice& slice, const BlockCopy& copy, const Stretch& stretch) const;
    // Sums of `count` positions of a row, the first at `at` on every axis.
    void store_row(const Task& t, const MergedSlice& slice, const int64_t* at, int64_t count, int64_t pitch, const T* sums) const;

    const MergedProblem& merged_;
    const Problem& p;  // merged_.problem
    BlockCall<T> call_;
    const BlockSet<T>& set_;
    const TileKernels<T>& kernels_;
    const BlockTaps taps_;
    const BlockLines lines_;
    MergedTiles tiles_;
    int vectors_ = 0;
    int64_t channel_block_ = 1, slice_blocks_ = 1;
    std::vector<bool> filled_;  // of each row of phases along the innermost axis: no tap meets it, and its outputs lie side by side
    std::vector<const T*> a_;   // of all tiles: [segment][row]
    std::atomic<bool> suspicious_{false};
};

}  // namespace fastconv
