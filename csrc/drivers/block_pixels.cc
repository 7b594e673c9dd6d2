// The block algorithm with vectors along pixels: a tile is a few features of a stretch of a line of pixels.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/tasks.h"
#include "drivers/block.h"
#include "drivers/block_lines.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kTasks = 8;                 // enough to keep many cores even
constexpr int64_t kTaskProducts = 1 << 17;    // a task smaller than this costs more to hand out than to run
constexpr int64_t kStretchBytes = 12 << 10;   // of pixels that a tile reads before its sums wait: they lie across lines ...
constexpr int64_t kAlignedBytes = 24 << 10;   // ... or, with one tap, do not
constexpr int64_t kFarWeights = 256;          // bytes between two channels from which weights are packed
constexpr int64_t kPixelsWorthPacking = 256;  // below this they are read where they lie all the same
constexpr int64_t kLanesAtOnce = 64;
constexpr double kWeightCycles = 0.2;  // to read a weight for another stretch

template <class T>
class ByPixels final : public BlockForm<T> {
public:
    ByPixels(const BlockCall<T>& call, const BlockSet<T>& set)
        : call_(call), p(call_.p), set_(set), kernels_(tile_kernels<T>(current_isa())), taps_(p), wanted_(wanted_tasks()),
          lines_(p, sizeof(T), set.lanes, wanted_) {
        choose_tile();
        int64_t pixels = p.batch;
        for (int i = 0; i < p.dims; ++i) pixels *= p.axes[i].out;
        packed_ = std::abs(p.rhs.outer[2]) * static_cast<int64_t>(sizeof(T)) > kFarWeights && pixels > kPixelsWorthPacking;
        const int64_t missing = ceil_div(wanted_, p.groups * p.batch * lines_.blocks());
        feature_blocks_ = std::min(tiles_, missing);
        const int64_t width = int64_t{vectors_} * set.lanes;
        // A tile's pixels of a channel: one stretch for each row that taps reach, and what they reach within it.
        int64_t stretch = width + (p.dims > 0 ? lines_.reach[p.dims - 1] : 0);
        for (int i = 0; i + 1 < p.dims; ++i) stretch *= p.axes[i].kernel;
        const int64_t most = std::max<int64_t>(
            8, (taps_.count == 1 ? kAlignedBytes : kStretchBytes) / static_cast<int64_t>(sizeof(T)) / (stretch * lines_.images));
        channel_block_ = ceil_div(p.channels, ceil_div(p.channels, most));
    }

    double cycles() const override {
        const double weights = static_cast<double>(p.features * p.channels * taps_.count);
        double outputs = static_cast<double>(p.features), lines = 1, copied = static_cast<double>(p.channels);
        for (int i = 0; i < p.dims; ++i) outputs *= static_cast<double>(p.axes[i].out);
        for (int i = 0; i + 2 < p.dims; ++i) lines *= static_cast<double>(p.axes[i].out);
        int64_t line_blocks = 1;
        for (int i = std::max(0, p.dims - 2); i < p.dims; ++i) line_blocks *= lines_.counts[i];
        const int64_t vectors = line_vectors(), stretches = ceil_div(vectors, vectors_);
        const double each = static_cast<double>(vectors) / static_cast<double>(stretches);
        const double steps = static_cast<double>(p.channels * taps_.count);
        const double tile = std::max(4.0, 0.5 * rows_ * each) + 0.4 + 10.0 / static_cast<double>(channel_block_);
        double cycles =
            lines * static_cast<double>(line_blocks * stretches) * (static_cast<double>(tiles_) * tile * steps + kWeightCycles * weights);
        const int64_t lane = p.dims > 0 ? p.lhs.spatial[p.dims - 1] * p.axes[p.dims - 1].stride : 1;
        const double per_element = lane == 1 ? kCopied : lane == 2 ? 2 * kCopied : p.lhs.outer[2] == 1 ? kTransposed : kAlone;
        for (int i = 0; i < p.dims; ++i)
            copied *=
                static_cast<double>(lines_.counts[i] * (lines_.block[i] + lines_.reach[i])) * static_cast<double>(lines_.phases[i].size());
        cycles += copied * per_element * static_cast<double>(feature_blocks_);
        const int64_t step = p.dims > 0 ? p.out.spatial[p.dims - 1] : 1;
        cycles += outputs * (step == 1 ? kCopied : p.out.outer[2] == 1 ? kTransposed : kAlone);
        cycles *= static_cast<double>(p.batch);
        if (packed_) cycles += weights * kAlone;
        return cycles * static_cast<double>(p.groups);
    }

    int64_t shared_size() const override { return packed_ ? p.groups * tiles_ * rows_ * taps_.count * p.channels : 0; }

    const char* run(const T* lhs, T* out, T* shared, Executor& executor) override {
        lhs_ = lhs;
        call_.out = out;
        weights_ = shared;
        if (packed_) pack_weights(shared, executor);
        return for_tasks(executor, p.groups * p.batch * lines_.blocks() * feature_blocks_, local_bytes(),
                         [&](int64_t task, void* local) { run_task(task, local); });
    }

private:
    struct Task {
        int64_t group, image, tile, tiles, feature, features;
        T* copy;
        T* sums;               // [feature][lane] of one stretch
        int64_t* place;        // of every tap in a channel of the copy
        const T** a[2];        // of tiles with rows_ and with one row less: [segment][row]
        const T** b;           // of every segment
        unsigned char* known;  // whether the tables hold a tap
        int64_t segments;
    };

    int64_t wanted_tasks() const {
        double products = static_cast<double>(p.batch * p.groups * p.features * p.channels * taps_.count);
        for (int i = 0; i < p.dims; ++i) products *= static_cast<double>(p.axes[i].out);
        return std::max<int64_t>(1, static_cast<int64_t>(std::min<double>(kTasks, products / kTaskProducts)));
    }

    // Vectors of a line of a block.
    int64_t line_vectors() const {
        int64_t line = 1;
        for (int i = std::max(0, p.dims - 2); i < p.dims; ++i)
            line = (line - 1) * (lines_.block[i] + lines_.reach[i] / 2) + lines_.block[i];
        return ceil_div(line, set_.lanes);
    }

    // The cheapest tile for such lines: wider ones read the weights less often.
    void choose_tile() {
        double least = 0;
        const int64_t vectors = line_vectors();
        for (int width = set_.max_vectors; width > 1; --width) {
            const int64_t stretches = ceil_div(vectors, width), tiles = ceil_div(p.features, set_.max_rows[width]);
            const double rows = static_cast<double>(p.features) / static_cast<double>(tiles);
            const double tile = std::max(4.0, 0.5 * rows * static_cast<double>(vectors) / static_cast<double>(stretches)) + 0.4;
            const double cycles =
                static_cast<double>(stretches) * (static_cast<double>(tiles) * tile + kWeightCycles * static_cast<double>(p.features));
            if (least > 0 && cycles >= least) continue;
            least = cycles;
            vectors_ = width;
            tiles_ = tiles;
            rows_ = static_cast<int>(ceil_div(p.features, tiles));
        }
    }

    int64_t first_feature(int64_t tile) const { return p.features * tile / tiles_; }
    int64_t width() const { return int64_t{vectors_} * set_.lanes; }
    int64_t copy_size() const { return (lines_.copy_size() + p.channels * set_.lanes + 2 * width()) / set_.lanes * set_.lanes; }
    int64_t sums_size() const { return ceil_div(tiles_, feature_blocks_) * rows_ * width(); }

    size_t local_bytes() const {
        const int64_t pointers = taps_.count * (2 * rows_ + 3);
        return static_cast<size_t>(copy_size() + sums_size()) * sizeof(T) + static_cast<size_t>(pointers) * sizeof(T*) + 64;
    }

    Task task_of(int64_t index, void* local) const {
        Task t{};
        const int64_t block = index % feature_blocks_;
        t.tile = tiles_ * block / feature_blocks_;
        t.tiles = tiles_ * (block + 1) / feature_blocks_ - t.tile;
        t.feature = first_feature(t.tile);
        t.features = first_feature(t.tile + t.tiles) - t.feature;
        index /= feature_blocks_ * lines_.blocks();
        t.image = index % p.batch;
        t.group = index / p.batch;
        t.copy = static_cast<T*>(local);
        t.sums = t.copy + copy_size();
        t.a[0] = reinterpret_cast<const T**>(t.sums + sums_size());
        t.a[1] = t.a[0] + taps_.count * rows_;
        t.b = t.a[1] + taps_.count * rows_;
        t.place = reinterpret_cast<int64_t*>(t.b + taps_.count);
        t.known = reinterpret_cast<unsigned char*>(t.place + taps_.count);
        t.segments = -1;
        return t;
    }

    // [group][tile][tap][channel][row]
    void pack_weights(T* shared, Executor& executor) const {
        InlineExecutor alone;  // waking others costs more than packing little
        for_chunks(shared_size() < (1 << 15) ? alone : executor, p.groups * tiles_, [&](int64_t chunk) {
            const int64_t tile = chunk % tiles_, feature = first_feature(tile), rows = first_feature(tile + 1) - feature;
            const T* from = call_.rhs + p.rhs.offset + chunk / tiles_ * p.rhs.outer[0] + feature * p.rhs.outer[1];
            T* to = shared + chunk * rows_ * taps_.count * p.channels;
            for (int64_t c = 0; c < p.channels; ++c)
                for (int64_t m = 0; m < rows; ++m)
                    for (int64_t tap = 0; tap < taps_.count; ++tap)
                        to[(tap * p.channels + c) * rows + m] =
                            from[c * p.rhs.outer[2] + m * p.rhs.outer[1] + taps_.rhs[static_cast<size_t>(tap)]];
        });
    }

    void run_task(int64_t index, void* local) const {
        Task t = task_of(index, local);
        const BlockCopy copy(p, lines_, set_.lanes, index / feature_blocks_ % lines_.blocks());
        std::memset(t.known, 0, static_cast<size_t>(taps_.count));
        const T* image = lhs_ + p.lhs.offset + t.group * p.lhs.outer[0] + t.image * p.lhs.outer[1];
        fill_block_copy(p, lines_, copy, image, width(), t.copy);
        for (int64_t tap = 0; tap < taps_.count; ++tap) t.place[tap] = copy.tap(p, lines_, taps_.reach.data() + tap * p.dims);
        const int64_t lines = copy.lines(p.dims), line = copy.line(p.dims);
        const int64_t vectors = ceil_div(line, set_.lanes), stretches = ceil_div(vectors, vectors_);
        for (int64_t i = 0; i < lines; ++i) {
            Line at = line_at(copy, i);
            at.out += p.out.offset + t.group * p.out.outer[0] + t.image * p.out.outer[1] + t.feature * p.out.outer[2];
            for (int64_t s = 0; s < stretches; ++s) {
                const int64_t vector = vectors * s / stretches, many = vectors * (s + 1) / stretches - vector;
                Stretch stretch{vector * set_.lanes, std::min(many * set_.lanes, line - vector * set_.lanes), static_cast<int>(many)};
                run_stretch(t, copy, at, stretch);
            }
        }
    }

    // One line of a block: its outer outputs, and where it starts in the copy and in the output.
    struct Line {
        int64_t outer[kMaxDims];
        int64_t copy, out;
    };
    struct Stretch {
        int64_t first, count;  // positions
        int vectors;
    };

    Line line_at(const BlockCopy& copy, int64_t index) const {
        Line line{};
        for (int i = p.dims - 3; i >= 0; --i) {
            line.outer[i] = index % copy.extent[i];
            index /= copy.extent[i];
            line.copy += line.outer[i] * copy.pitch[i];
            line.out += (copy.first[i] + line.outer[i]) * p.out.spatial[i];
        }
        return line;
    }

    // Whether tap step k of axis i meets data for some output first <= q <= last of the block.
    bool meets(const BlockCopy& copy, int i, int64_t k, int64_t first, int64_t last) const {
        const Axis& a = p.axes[i];
        const int64_t moved = k * a.rhs_dilation - a.lo;
        return (copy.first[i] + last) * a.stride + moved >= 0 && (copy.first[i] + first) * a.stride + moved < a.size;
    }

    // Lists the taps that meet data somewhere in a stretch; the tables of pointers change only when the list does.
    void find_segments(Task* t, const BlockCopy& copy, const Line& line, const Stretch& stretch) const {
        bool changed = t->segments < 0;
        int64_t low[kMaxDims], high[kMaxDims];
        for (int i = 0; i + 2 < p.dims; ++i) low[i] = high[i] = line.outer[i];
        const int64_t last = stretch.first + stretch.count - 1;
        if (p.dims > 1) {
            const int row = p.dims - 2, lane = p.dims - 1;
            low[row] = stretch.first / copy.pitch[row], high[row] = last / copy.pitch[row];
            low[lane] = low[row] == high[row] ? stretch.first % copy.pitch[row] : 0;
            high[lane] = low[row] == high[row] ? std::min(last % copy.pitch[row], copy.extent[lane] - 1) : copy.extent[lane] - 1;
        } else if (p.dims == 1) {
            low[0] = stretch.first, high[0] = last;
        }
        if (copy.padded || changed) {
            for (int64_t tap = 0; tap < taps_.count; ++tap) {
                int64_t rest = tap;
                bool some = true;
                for (int i = p.dims - 1; some && i >= 0; --i) {
                    some = meets(copy, i, rest % p.axes[i].kernel, low[i], high[i]);
                    rest /= p.axes[i].kernel;
                }
                changed = changed || t->known[tap] != static_cast<unsigned char>(some);
                t->known[tap] = some;
            }
        }
        if (!changed) return;
        t->segments = 0;
        const T* raw = call_.rhs + p.rhs.offset + t->group * p.rhs.outer[0];
        for (int64_t tap = 0; tap < taps_.count; ++tap) {
            if (!t->known[tap]) continue;
            for (int fewer = 0; fewer < 2; ++fewer) {
                const int rows = rows_ - fewer;
                const T** row = t->a[fewer] + t->segments * rows;
                for (int m = 0; m < rows; ++m)
                    row[m] =
                        packed_ ? weights_ + tap * p.channels * rows + m : raw + taps_.rhs[static_cast<size_t>(tap)] + m * p.rhs.outer[1];
            }
            t->b[t->segments++] = t->copy + t->place[tap];
        }
    }

    void run_stretch(Task& t, const BlockCopy& copy, const Line& line, const Stretch& stretch) const {
        const int64_t pitch = int64_t{stretch.vectors} * set_.lanes;
        const int64_t step = copy.channel_pitch, shift = line.copy + stretch.first;
        find_segments(&t, copy, line, stretch);
        BlockArguments<T> arguments{};
        T* c[kBlockMaxRows];
        arguments.segments = t.segments;
        arguments.b = t.b;
        arguments.b_step = step;
        arguments.c = c;
        // Sums are written where they belong if they all lie in one row, else to a place of their own.
        T* to = outputs_of(copy, line, stretch);
        const bool direct = to != nullptr;
        if (!direct) to = t.sums;
        const int64_t spread = direct ? p.out.outer[2] : pitch;
        arguments.tail = direct ? stretch.count - (pitch - set_.lanes) : set_.lanes;
        for (int64_t channel = 0; channel < p.channels; channel += channel_block_) {
            arguments.steps = std::min(channel_block_, p.channels - channel);
            arguments.accumulate = channel > 0;
            arguments.b_shift = shift + channel * step;
            for (int64_t tile = t.tile; tile < t.tile + t.tiles; ++tile) {
                const int64_t feature = first_feature(tile);
                const int rows = static_cast<int>(first_feature(tile + 1) - feature);
                arguments.a = t.a[rows_ - rows];
                arguments.a_step = packed_ ? rows : p.rhs.outer[2];
                arguments.a_shift = packed_ ? (t.group * tiles_ + tile) * rows_ * taps_.count * p.channels + channel * rows
                                            : feature * p.rhs.outer[1] + channel * p.rhs.outer[2];
                for (int m = 0; m < rows; ++m) c[m] = to + (feature - t.feature + m) * spread;
                set_.at[rows][stretch.vectors](arguments);
            }
        }
        for (int64_t f = 0; f < t.features && (copy.padded || call_.has_epilogue()); ++f) {
            T* row = to + f * spread;
            if (copy.padded) call_.look_at(kernels_, row, direct ? stretch.count : pitch);
            const T* bias = call_.bias == nullptr ? nullptr : call_.bias + (t.group * p.features + t.feature + f) * p.bias_stride;
            if (call_.has_epilogue()) finish_row<T>(row, stretch.count, 1, bias, 0, p.activation);
        }
        if (!direct) store(t, copy, line, stretch, pitch);
    }

    // Where a stretch's outputs lie side by side, or null.
    T* outputs_of(const BlockCopy& copy, const Line& line, const Stretch& stretch) const {
        const int lane = p.dims - 1, row = p.dims - 2;
        if (p.dims > 0 && p.out.spatial[lane] != 1) return nullptr;
        const int64_t r = p.dims > 1 ? stretch.first / copy.pitch[row] : 0, first = stretch.first - (p.dims > 1 ? r * copy.pitch[row] : 0);
        if (p.dims > 0 && first + stretch.count > copy.extent[lane]) return nullptr;
        T* to = call_.out + line.out;
        if (p.dims > 0) to += copy.first[lane] + first;
        if (p.dims > 1) to += (copy.first[row] + r) * p.out.spatial[row];
        return to;
    }

    // Row by row, without what lies between rows.
    void store(const Task& t, const BlockCopy& copy, const Line& line, const Stretch& stretch, int64_t pitch) const {
        const int lane = p.dims - 1, row = p.dims - 2;
        const int64_t end = stretch.first + stretch.count;
        for (int64_t at = stretch.first; at < end;) {
            const int64_t r = p.dims > 1 ? at / copy.pitch[row] : 0, start = p.dims > 1 ? r * copy.pitch[row] : 0;
            const int64_t first = at - start, last = std::min(p.dims > 0 ? copy.extent[lane] : 1, end - start);
            if (first < last) {
                int64_t out = line.out;
                if (p.dims > 0) out += (copy.first[lane] + first) * p.out.spatial[lane];
                if (p.dims > 1) out += (copy.first[row] + r) * p.out.spatial[row];
                store_run(t, t.sums + (at - stretch.first), pitch, last - first, call_.out + out);
            }
            at = p.dims > 1 ? start + copy.pitch[row] : end;
        }
    }

    void store_run(const Task& t, const T* from, int64_t pitch, int64_t count, T* to) const {
        const int64_t step = p.dims > 0 ? p.out.spatial[p.dims - 1] : 1, feature = p.out.outer[2];
        if (step == 1) {
            kernels_.pack.spaced(to, feature, t.features, from, pitch, 1, count);
        } else if (feature == 1) {
            const T* starts[kLanesAtOnce];
            int64_t zero[kLanesAtOnce] = {}, all[kLanesAtOnce];
            for (int64_t j = 0; j < kLanesAtOnce; ++j) all[j] = count;
            for (int64_t f = 0; f < t.features; f += kLanesAtOnce) {
                const int64_t now = std::min(kLanesAtOnce, t.features - f);
                for (int64_t j = 0; j < now; ++j) starts[j] = from + (f + j) * pitch;
                kernels_.pack.walked(to + f, step, count, starts, zero, all, now, 1);
            }
        } else {
            for (int64_t f = 0; f < t.features; ++f)
                for (int64_t j = 0; j < count; ++j) to[f * feature + j * step] = from[f * pitch + j];
        }
    }

    BlockCall<T> call_;
    const Problem& p;
    const BlockSet<T>& set_;
    const TileKernels<T>& kernels_;
    const BlockTaps taps_;
    const int64_t wanted_;
    const BlockLines lines_;
    int rows_, vectors_;
    bool packed_;
    int64_t tiles_, feature_blocks_, channel_block_;
    const T* lhs_ = nullptr;
    const T* weights_ = nullptr;
};

}  // namespace

template <class T>
std::unique_ptr<BlockForm<T>> block_by_pixels(BlockCall<T> call, const BlockSet<T>& set) {
    call.p = join_axes(call.p);
    return std::make_unique<ByPixels<T>>(call, set);
}
template std::unique_ptr<BlockForm<float>> block_by_pixels<float>(BlockCall<float>, const BlockSet<float>&);
template std::unique_ptr<BlockForm<double>> block_by_pixels<double>(BlockCall<double>, const BlockSet<double>&);

}  // namespace fastconv
