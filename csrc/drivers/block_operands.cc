// The block algorithm's operands: taps, weights as panels, pixels with their channels innermost.
#include <algorithm>
#include <cstring>

#include "base/scratch.h"
#include "drivers/block.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kChannelsAtOnce = 32;  // of a piece of packing work

// Whether rhs runs on through memory, or backwards, over all taps and channels, taps inside: 1, -1, or 0 for no.
int64_t run_of_weights(const Problem& p) {
    int64_t length = 1, sign = 0;
    auto joins = [&](int64_t extent, int64_t step) {
        if (extent == 1) return true;
        if (sign == 0) sign = step < 0 ? -1 : 1;
        if (step != sign * length) return false;
        length *= extent;
        return true;
    };
    for (int i = p.dims - 1; i >= 0; --i)
        if (!joins(p.axes[i].kernel, p.rhs.spatial[i])) return 0;
    return joins(p.channels, p.rhs.outer[2]) ? sign : 0;
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
}

template <class T>
void pack_block_panels(const BlockCall<T>& call, const BlockTaps& taps, const BlockPanels& panels, T* to, Executor& executor) {
    const Problem& p = call.p;
    const PackKernels<T>& pack = tile_kernels<T>(current_isa()).pack;
    const int64_t step = p.rhs.outer[2], spacing = p.rhs.outer[1], run = run_of_weights(p);
    const int64_t pieces = ceil_div(p.channels, kChannelsAtOnce);
    for_chunks(executor, p.groups * panels.count * pieces, [&](int64_t chunk) {
        const int64_t first = chunk % pieces * kChannelsAtOnce, channels = std::min(kChannelsAtOnce, p.channels - first);
        const int64_t panel = chunk / pieces % panels.count, group = chunk / pieces / panels.count;
        const int64_t feature = panels.first_vector(panel) * panels.lanes, width = int64_t{panels.panel_vectors(panel)} * panels.lanes;
        const int64_t count = std::min(width, p.features - feature);
        const T* from = call.rhs + p.rhs.offset + group * p.rhs.outer[0] + feature * spacing + first * step;
        T* panel_at = to + group * panels.size() + feature * panels.taps * panels.channels;
        auto place = [&](int64_t tap) { return panel_at + (tap * panels.channels + first) * width; };
        if (count < width)
            for (int64_t tap = 0; tap < panels.taps; ++tap) std::memset(place(tap), 0, static_cast<size_t>(channels * width) * sizeof(T));
        constexpr int64_t most = int64_t{kBlockMaxVectors} * 16;
        const T* lines[most];
        int64_t begin[most] = {}, end[most];
        if (spacing == 1) {
            for (int64_t tap = 0; tap < panels.taps; ++tap) pack.spaced(place(tap), width, channels, from + taps.rhs[tap], step, 1, count);
        } else if (step == 1 || step == 2) {
            for (int64_t j = 0; j < count; ++j) end[j] = channels;
            for (int64_t tap = 0; tap < panels.taps; ++tap) {
                for (int64_t j = 0; j < count; ++j) lines[j] = from + taps.rhs[tap] + j * spacing;
                pack.walked(place(tap), width, channels, lines, begin, end, count, step);
            }
        } else if (run != 0 && panels.taps * width <= 4096) {
            // Features are walked through taps and channels at once, into a piece that the first cache holds, then put in order.
            T piece[4096];
            const int64_t at_once = std::min(channels, 4096 / (panels.taps * width));
            for (int64_t c = 0; c < channels; c += at_once) {
                const int64_t now = std::min(at_once, channels - c), depth = now * panels.taps;
                for (int64_t j = 0; j < count; ++j) {
                    lines[j] = from + c * step + j * spacing - (run < 0 ? depth - 1 : 0);
                    end[j] = depth;
                }
                pack.walked(piece, width, depth, lines, begin, end, count, 1);
                for (int64_t k = 0; k < depth; ++k) {
                    const int64_t at = run < 0 ? depth - 1 - k : k;
                    T* row = place(at % panels.taps) + (c + at / panels.taps) * width;
                    std::memcpy(row, piece + k * width, static_cast<size_t>(count) * sizeof(T));
                }
            }
        } else {
            for (int64_t c = 0; c < channels; ++c)
                for (int64_t j = 0; j < count; ++j)
                    for (int64_t tap = 0; tap < panels.taps; ++tap)
                        place(tap)[c * width + j] = from[c * step + j * spacing + taps.rhs[tap]];
        }
    });
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
    int64_t lines = 1;
    for (int i = 0; i + 1 < p.dims; ++i) lines *= p.axes[i].size;
    const int64_t length = p.dims > 0 ? p.axes[p.dims - 1].size : 1, step = p.dims > 0 ? p.lhs.spatial[p.dims - 1] : 1;
    const int64_t at_once = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, length * p.channels));  // lines
    const int64_t all = p.groups * p.batch * lines;
    for_chunks(executor, ceil_div(all, at_once), [&](int64_t chunk) {
        for (int64_t line = chunk * at_once; line < std::min(all, (chunk + 1) * at_once); ++line) {
            const int64_t image = line / lines;
            const T* from = lhs + p.lhs.offset + image / p.batch * p.lhs.outer[0] + image % p.batch * p.lhs.outer[1];
            int64_t rest = line % lines;
            for (int i = p.dims - 2; i >= 0; --i) {
                from += rest % p.axes[i].size * p.lhs.spatial[i];
                rest /= p.axes[i].size;
            }
            constexpr int64_t most = 64;
            const T* starts[most];
            int64_t begin[most] = {}, end[most];
            for (int64_t c = 0; c < p.channels; c += most) {
                const int64_t count = std::min(most, p.channels - c);
                for (int64_t j = 0; j < count; ++j) {
                    starts[j] = from + (c + j) * p.lhs.outer[2];
                    end[j] = length;
                }
                pack.walked(to + line * length * p.channels + c, p.channels, length, starts, begin, end, count, step);
            }
        }
    });
}

#define FASTCONV_BLOCK_OPERANDS(T) \
    template struct BlockSet<T>; \
    template struct BlockCall<T>; \
    template void pack_block_panels<T>(const BlockCall<T>&, const BlockTaps&, const BlockPanels&, T*, Executor&); \
    template void put_channels_last<T>(const Problem&, const T*, T*, Executor&);
FASTCONV_BLOCK_OPERANDS(float)
FASTCONV_BLOCK_OPERANDS(double)
#undef FASTCONV_BLOCK_OPERANDS

}  // namespace fastconv
