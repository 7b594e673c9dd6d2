#include "drivers/winograd_weights.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/scratch.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kAlone = 8;         // squares of lanes x lanes weights that the calling thread transforms alone
constexpr int64_t kLongestRun = 128;  // elements of one kernel's taps that are copied as a run

// How a square of weights, features x channels, is read.
enum class Reading {
    features_side_by_side,  // where they lie: lanes are features
    channels_side_by_side,  // where they lie: lanes are channels, and turned afterwards
    runs_of_channels,       // taps and channels run on: copied with features in lanes
    runs_of_features,       // taps and features run on: copied with channels in lanes, and turned afterwards
    one_by_one
};

template <class T>
class Weights {
public:
    Weights(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const T* rhs, T* to)
        : w_(plan), kernels_(kernels), rhs_(rhs), to_(to), feature_(plan.p.rhs.outer[1]), channel_(plan.p.rhs.outer[2]) {
        for (int i = 0; i < w_.p.dims; ++i) {
            const int64_t reach = w_.p.rhs.spatial[i] * (w_.p.axes[i].kernel - 1);
            run_ += std::abs(reach);
            if (reach < 0) lowest_ += reach;
        }
        reading_ = choose();
    }

    const char* run(Executor& executor) {
        const int64_t squares = w_.p.groups * w_.vectors * w_.blocks;
        std::atomic<bool> exhausted{false};
        InlineExecutor alone;  // waking others costs more than a few squares
        for_chunks(squares <= kAlone ? alone : executor, squares, [&](int64_t square) {
            T* local = static_cast<T*>(scratch(ScratchSlot::local, static_cast<size_t>(local_size()) * sizeof(T)));
            if (local == nullptr)
                exhausted.store(true);
            else
                transform(square % w_.blocks, square / w_.blocks % w_.vectors, square / w_.blocks / w_.vectors, local);
        });
        return exhausted.load() ? "out of memory" : nullptr;
    }

private:
    Reading choose() const {
        if (feature_ == 1) return Reading::features_side_by_side;
        if (channel_ == 1) return Reading::channels_side_by_side;
        if (run_ > kLongestRun) return Reading::one_by_one;
        if (channel_ == run_) return Reading::runs_of_channels;
        return feature_ == run_ ? Reading::runs_of_features : Reading::one_by_one;
    }

    bool turned() const { return reading_ == Reading::channels_side_by_side || reading_ == Reading::runs_of_features; }
    int64_t panel_size() const { return w_.lanes * w_.lanes * std::max<int64_t>(9, run_ <= kLongestRun ? run_ : 0); }
    int64_t local_size() const { return panel_size() + 16 * w_.lanes * w_.lanes; }

    // One square: a vector of features by a vector of channels.
    void transform(int64_t block, int64_t vector, int64_t group, T* panel) const {
        const int64_t lanes = w_.lanes, first_channel = block * lanes, first_feature = vector * lanes;
        const int64_t channels = std::min(lanes, w_.p.channels - first_channel);
        const int64_t features = std::min(lanes, w_.p.features - first_feature);
        const T* from = rhs_ + w_.p.rhs.offset + group * w_.p.rhs.outer[0] + first_feature * feature_ + first_channel * channel_;
        const int64_t items = turned() ? features : channels, count = turned() ? channels : features;
        const int64_t item = turned() ? feature_ : channel_;
        const bool runs = reading_ == Reading::runs_of_channels || reading_ == Reading::runs_of_features;
        if (runs) kernels_.gather(panel, lanes, items * run_, from + lowest_, 1, turned() ? channel_ : feature_, count);

        const int64_t ky = w_.p.rhs.spatial[w_.p.dims - 2], kx = w_.p.rhs.spatial[w_.p.dims - 1];
        int64_t digits[kMaxDims] = {};
        for (int64_t tap = 0; tap < w_.taps; ++tap) {
            int64_t at = 0;
            for (int i = 0; i < w_.outer; ++i) at += digits[i] * w_.p.rhs.spatial[i];
            if (runs) {
                put(tap, block, vector, group, panel + (at - lowest_) * lanes, ky * lanes, kx * lanes, item * lanes, items, lanes, panel);
            } else if (reading_ == Reading::one_by_one) {
                for (int y = 0; y < 3; ++y)
                    for (int x = 0; x < 3; ++x)
                        kernels_.gather(panel + (3 * y + x) * lanes, 9 * lanes, items, from + at + y * ky + x * kx, channel_, feature_,
                                        count);
                put(tap, block, vector, group, panel, 3 * lanes, lanes, 9 * lanes, items, lanes, panel);
            } else {
                put(tap, block, vector, group, from + at, ky, kx, item, items, count, panel);
            }
            for (int i = w_.outer - 1; i >= 0 && ++digits[i] == w_.p.axes[i].kernel; --i) digits[i] = 0;
        }
    }

    // Transforms the kernels of a square at one outer tap to their place; `panel` is followed by scratch for turning.
    void put(int64_t tap, int64_t block, int64_t vector, int64_t group, const T* from, int64_t ky, int64_t kx, int64_t item, int64_t items,
             int64_t count, T* panel) const {
        const int64_t lanes = w_.lanes, pair = vector / 2 * 2, channel = block * lanes;
        const int64_t width = std::min<int64_t>(2, w_.vectors - pair) * lanes, plane = w_.weight_plane(width);
        T* to = to_ + winograd_weights_at(w_, group, pair) + (tap * w_.p.channels + channel) * width + (vector - pair) * lanes;
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

    const WinogradPlan& w_;
    const WinogradKernels<T>& kernels_;
    const T* rhs_;
    T* to_;
    const int64_t feature_, channel_;
    int64_t run_ = 1, lowest_ = 0;  // elements from the lowest tap to the highest; the lowest one, from the first
    Reading reading_;
};

}  // namespace

template <class T>
const char* transform_weights(const WinogradPlan& plan, const WinogradKernels<T>& kernels, const T* rhs, T* to, Executor& executor) {
    return Weights<T>(plan, kernels, rhs, to).run(executor);
}
template const char* transform_weights<float>(const WinogradPlan&, const WinogradKernels<float>&, const float*, float*, Executor&);
template const char* transform_weights<double>(const WinogradPlan&, const WinogradKernels<double>&, const double*, double*, Executor&);

}  // namespace fastconv
