#include "drivers/finite.h"

namespace fastconv {

template <class T>
bool rhs_is_finite(const Problem& p, const T* rhs) {
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
