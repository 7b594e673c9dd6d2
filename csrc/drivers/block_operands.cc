// The block algorithm's operands: taps, weights as panels, pixels with their channels innermost.
#include <algorithm>
#include <cstring>

#include "base/scratch.h"
#include "drivers/block.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kMovedAtOnce = 256;  // positions of a channel

// Whether rhs runs on through memory, or backwards, over all taps, and over channels beyond them: 1, -1, or 0 for no.
struct Runs {
    int64_t taps, all;
};

Runs runs_of_weights(const Problem& p) {
    int64_t length = 1, sign = 0;
    auto joins = [&](int64_t extent, int64_t step) {
        if (extent == 1) return true;
        if (sign == 0) sign = step < 0 ? -1 : 1;
        if (step != sign * length) return false;
        length *= extent;
        return true;
    };
    for (int i = p.dims - 1; i >= 0; --i)
        if (!joins(p.axes[i].kernel, p.rhs.spatial[i])) return {0, 0};
    const int64_t taps = sign;
    return {taps, joins(p.channels, p.rhs.outer[2]) ? sign : 0};
}

}  // namespace

BlockTaps::BlockTaps(const Problem& p) {
    count = 1;
    for (int i = 0; i < p.dims; ++i) count *= p.axes[i].kernel;
    int64_t at[kMaxDims] = {};
    for (int64_t tap = 0; tap < count; ++tap) {
        int64_t in_lhs = 0, in_rhs = 0;
        for (int i = 0; i < p.dims; ++i) {
            const int64_t moved = at[i] * p.axes[i].rhs_dilation;
            reach.push_back(moved);
            in_lhs += moved * p.lhs.spatial[i];
            in_rhs += at[i] * p.rhs.spatial[i];
        }
        lhs.push_back(in_lhs);
        rhs.push_back(in_rhs);
        for (int i = p.dims - 1; i >= 0 && ++at[i] == p.axes[i].kernel; --i) at[i] = 0;
    }
}

double met_taps(const Problem& p) {
    double taps = 1;
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        const Solver solver(a.stride, 1, a.size);
        double met = 0;
        for (int64_t k = 0; k < a.kernel; ++k) met += static_cast<double>(solver.solve(k * a.rhs_dilation - a.lo, a.out).count);
        taps *= met / static_cast<double>(std::max<int64_t>(a.out, 1));
    }
    return taps;
}

template <class T>
BlockSet<T>::BlockSet(const BlockKernels<T>& kernels) : lanes(kernels.lanes) {
    for (int i = 0; i < kernels.count; ++i) {
        const BlockKernel<T>& kernel = kernels.blocks[i];
        at[kernel.rows][kernel.vectors] = kernel.run;
        max_vectors = std::max(max_vectors, kernel.vectors);
        max_rows[kernel.vectors] = std::max(max_rows[kernel.vectors], kernel.rows);
    }
}

template <class T>
void BlockCall<T>::look_at(const TileKernels<T>& kernels, const T* sums, int64_t count) const {
    if (suspicious == nullptr) return;
    const int64_t whole = count / kernels.lanes * kernels.lanes;
    bool finite = kernels.finite(sums, whole);
    for (int64_t j = whole; j < count; ++j) finite = finite && sums[j] * T(0) == T(0);
    if (!finite) suspicious->store(true, std::memory_order_relaxed);
}

BlockPanels::BlockPanels(const Problem& p, int lanes_, int most_vectors) : lanes(lanes_) {
    features = p.features;
    vectors = ceil_div(features, lanes);
    count = ceil_div(vectors, most_vectors);
    max_vectors = static_cast<int>(ceil_div(vectors, count));
    taps = 1;
    for (int i = 0; i < p.dims; ++i) taps *= p.axes[i].kernel;
    channels = p.channels;
    const int64_t step = std::abs(p.rhs.outer[2]);
    taps_outside = p.rhs.outer[1] == 1 || step == 1 || step == 2 || taps == 1;
    const Runs runs = taps_outside ? Runs{0, 0} : runs_of_weights(p);
    run = runs.all;
    run_of_taps = run != 0 ? 0 : runs.taps;
}

template <class T>
void pack_block_chunk(const BlockCall<T>& call, const BlockTaps& taps, const BlockPanels& panels, int64_t group, int64_t panel,
                      int64_t first, int64_t size, T* to) {
    const Problem& p = call.p;
    const PackKernels<T>& pack = tile_kernels<T>(current_isa()).pack;
    const int64_t step = p.rhs.outer[2], spacing = p.rhs.outer[1];
    const int64_t feature = panels.first_vector(panel) * panels.lanes, width = int64_t{panels.panel_vectors(panel)} * panels.lanes;
    const int64_t count = std::min(width, p.features - feature), rows = panels.taps * size;
    const T* from = call.rhs + p.rhs.offset + group * p.rhs.outer[0] + feature * spacing + first * step;
    if (count < width)
        for (int64_t row = 0; row < rows; ++row) std::fill(to + row * width + count, to + (row + 1) * width, T(0));
    constexpr int64_t most = int64_t{kBlockMaxVectors} * 16;
    const T* lines[most];
    int64_t begin[most] = {}, end[most];
    if (panels.run != 0) {  // features are walked through channels and taps at once
        for (int64_t j = 0; j < count; ++j) {
            lines[j] = from + j * spacing + (panels.run < 0 ? 1 - rows : 0);
            end[j] = rows;
        }
        pack.walked(to, width, rows, lines, begin, end, count, 1);
        return;
    }
    if (panels.run_of_taps != 0) {
        for (int64_t c = 0; c < size; ++c) {
            for (int64_t j = 0; j < count; ++j) {
                lines[j] = from + c * step + j * spacing + (panels.run_of_taps < 0 ? 1 - panels.taps : 0);
                end[j] = panels.taps;
            }
            pack.walked(to + c * panels.taps * width, width, panels.taps, lines, begin, end, count, 1);
        }
        return;
    }
    for (int64_t tap = 0; tap < panels.taps; ++tap) {
        const T* start = from + taps.rhs[static_cast<size_t>(tap)];
        T* place = to + panels.row(tap, size) * width;
        if (!panels.taps_outside) {  // rows of a tap do not follow each other
            for (int64_t c = 0; c < size; ++c) pack.spaced(place + c * panels.taps * width, width, 1, start + c * step, 0, spacing, count);
        } else if (spacing != 1 && (step == 1 || step == 2)) {
            for (int64_t j = 0; j < count; ++j) {
                lines[j] = start + j * spacing;
                end[j] = size;
            }
            pack.walked(place, width, size, lines, begin, end, count, step);
        } else {
            pack.spaced(place, width, size, start, step, spacing, count);
        }
    }
}

int64_t channels_last_size(const Problem& p) {
    int64_t size = p.groups * p.batch * p.channels;
    for (int i = 0; i < p.dims; ++i) size *= p.axes[i].size;
    return size;
}

Problem with_channels_last(const Problem& p) {
    Problem moved = p;
    int64_t pitch = p.channels;
    moved.lhs.offset = 0;
    moved.lhs.outer[2] = 1;
    for (int i = p.dims - 1; i >= 0; --i) {
        moved.lhs.spatial[i] = pitch;
        pitch *= p.axes[i].size;
    }
    moved.lhs.outer[1] = pitch;
    moved.lhs.outer[0] = pitch * p.batch;
    return moved;
}

template <class T>
void put_channels_last(const Problem& p, const T* lhs, T* to, Executor& executor) {
    const PackKernels<T>& pack = tile_kernels<T>(current_isa()).pack;
    // The innermost axes that run on through memory are one line; a line is moved in pieces, channel after channel.
    int64_t length = 1, step = p.dims > 0 ? p.lhs.spatial[p.dims - 1] : 1, lines = 1;
    int outer = p.dims;
    while (outer > 0 && (outer == p.dims || p.lhs.spatial[outer - 1] == step * length)) length *= p.axes[--outer].size;
    for (int i = 0; i < outer; ++i) lines *= p.axes[i].size;
    const int64_t piece = std::min(length, kMovedAtOnce), pieces = ceil_div(length, piece);
    for_chunks(executor, p.groups * p.batch * lines * pieces, [&](int64_t chunk) {
        const int64_t line = chunk / pieces, first = chunk % pieces * piece, count = std::min(piece, length - first);
        const int64_t image = line / lines;
        const T* from = lhs + p.lhs.offset + image / p.batch * p.lhs.outer[0] + image % p.batch * p.lhs.outer[1] + first * step;
        int64_t rest = line % lines;
        for (int i = outer - 1; i >= 0; --i) {
            from += rest % p.axes[i].size * p.lhs.spatial[i];
            rest /= p.axes[i].size;
        }
        constexpr int64_t most = 16;
        const T* starts[most];
        int64_t begin[most] = {}, end[most];
        T* place = to + (line * length + first) * p.channels;
        for (int64_t c = 0; c < p.channels; c += most) {
            const int64_t channels = std::min(most, p.channels - c);
            for (int64_t j = 0; j < channels; ++j) {
                starts[j] = from + (c + j) * p.lhs.outer[2];
                end[j] = count;
            }
            pack.walked(place + c, p.channels, count, starts, begin, end, channels, step);
        }
    });
}

int64_t features_last_size(const Problem& p) {
    int64_t size = p.groups * p.batch * p.features;
    for (int i = 0; i < p.dims; ++i) size *= p.axes[i].out;
    return size;
}

Problem with_features_last(const Problem& p) {
    Problem moved = p;
    int64_t pitch = p.features;
    moved.out.offset = 0;
    moved.out.outer[2] = 1;
    for (int i = p.dims - 1; i >= 0; --i) {
        moved.out.spatial[i] = pitch;
        pitch *= p.axes[i].out;
    }
    moved.out.outer[1] = pitch;
    moved.out.outer[0] = pitch * p.batch;
    return moved;
}

template <class T>
void take_features_last(const Problem& p, const T* from, T* out, Executor& executor) {
    const PackKernels<T>& pack = tile_kernels<T>(current_isa()).pack;
    int64_t length = 1, lines = 1;
    int outer = p.dims;
    while (outer > 0 && (outer == p.dims || p.out.spatial[outer - 1] == length)) length *= p.axes[--outer].out;
    for (int i = 0; i < outer; ++i) lines *= p.axes[i].out;
    const int64_t piece = std::min(length, kMovedAtOnce), pieces = ceil_div(length, piece);
    for_chunks(executor, p.groups * p.batch * lines * pieces, [&](int64_t chunk) {
        const int64_t line = chunk / pieces, first = chunk % pieces * piece, count = std::min(piece, length - first);
        const int64_t image = line / lines;
        T* to = out + p.out.offset + image / p.batch * p.out.outer[0] + image % p.batch * p.out.outer[1] + first;
        int64_t rest = line % lines;
        for (int i = outer - 1; i >= 0; --i) {
            to += rest % p.axes[i].out * p.out.spatial[i];
            rest /= p.axes[i].out;
        }
        const T* pixels[kMovedAtOnce];
        int64_t begin[kMovedAtOnce] = {}, end[kMovedAtOnce];
        constexpr int64_t at_once = 16;  // features: each is a stream of its own
        for (int64_t f = 0; f < p.features; f += at_once) {
            const int64_t now = std::min(at_once, p.features - f);
            for (int64_t j = 0; j < count; ++j) {
                pixels[j] = from + (line * length + first + j) * p.features + f;
                end[j] = now;
            }
            pack.walked(to + f * p.out.outer[2], p.out.outer[2], now, pixels, begin, end, count, 1);
        }
    });
}

#define FASTCONV_BLOCK_OPERANDS(T) \
    template struct BlockSet<T>; \
    template struct BlockCall<T>; \
    template void pack_block_chunk<T>(const BlockCall<T>&, const BlockTaps&, const BlockPanels&, int64_t, int64_t, int64_t, int64_t, T*); \
    template void put_channels_last<T>(const Problem&, const T*, T*, Executor&); \
    template void take_features_last<T>(const Problem&, const T*, T*, Executor&);
FASTCONV_BLOCK_OPERANDS(float)
FASTCONV_BLOCK_OPERANDS(double)
#undef FASTCONV_BLOCK_OPERANDS

}  // namespace fastconv
