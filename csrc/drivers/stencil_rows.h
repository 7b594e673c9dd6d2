// Rows of a stencil on their way into scratch and out of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/lanes.h"
#include "kernels/tile.h"

namespace fastconv {

// One of a row's `stride` sub-rows, the same for every row of a block: to[t] = from[t * step] for first <= t < length, where data lies
// at begin <= t < end. Beyond `length` scratch holds anything: only lanes that are cut off read it.
struct SubRow {
    int64_t first, begin, end, length, step;
    SubRow part(int64_t from, int64_t to) const {
        SubRow row{from, 0, 0, std::min(length, to), step};
        row.begin = std::max(begin, from);
        row.end = std::max(row.begin, std::min(end, to));
        return row;
    }
};

template <class T>
class StencilRows {
public:
    // dtype: of the rows in memory, T or a half type.
    explicit StencilRows(Dtype dtype) : pack_(tile_kernels<T>(current_isa()).pack), lanes_(lane_kernels<T>(current_isa())) {
        if (dtype != Dtype::f16 && dtype != Dtype::bf16) return;
        widen_ = widen_kernel<T>(current_isa(), dtype, Part::whole);
        narrow_ = narrow_kernel<T>(current_isa(), dtype);
    }

    // Whether rows in memory are of another type than T; they have step 1 then.
    bool converts() const { return widen_ != nullptr; }

    static void clear(T* to, int64_t begin, int64_t end) {  // mostly an element or two
        for (int64_t t = begin; t < end; ++t) to[t] = 0;
    }

    void copy(const SubRow& row, const void* data, T* to) const {
        const T* from = static_cast<const T*>(data);
        clear(to, row.first, std::min(row.begin, row.length));
        if (converts())
            widen_(row.end - row.begin, to + row.begin, static_cast<const uint16_t*>(data) + row.begin, 1);
        else if (row.step == 1)
            std::memcpy(to + row.begin, from + row.begin, static_cast<size_t>(row.end - row.begin) * sizeof(T));
        else if (row.end > row.begin)
            pack_.spaced(to + row.begin, 0, 1, from + row.begin * row.step, 0, row.step, row.end - row.begin);
        clear(to, std::max(row.first, row.end), row.length);
    }

    // Every channel, where they lie side by side: rows `pitch` apart. A vector more than the row may be written.
    void copy_channels(const SubRow& row, const T* from, T* to, int64_t channels, int64_t pitch) const {
        for (int64_t t = row.begin; t < row.end; t += lanes_.lanes)
            lanes_.own.gather({std::min<int64_t>(lanes_.lanes, row.end - t), row.step, channels, 1, pitch}, from + t * row.step, to + t);
        for (int64_t c = 0; c < channels; ++c, to += pitch) {
            clear(to, 0, row.begin);
            clear(to, row.end, row.length);
        }
    }

    // Features to their places side by side.
    void weave(T* to, const T* from, int64_t pitch, int64_t features, int64_t count) const {
        pack_.weave(to, from, pitch, features, count);
    }

    // One row of outputs to its place.
    void narrow(void* to, const T* from, int64_t count) const { narrow_(count, to, 1, from); }

private:
    const PackKernels<T>& pack_;
    const LaneKernels<T>& lanes_;
    WidenKernel<T> widen_ = nullptr;
    NarrowKernel<T> narrow_ = nullptr;
};

}  // namespace fastconv
