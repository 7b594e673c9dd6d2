#include "drivers/block_tiles.h"

#include <algorithm>
#include <cstring>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kKindsAtHand = 32;                   // a pixel is compared with so many kinds before it counts as one of its own
constexpr double kTileStart = 40, kSegmentStart = 12;  // cycles

int64_t taps_in(const Problem& p, const int64_t* box) {
    int64_t taps = 1;
    for (int i = 0; i < p.dims; ++i) taps *= (box[2 * i + 1] - box[2 * i]) / p.axes[i].rhs_dilation;
    return taps;
}

// The least box that holds both.
void unite(const Problem& p, const int64_t* box, int64_t* with) {
    if (taps_in(p, box) == 0) return;
    const bool none = taps_in(p, with) == 0;
    for (int i = 0; i < 2 * p.dims; ++i) with[i] = none ? box[i] : i % 2 == 0 ? std::min(with[i], box[i]) : std::max(with[i], box[i]);
}

}  // namespace

template <class T>
size_t PixelTiles<T>::bytes(int64_t pixels) const {
    const int64_t entries = pixels * taps_.count, sides = 2 * p_.dims;
    const int64_t wide = entries + 2 * pixels + (pixels + 1) * sides, narrow = 3 * pixels + taps_.count + entries;
    return static_cast<size_t>(pixels) * sizeof(BlockTile) + static_cast<size_t>(wide) * sizeof(int64_t) +
           static_cast<size_t>(narrow) * sizeof(int32_t);
}

template <class T>
typename PixelTiles<T>::Table PixelTiles<T>::place(int64_t pixels, void* memory) const {
    Table t{};
    t.tile = static_cast<BlockTile*>(memory);
    t.pointer = reinterpret_cast<const T**>(t.tile + pixels);
    t.out = reinterpret_cast<int64_t*>(t.pointer + pixels * taps_.count);
    t.lhs = t.out + pixels;
    t.box = t.lhs + pixels;
    t.order = reinterpret_cast<int32_t*>(t.box + (pixels + 1) * 2 * p_.dims);
    t.kind = t.order + pixels;
    t.end = t.kind + pixels;
    t.met = t.end + pixels;
    t.tap = t.met + taps_.count;
    return t;
}

template <class T>
typename PixelTiles<T>::Pixel PixelTiles<T>::pixel_at(int64_t group, int64_t index) const {
    Pixel x;
    x.lhs = p_.lhs.offset + group * p_.lhs.outer[0];
    x.out = p_.out.offset + group * p_.out.outer[0];
    for (int i = p_.dims - 1; i >= 0; --i) {
        x.at[i] = index % p_.axes[i].out;
        index /= p_.axes[i].out;
        x.input[i] = x.at[i] * p_.axes[i].stride - p_.axes[i].lo;
        x.lhs += x.input[i] * p_.lhs.spatial[i];
        x.out += x.at[i] * p_.out.spatial[i];
    }
    x.lhs += index * p_.lhs.outer[1];
    x.out += index * p_.out.outer[1];
    return x;
}

// To the pixel `run` further on, in the same row or at the start of the next.
template <class T>
void PixelTiles<T>::advance(Pixel* x, int64_t run) const {
    for (int i = p_.dims - 1; i >= 0; --i, run = 1) {
        const Axis& a = p_.axes[i];
        x->at[i] += run;
        x->input[i] += run * a.stride;
        x->lhs += run * a.stride * p_.lhs.spatial[i];
        x->out += run * p_.out.spatial[i];
        if (x->at[i] < a.out) return;
        x->at[i] = 0;
        x->input[i] -= a.out * a.stride;
        x->lhs -= a.out * a.stride * p_.lhs.spatial[i];
        x->out -= a.out * p_.out.spatial[i];
    }
    x->lhs += p_.lhs.outer[1];
    x->out += p_.out.outer[1];
}

template <class T>
void PixelTiles<T>::find_box(const Pixel& x, int64_t* box) const {
    bool some = true;
    for (int i = 0; i < p_.dims; ++i) {
        const Axis& a = p_.axes[i];
        const int64_t all = a.kernel * a.rhs_dilation, input = x.input[i], rest = a.size - input;
        box[2 * i] = input >= 0 ? 0 : std::min(all, ceil_div(-input, a.rhs_dilation) * a.rhs_dilation);
        box[2 * i + 1] = rest > all - a.rhs_dilation ? all : rest <= 0 ? 0 : ceil_div(rest, a.rhs_dilation) * a.rhs_dilation;
        some = some && box[2 * i] < box[2 * i + 1];
    }
    if (!some) std::fill(box, box + 2 * p_.dims, 0);
}

// Pixels from this one on, in its row, that meet the same taps.
template <class T>
int64_t PixelTiles<T>::run_from(const Pixel& x) const {
    if (p_.dims == 0) return 1;
    const Axis& a = p_.axes[p_.dims - 1];
    const int64_t input = x.input[p_.dims - 1], above = a.size - 1 - (a.kernel - 1) * a.rhs_dilation - input;
    return input < 0 || above < 0 ? 1 : std::min(a.out - x.at[p_.dims - 1], above / a.stride + 1);
}

// Finds where pixels lie and of which kinds they are, and orders them kind by kind, in the order of the first of each. Returns the
// number of kinds.
template <class T>
int64_t PixelTiles<T>::sort(Pixel x, int64_t pixels, Table* t) const {
    const int64_t sides = 2 * p_.dims;
    const int64_t lhs_step = p_.dims > 0 ? p_.axes[p_.dims - 1].stride * p_.lhs.spatial[p_.dims - 1] : 0;
    const int64_t out_step = p_.dims > 0 ? p_.out.spatial[p_.dims - 1] : 0;
    int64_t kinds = 0;
    for (int64_t i = 0, run; i < pixels; i += run, advance(&x, run)) {
        run = std::min(run_from(x), pixels - i);
        int64_t* box = t->box + kinds * sides;
        find_box(x, box);
        const int64_t least = std::max<int64_t>(0, kinds - kKindsAtHand);
        int64_t kind = kinds - 1;
        while (kind >= least && !std::equal(box, box + sides, t->box + kind * sides)) --kind;
        if (kind < least) {
            kind = kinds++;
            t->end[kind] = 0;
        }
        t->end[kind] += static_cast<int32_t>(run);
        for (int64_t j = 0; j < run; ++j) {
            t->lhs[i + j] = x.lhs + j * lhs_step;
            t->out[i + j] = x.out + j * out_step;
            t->kind[i + j] = static_cast<int32_t>(kind);
        }
    }
    int32_t first = 0;
    for (int64_t kind = 0; kind < kinds; ++kind) {
        const int32_t count = t->end[kind];
        t->end[kind] = first;
        first += count;
    }
    for (int64_t i = 0; i < pixels; ++i) t->order[t->end[t->kind[i]]++] = static_cast<int32_t>(i);
    return kinds;
}

// Of even tiles that meet the taps of a box.
template <class T>
double PixelTiles<T>::cycles(const int64_t* box, int64_t pixels) const {
    if (pixels == 0) return 0;
    const int64_t tiles = ceil_div(pixels, rows_), larger = pixels % tiles, rows = pixels / tiles;
    const double step = static_cast<double>(larger) * block_tile_cycles(static_cast<int>(rows + 1), vectors_) +
                        static_cast<double>(tiles - larger) * block_tile_cycles(static_cast<int>(rows), vectors_);
    const double starts = static_cast<double>(tiles) * kSegmentStart;
    return static_cast<double>(taps_in(p_, box)) * (step * static_cast<double>(p_.channels) + starts) +
           static_cast<double>(tiles) * kTileStart;
}

template <class T>
void PixelTiles<T>::fill(const T* lhs, const T* zeros, int64_t group, int64_t first, int64_t count, Table* t) const {
    const int64_t kinds = sort(pixel_at(group, first), count, t);
    t->tiles = 0;
    int64_t begin = 0;           // of the pixels that are in no tile yet: fewer than one takes, of earlier kinds ...
    int64_t left[2 * kMaxDims];  // ... that meet the taps of this box
    for (int64_t kind = 0; kind < kinds; ++kind) {
        const int64_t from = kind > 0 ? t->end[kind - 1] : 0, end = t->end[kind];
        const int64_t* box = t->box + kind * 2 * p_.dims;
        if (begin < from) {
            const int64_t joined = std::min(from + std::min(end - from, rows_ - (from - begin)), end);
            int64_t both[2 * kMaxDims];
            std::copy(left, left + 2 * p_.dims, both);
            unite(p_, box, both);
            const bool join =
                cycles(both, joined - begin) + cycles(box, end - joined) <= cycles(left, from - begin) + cycles(box, end - from);
            if (join && joined == end && joined - begin < rows_) {
                std::copy(both, both + 2 * p_.dims, left);
                continue;
            }
            add_tile(lhs, zeros, begin, join ? joined : from, t);
            begin = join ? joined : from;
        }
        if (end - begin >= rows_) {
            const int64_t tiles = ceil_div(end - begin, rows_), pixels = end - begin;
            for (int64_t i = 0; i < tiles; ++i) add_tile(lhs, zeros, begin + pixels * i / tiles, begin + pixels * (i + 1) / tiles, t);
            begin = end;
        }
        std::copy(box, box + 2 * p_.dims, left);
    }
    if (begin < count) add_tile(lhs, zeros, begin, count, t);
}

// A tile of pixels first <= i < end, as they are ordered.
template <class T>
void PixelTiles<T>::add_tile(const T* lhs, const T* zeros, int64_t first, int64_t end, Table* t) const {
    BlockTile& tile = t->tile[t->tiles++];
    tile = BlockTile{first, 0, 0, 0, static_cast<int>(end - first), false};
    if (t->tiles > 1) {
        const BlockTile& before = (&tile)[-1];
        tile.pointers = before.pointers + before.segments * before.rows;
        tile.taps = before.taps + before.segments;
    }
    const T** pointer = t->pointer + tile.pointers;
    int32_t* listed = t->tap + tile.taps;
    const auto box_of = [&](int64_t i) { return t->box + int64_t{t->kind[t->order[i]]} * 2 * p_.dims; };
    const int64_t* moved = taps_.lhs.data();
    if (t->kind[t->order[first]] == t->kind[t->order[end - 1]]) {  // one kind: all meet all of its taps
        const int64_t* box = box_of(first);
        const int64_t* reach = taps_.reach.data();
        int64_t place[kBlockMaxRows];
        for (int m = 0; m < tile.rows; ++m) place[m] = t->lhs[t->order[first + m]];
        for (int64_t tap = 0; tap < taps_.count; ++tap, reach += p_.dims) {
            bool met = true;
            for (int i = 0; i < p_.dims; ++i) met &= (reach[i] >= box[2 * i]) & (reach[i] < box[2 * i + 1]);
            if (!met) continue;
            for (int m = 0; m < tile.rows; ++m) *pointer++ = lhs + (place[m] + moved[tap]);
            listed[tile.segments++] = static_cast<int32_t>(tap);
        }
        return;
    }
    std::memset(t->met, 0, static_cast<size_t>(taps_.count) * sizeof(int32_t));
    for (int64_t i = first; i < end; ++i)
        point_to_taps(lhs, t->lhs[t->order[i]], zeros, box_of(i), pointer + (i - first), tile.rows, t->met);
    for (int64_t tap = 0; tap < taps_.count; ++tap) {
        if (t->met[tap] == 0) continue;  // dropped
        tile.padded = tile.padded || t->met[tap] < tile.rows;
        if (tile.segments < tap)
            std::memcpy(pointer + tile.segments * tile.rows, pointer + tap * tile.rows, static_cast<size_t>(tile.rows) * sizeof(T*));
        listed[tile.segments++] = static_cast<int32_t>(tap);
    }
}

// Pointers of one pixel to all taps, `step` apart, and to zeros in place of those outside its box; counts those inside.
template <class T>
void PixelTiles<T>::point_to_taps(const T* lhs, int64_t at, const T* zeros, const int64_t* box, const T** to, int64_t step,
                                  int32_t* met) const {
    // The outer axes' steps once for all of the innermost axis.
    const int lane = p_.dims - 1;
    const Axis& a = p_.axes[lane];
    const int64_t* moved = taps_.lhs.data();
    const int64_t* reach = taps_.reach.data();
    for (int64_t tap = 0; tap < taps_.count; reach += a.kernel * p_.dims) {
        bool meets = true;
        for (int i = 0; i < lane; ++i) meets = meets && reach[i] >= box[2 * i] && reach[i] < box[2 * i + 1];
        for (int64_t k = 0; k < a.kernel; ++k, ++tap) {
            const bool data = meets & (k * a.rhs_dilation >= box[2 * lane]) & (k * a.rhs_dilation < box[2 * lane + 1]);
            met[tap] += data;
            to[tap * step] = data ? lhs + (at + moved[tap]) : zeros;
        }
    }
}

template class PixelTiles<float>;
template class PixelTiles<double>;

}  // namespace fastconv
