// How the block algorithm with vectors along pixels cuts its outputs, and where their inputs lie in a task's copy.
//
// A copy holds, for every channel, the block's input as one image for each phase (residue modulo the stride) that a tap reads: within
// an image neighbouring outputs are neighbours again, whatever the stride. Rows follow each other as closely as their padding allows,
// so that the two innermost axes are one line: output (row, lane) lies at row * pitch + lane, tap t's input at a fixed distance from
// it. What falls between two rows is computed too, and dropped.
#pragma once

#include <cstdint>
#include <vector>

#include "drivers/block.h"

namespace fastconv {

// Joins axes that no tap moves along wherever both lhs and out run on from one to the next.
Problem join_axes(const Problem& problem);

class BlockLines {
public:
    // `rows`: features in a tile. Cuts so that there are enough tasks and a copy stays in the second cache.
    BlockLines(const Problem& problem, int64_t element_bytes, int lanes, int64_t wanted_tasks);

    int64_t blocks() const;     // of an image
    int64_t copy_size() const;  // elements of the largest block's copy, without room behind it

    int64_t block[kMaxDims], counts[kMaxDims];  // outputs of a block on each axis, and how many blocks there are
    std::vector<int64_t> phases[kMaxDims];      // residues that taps have, in order
    int64_t reach[kMaxDims];                    // the furthest tap, in steps of the stride
    int64_t images;                             // combinations of phases

private:
    void count_blocks();
    int64_t best_rows(int lanes, int64_t missing) const;

    const Problem& p_;
};

// One block: the outputs, and the layout of its copy.
struct BlockCopy {
    BlockCopy(const Problem& problem, const BlockLines& lines, int lanes, int64_t index);

    int64_t first[kMaxDims], extent[kMaxDims];  // outputs
    int64_t length[kMaxDims];                   // positions of an image
    int64_t pitch[kMaxDims], image_pitch, channel_pitch;
    bool padded;  // some input lies outside

    // Input index on an axis of position `at` of an image with residue `phase`.
    int64_t input(const Axis& a, int i, int64_t phase, int64_t at) const { return (first[i] + at) * a.stride + phase - a.lo; }
    // Where a tap of this reach on every axis lies in a channel of the copy.
    int64_t tap(const Problem& problem, const BlockLines& lines, const int64_t* reach) const;
    int64_t line(int dims) const;   // positions of a line, its ends included
    int64_t lines(int dims) const;  // of the block: combinations of the outer axes
};

// Copies the inputs of a block, all channels, from an image of lhs; `room` zeros follow the last channel.
template <class T>
void fill_block_copy(const Problem& problem, const BlockLines& lines, const BlockCopy& copy, const T* image, int64_t room, T* to);

}  // namespace fastconv
