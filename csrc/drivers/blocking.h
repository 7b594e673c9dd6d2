// How a lattice is cut: the register tile, the cache blocks and the tasks. A function of the problem and the ISA alone, never
// of the number of threads, so that results do not depend on it.
#pragma once

#include <cstdint>

#include "drivers/panels.h"
#include "kernels/tile.h"

namespace fastconv {

struct Blocking {
    bool rows_in_vectors;  // lanes of the vectors are rows (else columns); the other side is broadcast
    bool by_rows;          // the broadcast side is lhs, copied row by row (its depth lies side by side)
    int tile_rows, tile_vectors, lanes;
    int64_t rows, columns, depth;
    int64_t row_block, column_block, depth_block;  // of one task; row and column blocks are whole tiles
    int64_t row_blocks, column_blocks, depth_blocks;
    int64_t splits;   // parts of the depth summed apart, then together in order
    bool shared_rhs;  // rhs is packed once for all tasks
    int64_t tasks() const { return row_blocks * column_blocks * splits; }
    int64_t split_blocks() const { return (depth_blocks + splits - 1) / splits; }

    int vector_width() const { return tile_vectors * lanes; }
    int row_tile() const { return rows_in_vectors ? vector_width() : tile_rows; }
    int column_tile() const { return rows_in_vectors ? tile_rows : vector_width(); }
    int64_t padded(int64_t count) const { return (count + lanes - 1) / lanes * lanes; }
};

template <class T>
Blocking choose_blocking(const Lattice& lattice, const Traversal& traversal, const TileKernels<T>& kernels);

// Kernels of one ISA by shape, and how a side is cut into panels.
template <class T>
class Tiles {
public:
    explicit Tiles(const TileKernels<T>& kernels);
    TileFunction<T> at(int rows, int vectors, bool by_rows) const { return (by_rows ? by_rows_ : table_)[rows][vectors]; }
    // Width of the next panel on the broadcast side when `left` lanes are left and the full tile has `rows`.
    int next_rows(int64_t left, int rows, int vectors) const {
        if (left >= rows) return rows;
        int width = static_cast<int>(left);
        while (table_[width][vectors] == nullptr) --width;
        return width;
    }

private:
    static constexpr int kMaxRows = 32, kMaxVectors = 4;
    TileFunction<T> table_[kMaxRows + 1][kMaxVectors + 1] = {};
    TileFunction<T> by_rows_[kMaxRows + 1][kMaxVectors + 1] = {};
};

}  // namespace fastconv
