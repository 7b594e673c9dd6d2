// Dense convolution of every kind (forward, transposed by phases, input and weight gradients) as packed matrix products.
//
// Operands are packed tile by tile in cache (BLIS's scheme, Van Zee & van de Geijn 2015, with the unfolding of the input done
// while packing), so extra memory does not grow with the kernel.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/blocking.h"
#include "drivers/drivers.h"
#include "drivers/epilogue.h"
#include "drivers/finite.h"
#include "drivers/geometry.h"
#include "drivers/panels.h"

namespace fastconv {
namespace {

constexpr double kMaxColumns = 1 << 18;    // features x phases: each is described in memory
constexpr int64_t kSharedAlone = 1 << 16;  // elements of shared rhs that the calling thread packs alone

// One lattice with its cut, and where its tasks and its shared memory start.
template <class T>
struct Part {
    Part(Lattice made, const TileKernels<T>& kernels)
        : lattice(std::move(made)), traversal(lattice), cut(choose_blocking(lattice, traversal, kernels)) {}
    Lattice lattice;
    Traversal traversal;
    Blocking cut;
    int64_t first_task = 0, shared_rhs = 0, partial = 0;  // the offsets are in elements
    int64_t rhs_size() const { return cut.shared_rhs ? cut.padded(cut.columns) * cut.depth : 0; }
    int64_t block_size() const {
        return cut.rows_in_vectors ? cut.padded(cut.row_block) * cut.column_block : cut.row_block * cut.padded(cut.column_block);
    }
    int64_t partial_size() const { return cut.splits > 1 ? cut.tasks() * block_size() : 0; }
};

// Where the lanes of a task's broadcast side go.
struct Place {
    int64_t out, feature;
};

// The ranges of one task.
struct Task {
    int64_t group, row, rows, column, columns, block, blocks, split;  // block: depth blocks
};

template <class T>
class Direct {
public:
    Direct(const Problem& problem, const Buffers& buffers)
        : p_(problem), kernels_(tile_kernels<T>(current_isa())), tiles_(kernels_), lhs_(static_cast<const T*>(buffers.lhs.data)),
          rhs_(static_cast<const T*>(buffers.rhs.data)), bias_(problem.has_bias ? static_cast<const T*>(buffers.bias.data) : nullptr),
          out_(static_cast<T*>(buffers.out.data)) {
        for (Lattice& lattice : make_lattices(problem)) {
            if (lattice.rows() == 0 || lattice.columns.empty()) continue;
            parts_.emplace_back(std::move(lattice), kernels_);
            Part<T>& part = parts_.back();
            part.first_task = tasks_;
            part.shared_rhs = shared_;
            tasks_ += part.cut.tasks() * p_.groups;
            shared_ += part.rhs_size() * p_.groups;
            part.partial = partial_;
            partial_ += part.partial_size() * p_.groups;
            local_ = std::max(local_, local_size(part));
        }
    }

    const char* run(Executor& executor) {
        T* shared = nullptr;
        if (shared_ + partial_ > 0) {
            shared = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(shared_ + partial_) * sizeof(T)));
            if (shared == nullptr) return "out of memory";
        }
        packed_ = shared;
        partials_ = shared + shared_;
        if (shared_ > 0) {
            InlineExecutor alone;  // waking others costs more than packing little
            pack_shared(shared_ < kSharedAlone ? alone : executor);
        }
        const char* why =
            for_tasks(executor, tasks_, static_cast<size_t>(local_), [&](int64_t task, void* local) { run_task(task, local); });
        return why == nullptr && partial_ > 0 ? sum_partials(executor) : why;
    }

    // True when a sum that padding takes part in came out infinite or NaN.
    bool suspicious() const { return suspicious_.load(); }

private:
    // Lanes of lhs that are packed at a time.
    static int64_t lhs_lanes(const Blocking& c) { return c.rows_in_vectors ? c.vector_width() : c.row_block; }

    // Bytes: the panels and sums, each piece on a vector boundary, and the places.
    int64_t local_size(const Part<T>& part) const {
        const Blocking& c = part.cut;
        int64_t size = lhs_lanes(c) * c.depth_block;
        if (!c.shared_rhs) size += c.padded(c.column_block) * c.depth_block;
        if (c.splits == 1) size += c.depth_blocks > 1 ? part.block_size() : int64_t{c.tile_rows} * c.vector_width();
        const int64_t broadcast = c.rows_in_vectors ? c.column_block : c.row_block;
        return (size + 3 * 16) * static_cast<int64_t>(sizeof(T)) + broadcast * static_cast<int64_t>(sizeof(Place));
    }

    static T* align(T* from) { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(from) + 63) / 64 * 64); }

    const Part<T>& part_of(int64_t task) const {
        size_t i = parts_.size() - 1;
        while (parts_[i].first_task > task) --i;
        return parts_[i];
    }

    Task task_of(const Part<T>& part, int64_t index) const {
        const Blocking& c = part.cut;
        Task t;
        t.split = index % c.splits;
        index /= c.splits;
        t.column = index % c.column_blocks * c.column_block;
        index /= c.column_blocks;
        t.row = index % c.row_blocks * c.row_block;
        t.group = index / c.row_blocks;
        t.rows = std::min(c.row_block, c.rows - t.row);
        t.columns = std::min(c.column_block, c.columns - t.column);
        t.block = t.split * c.split_blocks();
        t.blocks = std::min(c.split_blocks(), c.depth_blocks - t.block);
        return t;
    }

    // Panels of one side, in order: body(first lane, lanes, width).
    template <class Body>
    void for_panels(const Blocking& c, bool vectors, int64_t count, Body&& body) const {
        for (int64_t at = 0; at < count;) {
            const int64_t left = count - at;
            int lanes, width;
            if (vectors) {
                lanes = static_cast<int>(std::min<int64_t>(left, c.vector_width()));
                width = static_cast<int>(c.padded(lanes));
            } else {
                lanes = width = tiles_.next_rows(left, c.tile_rows, c.tile_vectors);
            }
            body(at, lanes, width);
            at += lanes;
        }
    }

    void pack_columns(const Part<T>& part, int64_t group, int64_t column, int64_t columns, int64_t first, int64_t depth, T* to) const {
        const T* data = rhs_ + group * p_.rhs.outer[0];
        for_panels(part.cut, !part.cut.rows_in_vectors, columns, [&](int64_t at, int lanes, int width) {
            Lanes side;
            column_lanes(part.lattice, column + at, lanes, &side);
            pack_rhs<T>(part.traversal.rhs_depth, kernels_.pack, data, side, first, depth, width, to + at * depth);
        });
    }

    // Chunks: every depth block of every group of every part, cut further by columns.
    void pack_shared(Executor& executor) const {
        for (const Part<T>& part : parts_) {
            if (!part.cut.shared_rhs) continue;
            const Blocking& c = part.cut;
            const int64_t step = int64_t{c.column_tile()} * ceil_div(64, c.column_tile());
            const int64_t pieces = ceil_div(c.columns, step);
            for_chunks(executor, p_.groups * c.depth_blocks * pieces, [&](int64_t chunk) {
                const int64_t column = chunk % pieces * step;
                const int64_t block = chunk / pieces % c.depth_blocks, group = chunk / pieces / c.depth_blocks;
                const int64_t first = block * c.depth_block, depth = std::min(c.depth_block, c.depth - first);
                T* to = packed_ + part.shared_rhs + group * part.rhs_size() + first * c.padded(c.columns) + column * depth;
                pack_columns(part, group, column, std::min(step, c.columns - column), first, depth, to);
            });
        }
    }

    // The places of a task's broadcast side.
    void find_places(const Part<T>& part, const Task& t, Place* places) const {
        const bool rows_in_vectors = part.cut.rows_in_vectors;
        const int64_t count = rows_in_vectors ? t.columns : t.rows;
        for (int64_t at = 0; at < count; at += kMaxLanes) {
            const int lanes = static_cast<int>(std::min<int64_t>(kMaxLanes, count - at));
            Lanes side;
            if (rows_in_vectors)
                column_lanes(part.lattice, t.column + at, lanes, &side);
            else
                row_lanes(part.lattice, part.traversal, t.row + at, lanes, &side);
            for (int j = 0; j < lanes; ++j) places[at + j] = {side.out[j], rows_in_vectors ? side.feature[j] : 0};
        }
    }

    void run_task(int64_t index, void* local) const {
        const Part<T>& part = part_of(index);
        const Blocking& c = part.cut;
        const Task t = task_of(part, index - part.first_task);
        Place* places = static_cast<Place*>(local);
        find_places(part, t, places);
        T* lhs_panels = align(reinterpret_cast<T*>(places + (c.rows_in_vectors ? c.column_block : c.row_block)));
        T* rhs_panels = align(lhs_panels + lhs_lanes(c) * c.depth_block);
        T* sums = c.shared_rhs ? rhs_panels : align(rhs_panels + c.padded(c.column_block) * c.depth_block);
        if (c.splits > 1) sums = partials_ + part.partial + (index - part.first_task) * part.block_size();
        const bool keep = c.depth_blocks > 1;
        bool padded = false;  // whether padding zeros took part in the sums at hand
        const T* lhs = lhs_ + t.group * p_.lhs.outer[0];
        for (int64_t block = t.block; block < t.block + t.blocks; ++block) {
            const int64_t first = block * c.depth_block, depth = std::min(c.depth_block, c.depth - first);
            const T* columns = rhs_panels;
            if (c.shared_rhs)
                columns = packed_ + part.shared_rhs + t.group * part.rhs_size() + first * c.padded(c.columns) + t.column * depth;
            else
                pack_columns(part, t.group, t.column, t.columns, first, depth, rhs_panels);
            if (!c.rows_in_vectors)
                for_panels(c, false, t.rows, [&](int64_t at, int lanes, int width) {
                    Lanes side;
                    row_lanes(part.lattice, part.traversal, t.row + at, lanes, &side);
                    T* to = lhs_panels + at * depth;
                    padded |= pack_lhs<T>(part.lattice, part.traversal, kernels_.pack, lhs, side, first, depth, width, c.by_rows, to);
                });
            const bool store = c.splits == 1 && block + 1 == t.block + t.blocks;
            for_vector_panels(part, t, [&](int64_t lane, int width, const Lanes& side) {
                const T* in_vectors = columns + lane * depth;
                if (c.rows_in_vectors) {  // packed when its turn comes, so that the tiles find it in the first cache
                    padded &= keep;
                    padded |= pack_lhs<T>(part.lattice, part.traversal, kernels_.pack, lhs, side, first, depth, width, false, lhs_panels);
                    in_vectors = lhs_panels;
                }
                const T* broadcast = c.rows_in_vectors ? columns : lhs_panels;
                for_tiles(part, t, lane, width, side.count, [&](const TileAt& tile) {
                    T* sum = keep ? sums + tile.offset : sums;
                    tiles_.at(tile.rows, width / c.lanes, c.by_rows)(depth, broadcast + tile.row * depth, in_vectors, sum, block > t.block);
                    if (store) store_tile(part, t, tile, side, places + tile.row, padded, sum);
                });
            });
        }
    }

    struct TileAt {
        int64_t lane, row, offset;  // first lane of the vector side, of the broadcast side, place in a block of sums
        int lanes, width, rows;
    };

    // Panels of the vector side of a task's block: body(first lane, width, lanes).
    template <class Body>
    void for_vector_panels(const Part<T>& part, const Task& t, Body&& body) const {
        const Blocking& c = part.cut;
        for_panels(c, true, c.rows_in_vectors ? t.rows : t.columns, [&](int64_t lane, int lanes, int width) {
            Lanes side;
            if (c.rows_in_vectors)
                row_lanes(part.lattice, part.traversal, t.row + lane, lanes, &side);
            else
                column_lanes(part.lattice, t.column + lane, lanes, &side);
            body(lane, width, side);
        });
    }

    // Tiles of one such panel.
    template <class Body>
    void for_tiles(const Part<T>& part, const Task& t, int64_t lane, int width, int lanes, Body&& body) const {
        const int64_t broadcast = part.cut.rows_in_vectors ? t.columns : t.rows;
        for_panels(part.cut, false, broadcast,
                   [&](int64_t row, int rows, int) { body(TileAt{lane, row, lane * broadcast + row * width, lanes, width, rows}); });
    }

    // Bias, activation and the way out. `sum` holds tile.rows rows of tile.width lanes; padded: padding zeros took part.
    void store_tile(const Part<T>& part, const Task& t, const TileAt& tile, const Lanes& side, const Place* across, bool padded,
                    T* sum) const {
        const bool rows_in_vectors = part.cut.rows_in_vectors;
        if (padded && !kernels_.finite(sum, int64_t{tile.rows} * tile.width)) suspicious_.store(true, std::memory_order_relaxed);
        T* out = out_ + t.group * p_.out.outer[0];
        const int64_t first_feature = t.group * p_.features;
        T bias[kMaxLanes];
        if (bias_ != nullptr && !rows_in_vectors)
            for (int j = 0; j < tile.lanes; ++j) bias[j] = bias_[(first_feature + side.feature[j]) * p_.bias_stride];
        for (int m = 0; m < tile.rows; ++m) {
            T* row = sum + int64_t{m} * tile.width;
            if (bias_ != nullptr && rows_in_vectors) bias[0] = bias_[(first_feature + across[m].feature) * p_.bias_stride];
            if (bias_ != nullptr || p_.activation != Activation::none)
                finish_row<T>(row, tile.lanes, 1, bias_ == nullptr ? nullptr : bias, rows_in_vectors ? 0 : 1, p_.activation);
            T* to = out + across[m].out;
            for (int j = 0; j < tile.lanes;) {
                const int end = side.out_end[j];
                if (end - j >= 4)
                    std::memcpy(to + side.out[j], row + j, static_cast<size_t>(end - j) * sizeof(T));
                else
                    for (int q = j; q < end; ++q) to[side.out[q]] = row[q];
                j = end;
            }
        }
    }

    // Adds the parts of the depth of each block in order, whoever computed them.
    const char* sum_partials(Executor& executor) const {
        for (const Part<T>& part : parts_) {
            const Blocking& c = part.cut;
            if (c.splits == 1) continue;
            const int64_t blocks = p_.groups * c.row_blocks * c.column_blocks;
            // A thread's scratch is free by now: every task has been summed into partials.
            const char* why = for_tasks(executor, blocks, static_cast<size_t>(local_), [&](int64_t block, void* local) {
                Place* places = static_cast<Place*>(local);
                const Task t = task_of(part, block * c.splits);
                find_places(part, t, places);
                T* sums = partials_ + part.partial + block * c.splits * part.block_size();
                for_vector_panels(part, t, [&](int64_t lane, int width, const Lanes& side) {
                    for_tiles(part, t, lane, width, side.count, [&](const TileAt& tile) {
                        T* into = sums + tile.offset;
                        for (int64_t split = 1; split < c.splits; ++split) {
                            const T* from = into + split * part.block_size();
                            for (int64_t j = 0; j < int64_t{tile.rows} * tile.width; ++j) into[j] += from[j];
                        }
                        store_tile(part, t, tile, side, places + tile.row, part.traversal.checked > 0, into);
                    });
                });
            });
            if (why != nullptr) return why;
        }
        return nullptr;
    }

    const Problem p_;
    const TileKernels<T>& kernels_;
    const Tiles<T> tiles_;
    const T* lhs_;
    const T* rhs_;
    const T* bias_;
    T* out_;
    std::vector<Part<T>> parts_;
    int64_t tasks_ = 0, shared_ = 0, partial_ = 0, local_ = 0;
    T* packed_ = nullptr;
    T* partials_ = nullptr;
    mutable std::atomic<bool> suspicious_{false};
};

template <class T>
const char* run_direct_as(const Problem& problem, const Buffers& buffers, Executor& executor) {
    Direct<T> direct(problem, buffers);
    const char* why = direct.run(executor);
    if (why == nullptr && direct.suspicious() && !rhs_is_finite(problem, static_cast<const T*>(buffers.rhs.data)))
        return run_general(problem, buffers, executor);
    return why;
}

}  // namespace

const char* run_direct(const Problem& problem, const Buffers& buffers, Executor& executor) {
    if (problem.dtype != problem.out_dtype) return "direct: the output type must be the operands'";
    double columns = static_cast<double>(problem.features);
    for (int i = 0; i < problem.dims; ++i) columns *= static_cast<double>(std::min(problem.axes[i].lhs_dilation, problem.axes[i].out));
    if (columns > kMaxColumns) return "direct: too many columns";
    if (problem.dtype == Dtype::f32) return run_direct_as<float>(problem, buffers, executor);
    if (problem.dtype == Dtype::f64) return run_direct_as<double>(problem, buffers, executor);
    return "direct: f32 and f64 only";
}

}  // namespace fastconv
