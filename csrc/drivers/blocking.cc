#include "drivers/blocking.h"

#include <algorithm>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kDepthBytes = 1536;  // of one lane's depth block: a panel of 48 lanes then fills 72 KB of the second cache
constexpr int64_t kRowBlock = 192;     // lanes of lhs packed at a time
constexpr int64_t kColumnBlock = 384;  // lanes of rhs packed at a time when it is not shared
constexpr int64_t kSharedBytes = int64_t{8} << 20;
constexpr int64_t kTasks = 16;              // enough to keep many cores even, few enough to keep packing shared
constexpr int64_t kTaskProducts = 1 << 17;  // a task smaller than this costs more to hand out than to run
constexpr double kPackStep = 2.0;           // cycles to start a step of a panel of lhs
constexpr double kScatter = 2.0;            // cycles an output costs when neighbours of a vector do not lie side by side

// Cycles of one depth step of a tile: two multiply-adds and two loads a cycle, and a latency of four.
double tile_cycles(int rows, int vectors) { return 0.5 + std::max({4.0, 0.5 * rows * vectors, 0.5 * (rows + vectors)}); }

template <class T>
double side_cycles(const Tiles<T>& tiles, int64_t broadcast, int rows, int vectors, int full_vectors) {
    double cycles = static_cast<double>(broadcast / rows) * tile_cycles(rows, vectors);
    for (int64_t left = broadcast % rows; left > 0;) {
        const int width = tiles.next_rows(left, rows, full_vectors);
        cycles += tile_cycles(width, vectors);
        left -= width;
    }
    return cycles;
}

template <class T>
double product_cycles(const Tiles<T>& tiles, int64_t in_vectors, int64_t broadcast, int rows, int vectors, int lanes) {
    const int64_t width = static_cast<int64_t>(vectors) * lanes;
    double cycles = static_cast<double>(in_vectors / width) * side_cycles(tiles, broadcast, rows, vectors, vectors);
    const int64_t rest = in_vectors % width;
    if (rest > 0) cycles += side_cycles(tiles, broadcast, rows, static_cast<int>(ceil_div(rest, lanes)), vectors);
    return cycles;
}

int64_t block_of(int64_t count, int64_t blocks, int64_t tile) { return ceil_div(ceil_div(count, blocks), tile) * tile; }

}  // namespace

template <class T>
Tiles<T>::Tiles(const TileKernels<T>& kernels) {
    for (int i = 0; i < kernels.count; ++i) {
        const TileKernel<T>& kernel = kernels.rows[i];
        table_[kernel.rows][kernel.vectors] = kernel.run;
        by_rows_[kernel.rows][kernel.vectors] = kernel.run_by_rows;
    }
}

template <class T>
Blocking choose_blocking(const Lattice& lattice, const Traversal& traversal, const TileKernels<T>& kernels) {
    const Tiles<T> tiles(kernels);
    Blocking b{};
    b.rows = lattice.rows();
    b.columns = static_cast<int64_t>(lattice.columns.size());
    b.depth = lattice.depth();
    b.lanes = kernels.lanes;
    const bool rows_adjoin = traversal.rows.inner().out == 1;
    const bool columns_adjoin = b.columns > 1 && lattice.columns[1].out == lattice.columns[0].out + 1;
    const bool lhs_runs = !traversal.spaced && traversal.depth.inner().lhs == 1;
    double best = -1;
    for (int i = 0; i < kernels.count; ++i) {
        const TileKernel<T>& kernel = kernels.rows[i];
        for (const bool in_rows : {true, false}) {
            const bool by_rows = !in_rows && lhs_runs;
            if (by_rows && kernel.run_by_rows == nullptr) continue;
            double cycles =
                product_cycles(tiles, in_rows ? b.rows : b.columns, in_rows ? b.columns : b.rows, kernel.rows, kernel.vectors, b.lanes);
            // Panels of lhs are laid out step by step: the wider, the fewer steps.
            if (!by_rows) cycles += kPackStep * static_cast<double>(ceil_div(b.rows, in_rows ? kernel.vectors * b.lanes : kernel.rows));
            cycles *= static_cast<double>(std::max<int64_t>(b.depth, 1));
            if (!(in_rows ? rows_adjoin : columns_adjoin))
                cycles += kScatter * static_cast<double>(b.rows) * static_cast<double>(b.columns);
            if (best < 0 || cycles < best) {
                best = cycles;
                b.rows_in_vectors = in_rows;
                b.by_rows = by_rows;
                b.tile_rows = kernel.rows;
                b.tile_vectors = kernel.vectors;
            }
        }
    }
    b.depth_blocks = std::max<int64_t>(1, ceil_div(b.depth, kDepthBytes / static_cast<int64_t>(sizeof(T))));
    b.depth_block = ceil_div(b.depth, b.depth_blocks);
    if (traversal.channel_runs) b.depth_block = ceil_div(b.depth_block, traversal.taps) * traversal.taps;
    b.depth_blocks = std::max<int64_t>(1, ceil_div(b.depth, std::max<int64_t>(1, b.depth_block)));

    // Cut rows and columns until there are enough tasks; a block stays a whole number of tiles.
    const double products = static_cast<double>(b.rows) * static_cast<double>(b.columns) * static_cast<double>(b.depth);
    const int64_t wanted = std::max<int64_t>(1, std::min<int64_t>(kTasks, static_cast<int64_t>(products / kTaskProducts)));
    b.row_blocks = ceil_div(b.rows, kRowBlock);
    b.shared_rhs = b.row_blocks > 1 && b.columns * b.depth * static_cast<int64_t>(sizeof(T)) <= kSharedBytes;
    b.column_blocks = b.shared_rhs ? 1 : ceil_div(b.columns, kColumnBlock);
    if (b.row_blocks * b.column_blocks < wanted) {
        const int64_t more = ceil_div(wanted, b.row_blocks * b.column_blocks);
        const int64_t row_tiles = ceil_div(b.rows, b.row_tile()), column_tiles = ceil_div(b.columns, b.column_tile());
        if (b.rows >= b.columns || b.shared_rhs)
            b.row_blocks = std::min(row_tiles, b.row_blocks * more);
        else
            b.column_blocks = std::min(column_tiles, b.column_blocks * more);
    }
    b.row_block = block_of(b.rows, b.row_blocks, b.row_tile());
    b.column_block = block_of(b.columns, b.column_blocks, b.column_tile());
    b.row_blocks = ceil_div(b.rows, b.row_block);
    b.column_blocks = ceil_div(b.columns, b.column_block);
    // Few outputs and a long depth (a weight gradient): sum parts of the depth apart.
    b.splits = 1;
    if (b.row_blocks * b.column_blocks < wanted) b.splits = std::min(b.depth_blocks, ceil_div(wanted, b.row_blocks * b.column_blocks));
    b.splits = ceil_div(b.depth_blocks, b.split_blocks());
    return b;
}

#define FASTCONV_BLOCKING(T) \
    template class Tiles<T>; \
    template Blocking choose_blocking<T>(const Lattice&, const Traversal&, const TileKernels<T>&);
FASTCONV_BLOCKING(float)
FASTCONV_BLOCKING(double)
#undef FASTCONV_BLOCKING

}  // namespace fastconv
