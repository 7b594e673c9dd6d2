#include "drivers/block_merged.h"

#include <algorithm>

#include "base/tasks.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kTasks = 8;                // enough to keep many cores even
constexpr int64_t kTaskProducts = 1 << 17;   // a task smaller than this costs more to hand out than to run
constexpr int64_t kStretchBytes = 24 << 10;  // of pixels that a tile reads before its sums wait
constexpr int64_t kPackedAlone = 1 << 15;    // elements of weights that the calling thread packs alone
constexpr int64_t kAtOnce = 16;              // lines that are transposed together
constexpr double kStored = 2.0;              // cycles to look at an output, finish it and move it
constexpr double kWeightCycles = 0.2;        // to read a weight for another stretch

// to[q * along + j] = from[j * pitch + q] for j < lines, q < count.
template <class T>
void spread(const PackKernels<T>& pack, const T* from, int64_t pitch, int64_t lines, int64_t count, T* to, int64_t along) {
    if (along == 1 && lines == 1) return pack.spaced(to, 0, 1, from, 0, 1, count);
    if (along == lines && lines <= 4) return pack.weave(to, from, pitch, lines, count);
    const T* starts[kAtOnce];
    int64_t zero[kAtOnce] = {}, all[kAtOnce];
    for (int64_t first = 0; first < lines; first += kAtOnce) {
        const int64_t now = std::min(kAtOnce, lines - first);
        for (int64_t j = 0; j < now; ++j) {
            starts[j] = from + (first + j) * pitch;
            all[j] = count;
        }
        pack.walked(to + first, along, count, starts, zero, all, now, 1);
    }
}

}  // namespace

template <class T>
MergedPhases<T>::MergedPhases(const MergedProblem& merged, const BlockCall<T>& call, const BlockSet<T>& set)
    : merged_(merged), p(merged.problem), call_(call), set_(set), kernels_(tile_kernels<T>(current_isa())), taps_(p),
      lines_(p, sizeof(T), set.lanes, wanted_tasks()), tiles_(merged) {
    call_.suspicious = &suspicious_;
    choose_tiles();
    const Problem& whole = call_.p;
    const bool lines = whole.out.spatial[whole.dims - 1] == 1 && (whole.out.outer[2] != 1 || whole.features == 1);
    for (size_t first = 0; first < merged_.phases.size(); first += static_cast<size_t>(merged_.inner)) {
        bool none = lines;
        for (size_t phase = first; phase < first + static_cast<size_t>(merged_.inner); ++phase)
            for (const int64_t weight : tiles_.weight_at[phase]) none = none && weight == MergedTiles::kNoWeight;
        filled_.push_back(none);
    }
    channel_block_ = channel_block(vectors_);
    slice_blocks_ = std::min(static_cast<int64_t>(tiles_.slices.size()), ceil_div(wanted_tasks(), p.groups * p.batch * lines_.blocks()));
}

template <class T>
int64_t MergedPhases<T>::wanted_tasks() const {
    double products = static_cast<double>(p.batch * p.groups * p.features * p.channels * merged_.taps);
    for (int i = 0; i < p.dims; ++i) products *= static_cast<double>(p.axes[i].out);
    return std::max<int64_t>(1, static_cast<int64_t>(std::min<double>(kTasks, products / kTaskProducts)));
}

// Channels that a tile of this width reads before its sums wait.
template <class T>
int64_t MergedPhases<T>::channel_block(int vectors) const {
    int64_t stretch = int64_t{vectors} * set_.lanes + lines_.reach[p.dims - 1];
    for (int i = 0; i + 1 < p.dims; ++i) stretch *= p.axes[i].kernel;
    const int64_t most = std::max<int64_t>(8, kStretchBytes / static_cast<int64_t>(sizeof(T)) / (stretch * lines_.images));
    return ceil_div(p.channels, ceil_div(p.channels, most));
}

// Vectors of a line of a block.
template <class T>
int64_t MergedPhases<T>::line_vectors() const {
    int64_t line = 1;
    for (int i = std::max(0, p.dims - 2); i < p.dims; ++i) line = (line - 1) * (lines_.block[i] + lines_.reach[i] / 2) + lines_.block[i];
    return ceil_div(line, set_.lanes);
}

// The cheapest width: wider tiles read the weights less often.
template <class T>
void MergedPhases<T>::choose_tiles() {
    const int64_t vectors = line_vectors();
    auto lay_out = [&](int width) {
        const int64_t stretches = ceil_div(vectors, width);
        tiles_.lay_out(call_.p.features, p.channels, channel_block(width), int64_t{width} * set_.lanes, sizeof(T), set_.max_rows[width],
                       static_cast<double>(vectors) / static_cast<double>(stretches));
        return static_cast<double>(stretches) * (tiles_.cycles + kWeightCycles * static_cast<double>(tiles_.weights));
    };
    double least = 0;
    for (int width = set_.max_vectors; width > 1; --width) {
        const double cycles = lay_out(width);
        if (vectors_ > 0 && cycles >= least) continue;
        least = cycles;
        vectors_ = width;
    }
    lay_out(vectors_);
}

template <class T>
double MergedPhases<T>::cycles() const {
    double lines = 1, copied = static_cast<double>(p.channels), outputs = static_cast<double>(p.features);
    for (int i = 0; i + 2 < p.dims; ++i) lines *= static_cast<double>(p.axes[i].out);
    for (int i = std::max(0, p.dims - 2); i < p.dims; ++i) lines *= static_cast<double>(lines_.counts[i]);
    for (int i = 0; i < p.dims; ++i) {
        copied *=
            static_cast<double>(lines_.counts[i] * (lines_.block[i] + lines_.reach[i])) * static_cast<double>(lines_.phases[i].size());
        outputs *= static_cast<double>(p.axes[i].out);
    }
    const int64_t step = p.lhs.spatial[p.dims - 1] * p.axes[p.dims - 1].stride;
    const double each = step == 1 ? kCopied : step == 2 ? 2 * kCopied : p.lhs.outer[2] == 1 ? kTransposed : kAlone;
    const double weights = static_cast<double>(tiles_.weights), stretches = static_cast<double>(ceil_div(line_vectors(), vectors_));
    const double image = lines * stretches * (tiles_.cycles + kWeightCycles * weights) +
                         copied * each * static_cast<double>(slice_blocks_) + kStored * outputs;
    return static_cast<double>(p.groups) * (static_cast<double>(p.batch) * image + kAlone * weights);
}

template <class T>
int64_t MergedPhases<T>::copy_size() const {
    const int64_t room = p.channels * set_.lanes + 2 * int64_t{vectors_} * set_.lanes;
    return (lines_.copy_size() + room) / set_.lanes * set_.lanes;
}

template <class T>
size_t MergedPhases<T>::local_bytes() const {
    const int64_t elements = copy_size() + tiles_.columns * vectors_ * set_.lanes;
    return static_cast<size_t>(elements) * sizeof(T) + static_cast<size_t>(tiles_.segments) * sizeof(T*);
}

template <class T>
const char* MergedPhases<T>::run(const T* lhs, T* shared, Executor& executor, bool* finite) {
    pack(shared, executor);
    const char* why = for_tasks(executor, p.groups * p.batch * lines_.blocks() * slice_blocks_, local_bytes(),
                                [&](int64_t task, void* local) { run_task(lhs, task, local); });
    *finite = !suspicious_.load();
    return why;
}

// Also notes where every tile's rows lie.
template <class T>
void MergedPhases<T>::pack(T* to, Executor& executor) {
    struct Piece {
        const MergedSlice* slice;
        const MergedTile* tile;
    };
    std::vector<Piece> pieces;
    a_.resize(static_cast<size_t>(tiles_.pointers));
    for (const MergedSlice& slice : tiles_.slices)
        for (const MergedTile& tile : slice.tiles) {
            pieces.push_back({&slice, &tile});
            for (int64_t s = 0; s < static_cast<int64_t>(tile.taps.size()); ++s)
                for (int64_t m = 0; m < tile.rows; ++m)
                    a_[static_cast<size_t>(tile.pointers + s * tile.rows + m)] = to + tile.weights + s * p.channels * tile.rows + m;
        }
    InlineExecutor alone;  // waking others costs more than packing little
    const int64_t count = static_cast<int64_t>(pieces.size());
    for_chunks(shared_size() < kPackedAlone ? alone : executor, p.groups * count, [&](int64_t chunk) {
        const Piece& piece = pieces[static_cast<size_t>(chunk % count)];
        pack_tile(*piece.slice, *piece.tile, chunk / count, to + chunk / count * tiles_.weights + piece.tile->weights);
    });
}

template <class T>
void MergedPhases<T>::pack_tile(const MergedSlice& slice, const MergedTile& tile, int64_t group, T* to) const {
    const int64_t channel = p.rhs.outer[2], block = p.channels * tile.rows;
    for (int64_t m = 0; m < tile.rows; ++m) {
        const int64_t phase = (tile.column + m) / slice.features, feature = slice.feature + (tile.column + m) % slice.features;
        const std::vector<int64_t>& at = tiles_.weight_at[static_cast<size_t>(phase)];
        const T* from = call_.rhs + group * p.rhs.outer[0] + feature * p.rhs.outer[1];
        T* place = to + m;
        for (const int32_t tap : tile.taps) {
            const int64_t first = at[static_cast<size_t>(tap)];
            for (int64_t c = 0; c < p.channels; ++c)
                place[c * tile.rows] = first == MergedTiles::kNoWeight ? T(0) : from[first + c * channel];
            place += block;
        }
    }
}

template <class T>
void MergedPhases<T>::run_task(const T* lhs, int64_t index, void* local) {
    Task t{};
    const int64_t slices = static_cast<int64_t>(tiles_.slices.size()), slice_block = index % slice_blocks_;
    t.slice = slices * slice_block / slice_blocks_;
    t.slices = slices * (slice_block + 1) / slice_blocks_ - t.slice;
    index /= slice_blocks_;
    const BlockCopy copy(p, lines_, set_.lanes, index % lines_.blocks());
    index /= lines_.blocks();
    t.image = index % p.batch;
    t.group = index / p.batch;
    t.copy = static_cast<T*>(local);
    t.sums = t.copy + copy_size();
    t.b = reinterpret_cast<const T**>(t.sums + tiles_.columns * vectors_ * set_.lanes);
    const T* image = lhs + p.lhs.offset + t.group * p.lhs.outer[0] + t.image * p.lhs.outer[1];
    fill_block_copy(p, lines_, copy, image, int64_t{vectors_} * set_.lanes, t.copy);
    for (int64_t i = t.slice; i < t.slice + t.slices; ++i)
        for (const MergedTile& tile : tiles_.slices[static_cast<size_t>(i)].tiles)
            for (size_t s = 0; s < tile.taps.size(); ++s)
                t.b[tile.segments + static_cast<int64_t>(s)] = t.copy + copy.tap(p, lines_, taps_.reach.data() + tile.taps[s] * p.dims);
    const int64_t lines = copy.lines(p.dims), line = copy.line(p.dims);
    const int64_t vectors = ceil_div(line, set_.lanes), stretches = ceil_div(vectors, vectors_);
    for (int64_t i = 0; i < lines; ++i) {
        Stretch stretch{};
        int64_t rest = i, start = 0;
        for (int j = p.dims - 3; j >= 0; --j) {
            stretch.outer[j] = rest % copy.extent[j];
            rest /= copy.extent[j];
            start += stretch.outer[j] * copy.pitch[j];
        }
        for (int64_t s = 0; s < stretches; ++s) {
            const int64_t vector = vectors * s / stretches, many = vectors * (s + 1) / stretches - vector;
            stretch.first = vector * set_.lanes;
            stretch.count = std::min(many * set_.lanes, line - stretch.first);
            stretch.vectors = static_cast<int>(many);
            stretch.place = start + stretch.first;
            for (int64_t j = t.slice; j < t.slice + t.slices; ++j) run_slice(t, tiles_.slices[static_cast<size_t>(j)], copy, stretch);
        }
    }
}

template <class T>
void MergedPhases<T>::run_slice(const Task& t, const MergedSlice& slice, const BlockCopy& copy, const Stretch& stretch) {
    const int64_t pitch = int64_t{stretch.vectors} * set_.lanes;
    BlockArguments<T> arguments{};
    T* c[kBlockMaxRows];
    arguments.b_step = copy.channel_pitch;
    arguments.c = c;
    arguments.tail = set_.lanes;
    for (int64_t channel = 0; channel < p.channels; channel += channel_block_) {
        arguments.steps = std::min(channel_block_, p.channels - channel);
        arguments.accumulate = channel > 0;
        arguments.b_shift = stretch.place + channel * copy.channel_pitch;
        for (const MergedTile& tile : slice.tiles) {
            if (is_left_out(slice, tile)) continue;
            arguments.segments = static_cast<int64_t>(tile.taps.size());
            arguments.a = a_.data() + tile.pointers;
            arguments.a_step = tile.rows;
            arguments.a_shift = t.group * tiles_.weights + channel * tile.rows;
            arguments.b = t.b + tile.segments;
            for (int64_t m = 0; m < tile.rows; ++m) c[m] = t.sums + (tile.column + m) * pitch;
            set_.at[tile.rows][stretch.vectors](arguments);
        }
    }
    for (const MergedTile& tile : slice.tiles) {
        if (is_left_out(slice, tile)) continue;
        for (int64_t j = tile.column; j < tile.column + tile.rows; ++j) {
            T* sums = t.sums + j * pitch;
            if (copy.padded || !tile.exact) call_.look_at(kernels_, sums, stretch.count);
            if (call_.has_epilogue()) finish(t, slice.feature + j % slice.features, sums, stretch.count);
        }
    }
    store(t, slice, copy, stretch);
}

template <class T>
void MergedPhases<T>::finish(const Task& t, int64_t feature, T* sums, int64_t count) const {
    const T* bias = call_.bias == nullptr ? nullptr : call_.bias + (t.group * call_.p.features + feature) * call_.p.bias_stride;
    finish_row<T>(sums, count, 1, bias, 0, call_.p.activation);
}

// Whether all columns of a tile are of rows that are filled.
template <class T>
bool MergedPhases<T>::is_left_out(const MergedSlice& slice, const MergedTile& tile) const {
    bool all = tile.taps.empty();
    for (int64_t j = tile.column; j < tile.column + tile.rows && all; ++j)
        all = filled_[static_cast<size_t>(j / slice.features / merged_.inner)];
    return all;
}

// Row by row, without what lies between rows.
template <class T>
void MergedPhases<T>::store(const Task& t, const MergedSlice& slice, const BlockCopy& copy, const Stretch& stretch) const {
    const int lane = p.dims - 1, row = p.dims - 2;
    int64_t at[kMaxDims];
    for (int i = 0; i + 2 < p.dims; ++i) at[i] = copy.first[i] + stretch.outer[i];
    const int64_t end = stretch.first + stretch.count;
    for (int64_t position = stretch.first; position < end;) {
        const int64_t r = p.dims > 1 ? position / copy.pitch[row] : 0, start = p.dims > 1 ? r * copy.pitch[row] : 0;
        const int64_t first = position - start, last = std::min(copy.extent[lane], end - start);
        if (p.dims > 1) at[row] = copy.first[row] + r;
        at[lane] = copy.first[lane] + first;
        if (first < last) store_row(t, slice, at, last - first, int64_t{stretch.vectors} * set_.lanes, t.sums + (position - stretch.first));
        position = p.dims > 1 ? start + copy.pitch[row] : end;
    }
}

template <class T>
void MergedPhases<T>::store_row(const Task& t, const MergedSlice& slice, const int64_t* at, int64_t count, int64_t pitch,
                                const T* sums) const {
    const Problem& whole = call_.p;
    const int lane = p.dims - 1;
    const int64_t step = whole.out.spatial[lane], feature = whole.out.outer[2], inner = merged_.inner, features = slice.features;
    const int64_t along = inner * step;
    // Of the innermost axis' phases the first have `most` outputs, as all have at least `least`.
    const int64_t least = std::clamp<int64_t>(whole.axes[lane].out / inner - at[lane], 0, count);
    T* out = call_.out + whole.out.offset + t.group * whole.out.outer[0] + t.image * whole.out.outer[1] + slice.feature * feature +
             at[lane] * along;
    for (size_t first = 0; first < merged_.phases.size(); first += static_cast<size_t>(inner)) {
        const Phase& phase = merged_.phases[first];
        T* to = out;
        bool some = true;
        for (int i = 0; i < lane; ++i) {
            some = some && at[i] < phase.problem.axes[i].out;
            to += (phase.first[i] + at[i] * phase.step[i]) * whole.out.spatial[i];
        }
        if (!some) continue;
        const T* columns = sums + static_cast<int64_t>(first) * features * pitch;
        const int64_t more = least == count ? 0 : whole.axes[lane].out - (at[lane] + least) * inner;  // phases with one output more
        if (filled_[first / static_cast<size_t>(inner)]) {
            for (int64_t f = 0; f < features; ++f, to += feature) {
                T value = 0;
                if (call_.has_epilogue()) finish(t, slice.feature + f, &value, 1);
                std::fill_n(to, least * inner + more, value);
            }
            continue;
        }
        if (feature == 1 && features > 1) {
            for (int64_t q = 0; q < inner; ++q)
                spread(kernels_.pack, columns + q * features * pitch, pitch, features, q < more ? count : least, to + q * step, along);
            continue;
        }
        for (int64_t f = 0; f < features; ++f, to += feature, columns += pitch) {
            if (step == 1) {
                spread(kernels_.pack, columns, features * pitch, inner, least, to, inner);
            } else {
                for (int64_t q = 0; q < inner; ++q)
                    for (int64_t j = 0; j < least; ++j) to[q * step + j * along] = columns[q * features * pitch + j];
            }
            for (int64_t q = 0; q < more; ++q) to[q * step + least * along] = columns[q * features * pitch + least];
        }
    }
}

template class MergedPhases<float>;
template class MergedPhases<double>;

}  // namespace fastconv
