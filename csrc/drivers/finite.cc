#include "drivers/finite.h"

#include "base/isa.h"
#include "kernels/tile.h"

namespace fastconv {

namespace {

// Where rhs lies without gaps: its first element, and how many there are; 0 where it does not.
int64_t dense_extent(const Problem& p, int64_t* first) {
    int64_t count = 1, span = 1;
    *first = p.rhs.offset;
    auto add = [&](int64_t extent, int64_t step) {
        count *= extent;
        span += (extent - 1) * (step < 0 ? -step : step);
        if (step < 0) *first += (extent - 1) * step;
    };
    add(p.groups, p.rhs.outer[0]);
    add(p.features, p.rhs.outer[1]);
    add(p.channels, p.rhs.outer[2]);
    for (int i = 0; i < p.dims; ++i) add(p.axes[i].kernel, p.rhs.spatial[i]);
    return count == span ? count : 0;
}

}  // namespace

template <class T>
bool rhs_is_finite(const Problem& p, const T* rhs) {
    int64_t first = 0;
    if (const int64_t dense = dense_extent(p, &first); dense > 0) {
        const TileKernels<T>& kernels = tile_kernels<T>(current_isa());
        const int64_t whole = dense / kernels.lanes * kernels.lanes;
        bool finite = kernels.finite(rhs + first, whole);
        for (int64_t j = whole; j < dense; ++j) finite = finite && rhs[first + j] * T(0) == T(0);
        return finite;
    }
    int64_t extents[3 + kMaxDims] = {p.groups, p.features, p.channels}, steps[3 + kMaxDims], at[3 + kMaxDims] = {};
    int count = 3 + p.dims, longest = 0;
    for (int i = 0; i < 3; ++i) steps[i] = p.rhs.outer[i];
    for (int i = 0; i < p.dims; ++i) {
        extents[3 + i] = p.axes[i].kernel;
        steps[3 + i] = p.rhs.spatial[i];
    }
    for (int i = 0; i < count; ++i) {
        if (extents[i] == 0) return true;
        if (extents[i] > extents[longest]) longest = i;
    }
    for (;;) {  // every line along the longest axis
        const T* line = rhs + p.rhs.offset;
        for (int i = 0; i < count; ++i) line += at[i] * steps[i];
        T zero = 0;
        for (int64_t k = 0; k < extents[longest]; ++k) zero += line[k * steps[longest]] * T(0);
        if (zero != zero) return false;
        int i = count - 1;
        for (; i >= 0; --i) {
            if (i == longest) continue;
            if (++at[i] < extents[i]) break;
            at[i] = 0;
        }
        if (i < 0) return true;
    }
}
template bool rhs_is_finite<float>(const Problem&, const float*);
template bool rhs_is_finite<double>(const Problem&, const double*);

}  // namespace fastconv
