#include "drivers/winograd_weights.h"

#include <algorithm>
#include <cstdlib>

#include "base/tasks.h"

namespace fastconv {
namespace {

constexpr int64_t kAlone = 8;         // squares of lanes x lanes weights that the calling thread transforms alone
constexpr int64_t kLongestRun = 128;  // elements of one kernel's taps that are copied as a run

}  // namespace

template <class T>
WinogradWeights<T>::WinogradWeights(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const T* rhs)
    : w_(plan), kernels_(kernels), rhs_(rhs), feature_(plan.p.rhs.outer[1]), channel_(plan.p.rhs.outer[2]) {
    for (int i = 0; i < w_.p.dims; ++i) {
        const int64_t reach = w_.p.rhs.spatial[i] * (w_.p.axes[i].kernel - 1);
        run_ += std::abs(reach);
        if (reach < 0) lowest_ += reach;
    }
    reading_ = choose();
}

template <class T>
typename WinogradWeights<T>::Reading WinogradWeights<T>::choose() const {
    if (feature_ == 1) return Reading::features_side_by_side;
    if (channel_ == 1) return Reading::channels_side_by_side;
    return run_ <= kLongestRun ? Reading::runs : Reading::one_by_one;
}

template <class T>
int64_t WinogradWeights<T>::panel_size() const {
    return w_.lanes * w_.lanes * std::max<int64_t>(9, run_ <= kLongestRun ? run_ : 0);
}

template <class T>
void WinogradWeights<T>::pair(int64_t group, int64_t vector, T* to, T* scratch) const {
    for (int64_t v = vector; v < std::min(vector + 2, w_.vectors); ++v)
        for (int64_t block = 0; block < w_.blocks; ++block) square(group, v, block, to, scratch);
}

template <class T>
const char* WinogradWeights<T>::all(T* to, Executor& executor) const {
    const int64_t squares = w_.p.groups * w_.vectors * w_.blocks;
    InlineExecutor alone;  // waking others costs more than a few squares
    const size_t bytes = static_cast<size_t>(scratch_size()) * sizeof(T);
    return for_tasks(squares <= kAlone ? alone : executor, squares, bytes, [&](int64_t index, void* local) {
        const int64_t vector = index / w_.blocks % w_.vectors, group = index / w_.blocks / w_.vectors;
        square(group, vector, index % w_.blocks, to + at(group, vector / 2 * 2), static_cast<T*>(local));
    });
}

template <class T>
void WinogradWeights<T>::square(int64_t group, int64_t vector, int64_t block, T* pair, T* panel) const {
    const int64_t lanes = w_.lanes, first_channel = block * lanes, first_feature = vector * lanes;
    const int64_t channels = std::min(lanes, w_.p.channels - first_channel);
    const int64_t features = std::min(lanes, w_.p.features - first_feature);
    const T* from = rhs_ + w_.p.rhs.offset + group * w_.p.rhs.outer[0] + first_feature * feature_ + first_channel * channel_;
    const int64_t items = turned() ? features : channels, count = turned() ? channels : features;
    const int64_t item = turned() ? feature_ : channel_;
    const bool runs = reading_ == Reading::runs;
    if (runs && channel_ == run_)  // one run for all channels
        kernels_.gather(panel, lanes, channels * run_, from + lowest_, 1, feature_, features);
    else if (runs)
        for (int64_t c = 0; c < channels; ++c)
            kernels_.gather(panel + c * run_ * lanes, lanes, run_, from + lowest_ + c * channel_, 1, feature_, features);

    const int64_t ky = w_.p.rhs.spatial[w_.p.dims - 2], kx = w_.p.rhs.spatial[w_.p.dims - 1];
    int64_t digits[kMaxDims] = {};
    for (int64_t tap = 0; tap < w_.taps; ++tap) {
        int64_t at = 0;
        for (int i = 0; i < w_.outer; ++i) at += digits[i] * w_.p.rhs.spatial[i];
        if (runs) {
            const T* first = panel + (at - lowest_) * lanes;
            put(tap, vector, block, first, ky * lanes, kx * lanes, run_ * lanes, items, lanes, pair, panel);
        } else if (reading_ == Reading::one_by_one) {
            for (int y = 0; y < 3; ++y)
                for (int x = 0; x < 3; ++x)
                    kernels_.gather(panel + (3 * y + x) * lanes, 9 * lanes, items, from + at + y * ky + x * kx, channel_, feature_, count);
            put(tap, vector, block, panel, 3 * lanes, lanes, 9 * lanes, items, lanes, pair, panel);
        } else {
            put(tap, vector, block, from + at, ky, kx, item, items, count, pair, panel);
        }
        for (int i = w_.outer - 1; i >= 0 && ++digits[i] == w_.p.axes[i].kernel; --i) digits[i] = 0;
    }
}

// Transforms the kernels of a square at one outer tap to their place; `panel` is followed by scratch for turning.
template <class T>
void WinogradWeights<T>::put(int64_t tap, int64_t vector, int64_t block, const T* from, int64_t ky, int64_t kx, int64_t item, int64_t items,
                             int64_t count, T* pair, T* panel) const {
    const int64_t lanes = w_.lanes, first = vector / 2 * 2, channel = block * lanes;
    const int64_t width = std::min<int64_t>(2, w_.vectors - first) * lanes, plane = w_.weight_plane(width);
    T* to = pair + (tap * w_.p.channels + channel) * width + (vector - first) * lanes;
    if (!turned()) {
        kernels_.weights(to, plane, width, from, ky, kx, item, items, count);
        return;
    }
    T* turn = panel + panel_size();
    kernels_.weights(turn, lanes * lanes, lanes, from, ky, kx, item, items, count);
    const int64_t channels = std::min(lanes, w_.p.channels - channel);
    for (int64_t q = 0; q < kWinogradPlanes; ++q)
        kernels_.gather(to + q * plane, width, channels, turn + q * lanes * lanes, 1, lanes, items);
}

template class WinogradWeights<float>;
template class WinogradWeights<double>;

}  // namespace fastconv
