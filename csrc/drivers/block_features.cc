// The block algorithm with vectors along features: a tile is a few pixels, each read through one pointer a tap.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/tasks.h"
#include "drivers/block.h"
#include "drivers/block_tiles.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kPixels = 192;                  // of a task, about
constexpr int64_t kTableEntries = 8192;           // pointers of a task
constexpr int64_t kPanelBytes = 384 << 10;        // of weights between two visits of a sum: they stay in the second cache ...
constexpr int64_t kOwnPanelBytes = 96 << 10;      // ... beside much else, where a task lays them out for itself
constexpr int64_t kTasks = 16;                    // enough to keep many cores even
constexpr int64_t kTaskProducts = 1 << 17;        // a task smaller than this costs more to hand out than to run
constexpr int64_t kWeightsOfOneTask = 512 << 10;  // bytes; more are better split between tasks than read by each

template <class T>
class ByFeatures final : public BlockForm<T> {
public:
    ByFeatures(const BlockCall<T>& call, const BlockSet<T>& set)
        : call_(call), p(call_.p), set_(set), kernels_(tile_kernels<T>(current_isa())), taps_(p), panels_(p, set.lanes, set.max_vectors),
          rows_(set.max_rows[panels_.max_vectors]), tiles_(p, taps_, rows_, panels_.max_vectors) {
        pixels_ = p.batch;
        for (int i = 0; i < p.dims; ++i) pixels_ *= p.axes[i].out;
        direct_ = p.out.outer[2] == 1;
        const double products = static_cast<double>(pixels_) * static_cast<double>(p.features * p.channels * taps_.count);
        const int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(std::min<double>(kTasks, products / kTaskProducts)));
        const int64_t most_pixels = std::max<int64_t>(rows_, std::min(kPixels, kTableEntries / taps_.count));
        pixel_blocks_ = ceil_div(pixels_, most_pixels);
        if (pixel_blocks_ >= wanted)
            pixel_blocks_ = (pixel_blocks_ + wanted / 2) / wanted * wanted;  // shared out evenly by two threads or four
        const bool heavy = p.features * p.channels * taps_.count * static_cast<int64_t>(sizeof(T)) > kWeightsOfOneTask;
        if (heavy && pixel_blocks_ < wanted) panel_blocks_ = std::min(panels_.count, ceil_div(wanted, pixel_blocks_));
        if (pixel_blocks_ * panel_blocks_ < (heavy ? wanted / 2 : wanted))
            pixel_blocks_ = std::min(ceil_div(pixels_, rows_), ceil_div(wanted, panel_blocks_));
        pixel_block_ = ceil_div(ceil_div(pixels_, rows_), pixel_blocks_) * rows_;
        const int64_t step_bytes = taps_.count * panels_.max_vectors * set.lanes * static_cast<int64_t>(sizeof(T));
        const int64_t most_channels = std::max<int64_t>(8, (pixel_blocks_ > 1 ? kPanelBytes : kOwnPanelBytes) / step_bytes);
        channel_block_ = ceil_div(p.channels, ceil_div(p.channels, most_channels));
        if (most_channels >= set.lanes && channel_block_ < p.channels)  // whole squares of transpositions
            channel_block_ = std::min(most_channels / set.lanes, ceil_div(channel_block_, set.lanes)) * set.lanes;
    }

    double cycles() const override {
        const double pixels = static_cast<double>(pixels_), taps = met_taps(p);
        const double outputs = pixels * static_cast<double>(p.features), weights = static_cast<double>(panels_.size());
        double step = 0;
        for (int64_t panel = 0; panel < panels_.count; ++panel) step += block_tile_cycles(rows_, panels_.panel_vectors(panel));
        double cycles = step * taps * static_cast<double>(p.channels) * pixels / rows_ + pixels * (40 + 3 * taps);
        cycles += weights * (p.rhs.outer[1] == 1 ? kCopied : kTransposed);
        const bool adjoin = p.dims > 0 && p.out.spatial[p.dims - 1] == 1;
        cycles += outputs * (direct_ ? 0 : adjoin ? kTransposed : kAlone);
        return cycles * static_cast<double>(p.groups);
    }

    // Elements of shared scratch: weights, unless each is one task's alone, then zeros.
    int64_t shared_size() const override { return (pixel_blocks_ > 1 ? p.groups * panels_.size() : 0) + p.channels; }

    const char* run(const T* lhs, T* out, T* shared, Executor& executor) override {
        lhs_ = lhs;
        call_.out = out;
        zeros_ = shared + shared_size() - p.channels;
        std::memset(shared + shared_size() - p.channels, 0, static_cast<size_t>(p.channels) * sizeof(T));
        weights_ = shared;
        if (pixel_blocks_ > 1) {
            InlineExecutor alone;  // waking others costs more than packing little
            const int64_t chunks = ceil_div(p.channels, channel_block_);
            for_chunks(panels_.size() < (1 << 15) ? alone : executor, p.groups * panels_.count * chunks, [&](int64_t index) {
                const int64_t panel = index / chunks % panels_.count, group = index / chunks / panels_.count;
                pack_chunk(group, panel, index % chunks * channel_block_, shared + chunk_at(group, panel, index % chunks * channel_block_));
            });
        }
        return for_tasks(executor, p.groups * pixel_blocks_ * panel_blocks_, local_bytes(),
                         [&](int64_t task, void* local) { run_task(task, local); });
    }

private:
    struct Task {
        int64_t group, pixel, pixels, panel, panels;
        typename PixelTiles<T>::Table table;
        const T** b;  // of one tile
        T* chunk;     // of weights, where only one task needs it
        T* sums;      // [pixel][features of the task], where outputs are not written at once
        int64_t sums_pitch;
    };

    // Where a chunk of weights lies: panels by group, chunks by channels.
    int64_t chunk_at(int64_t group, int64_t panel, int64_t first) const {
        const int64_t width = int64_t{panels_.panel_vectors(panel)} * set_.lanes;
        return group * panels_.size() + panels_.taps * (panels_.first_vector(panel) * set_.lanes * p.channels + first * width);
    }
    void pack_chunk(int64_t group, int64_t panel, int64_t first, T* to) const {
        pack_block_chunk<T>(call_, taps_, panels_, group, panel, first, std::min(channel_block_, p.channels - first), to);
    }

    int64_t sums_pitch() const { return ceil_div(panels_.count, panel_blocks_) * panels_.max_vectors * set_.lanes; }

    int64_t sums_size() const { return direct_ ? 0 : pixel_block_ * sums_pitch(); }
    int64_t chunk_size() const { return pixel_blocks_ > 1 ? 0 : taps_.count * channel_block_ * panels_.max_vectors * set_.lanes; }

    size_t local_bytes() const {
        return static_cast<size_t>(chunk_size() + sums_size()) * sizeof(T) + tiles_.bytes(pixel_block_) +
               static_cast<size_t>(taps_.count) * sizeof(T*) + 64;
    }

    Task task_of(int64_t index, void* local) const {
        Task t{};
        t.panel = index % panel_blocks_ * panels_.count / panel_blocks_;
        t.panels = (index % panel_blocks_ + 1) * panels_.count / panel_blocks_ - t.panel;
        index /= panel_blocks_;
        const int64_t block = index % pixel_blocks_, tiles = ceil_div(pixels_, rows_);
        t.pixel = tiles * block / pixel_blocks_ * rows_;
        t.pixels = std::min(tiles * (block + 1) / pixel_blocks_ * rows_, pixels_) - t.pixel;
        t.group = index / pixel_blocks_;
        t.sums_pitch = sums_pitch();
        t.chunk = static_cast<T*>(local);
        t.sums = t.chunk + chunk_size();
        char* at = reinterpret_cast<char*>(t.sums + sums_size());
        at += (64 - reinterpret_cast<uintptr_t>(at) % 64) % 64;
        t.b = reinterpret_cast<const T**>(at);
        t.table = tiles_.place(pixel_block_, t.b + taps_.count);
        return t;
    }

    void run_task(int64_t index, void* local) const {
        Task t = task_of(index, local);
        tiles_.fill(lhs_, zeros_, t.group, t.pixel, t.pixels, &t.table);
        for (int64_t c = 0; c < p.channels; c += channel_block_)
            for (int64_t panel = t.panel; panel < t.panel + t.panels; ++panel)
                run_panel(t, panel, c, std::min(channel_block_, p.channels - c));
        if (!direct_) store_sums(t);
    }

    // One panel of features for all tiles, channels first <= c < first + channels.
    void run_panel(const Task& t, int64_t panel, int64_t first, int64_t channels) const {
        const int64_t lane = panels_.first_vector(panel) * set_.lanes;
        const int vectors = panels_.panel_vectors(panel);
        const int64_t width = int64_t{vectors} * set_.lanes, lanes = std::min(width, p.features - lane);
        const T* weights = weights_ + chunk_at(t.group, panel, first);
        if (pixel_blocks_ == 1) {
            pack_chunk(t.group, panel, first, t.chunk);
            weights = t.chunk;
        }
        BlockArguments<T> arguments{};
        T* c[kBlockMaxRows];
        arguments.steps = channels;
        arguments.b = t.b;
        arguments.a_step = 1;
        arguments.b_step = panels_.channel_step() * width;
        arguments.a_shift = first;
        arguments.c = c;
        arguments.tail = direct_ ? lanes - (width - set_.lanes) : set_.lanes;
        arguments.accumulate = first > 0;
        const bool last = first + channels == p.channels;
        for (int64_t i = 0; i < t.table.tiles; ++i) {
            const BlockTile& tile = t.table.tile[i];
            const int32_t* tap = t.table.tap + tile.taps;
            for (int64_t s = 0; s < tile.segments; ++s) t.b[s] = weights + panels_.row(tap[s], channels) * width;
            arguments.a = t.table.pointer + tile.pointers;
            arguments.segments = tile.segments;
            for (int m = 0; m < tile.rows; ++m) {
                const int64_t pixel = t.table.order[tile.first + m];
                c[m] = direct_ ? call_.out + t.table.out[pixel] + lane
                               : t.sums + pixel * t.sums_pitch + lane - panels_.first_vector(t.panel) * set_.lanes;
            }
            set_.at[tile.rows][vectors](arguments);
            if (!last) continue;
            if (tile.padded)
                for (int m = 0; m < tile.rows; ++m) call_.look_at(kernels_, c[m], lanes);
            if (call_.has_epilogue())
                for (int m = 0; m < tile.rows; ++m) finish(t, lane, lanes, c[m]);
        }
    }

    void finish(const Task& t, int64_t lane, int64_t lanes, T* row) const {
        const T* bias = call_.bias == nullptr ? nullptr : call_.bias + (t.group * p.features + lane) * p.bias_stride;
        finish_row<T>(row, lanes, 1, bias, p.bias_stride, p.activation);
    }

    // Sums to outputs whose features do not lie side by side: transposed where neighbouring pixels do.
    void store_sums(const Task& t) const {
        const int64_t lane = panels_.first_vector(t.panel) * set_.lanes;
        const int64_t lanes = std::min(p.features, panels_.first_vector(t.panel + t.panels) * set_.lanes) - lane;
        const int64_t step = p.out.outer[2];
        constexpr int64_t most = 192, at_once = 16;  // pixels, features
        const T* lines[most];
        int64_t begin[most] = {}, end[most];
        for (int64_t pixel = 0; pixel < t.pixels;) {
            T* to = call_.out + t.table.out[pixel] + lane * step;
            const T* from = t.sums + pixel * t.sums_pitch;
            int64_t run = 1;
            while (run < most && pixel + run < t.pixels && t.table.out[pixel + run] == t.table.out[pixel] + run) ++run;
            pixel += run;
            if (run < 4) {
                for (int64_t q = 0; q < lanes; ++q)
                    for (int64_t j = 0; j < run; ++j) to[q * step + j] = from[j * t.sums_pitch + q];
                continue;
            }
            for (int64_t q = 0; q < lanes; q += at_once) {  // few features at a time: each is a stream of its own
                const int64_t now = std::min(at_once, lanes - q);
                for (int64_t j = 0; j < run; ++j) {
                    lines[j] = from + j * t.sums_pitch + q;
                    end[j] = now;
                }
                kernels_.pack.walked(to + q * step, step, now, lines, begin, end, run, 1);
            }
        }
    }

    BlockCall<T> call_;
    const Problem& p;
    const BlockSet<T>& set_;
    const TileKernels<T>& kernels_;
    const BlockTaps taps_;
    const BlockPanels panels_;
    const int rows_;
    const PixelTiles<T> tiles_;
    bool direct_;
    int64_t pixels_, pixel_block_, pixel_blocks_, panel_blocks_ = 1, channel_block_;
    const T* lhs_ = nullptr;
    const T* zeros_ = nullptr;
    const T* weights_ = nullptr;
};

}  // namespace

template <class T>
std::unique_ptr<BlockForm<T>> block_by_features(const BlockCall<T>& call, const BlockSet<T>& set) {
    return std::make_unique<ByFeatures<T>>(call, set);
}
template std::unique_ptr<BlockForm<float>> block_by_features<float>(const BlockCall<float>&, const BlockSet<float>&);
template std::unique_ptr<BlockForm<double>> block_by_features<double>(const BlockCall<double>&, const BlockSet<double>&);

}  // namespace fastconv
