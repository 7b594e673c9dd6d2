// Convolutions of few channels a group, and their weight gradients, in two forms: lanes of a vector are channels of several
// groups (channels last), or they are pixels (channels first).
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// One axis of a sweep: position p and tap k meet input p * stride + k * dilation - lo. in, weight, out: what one step moves.
struct SweepAxis {
    int64_t size, taps, positions, stride, dilation, lo;
    int64_t in, weight, out;
};

// A problem without dilated input, seen as a forward convolution: out += weight * in over all positions and taps. For a weight
// gradient the roles of the sum and an operand are exchanged: weight += out * in, where `out` is what the problem calls rhs.
struct Sweep {
    bool gradient;
    int64_t groups, channels, features, images;
    int64_t in, in_group, in_image, in_channel;  // the first: where coordinate zero lies
    int64_t weight, weight_group, weight_feature, weight_channel;
    int64_t out, out_group, out_image, out_feature;
    int far;                   // axes outside the last two
    SweepAxis axes[kMaxDims];  // the far ones, outer to inner
    SweepAxis y, x;            // the last two, x inside; axes that are missing have one position and one tap

    int64_t far_positions() const;
    int64_t far_taps() const;
    // Offsets of a far tap at a far position in the input, or false where it falls on padding.
    bool far_input(int64_t position, int64_t tap, int64_t* offset) const;
    int64_t far_out(int64_t position) const;
    int64_t far_weight(int64_t tap) const;
    int64_t products() const;
};

// Whether few sums over many positions are wanted.
bool is_gradient(const Problem& problem);
Sweep make_sweep(const Problem& problem, bool gradient);

// What ends a sum.
template <class T>
struct Finish {
    const T* bias;  // nullptr: none
    int64_t bias_stride;
    Activation activation;
};

// Result of a form: nullptr, a message, or `kSuspicious`: a sum that padding took part in came out infinite or NaN, or a weight is.
extern const char* const kSuspicious;

template <class T>
const char* run_grouped_lanes(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish, Executor& executor);
template <class T>
const char* run_grouped_pixels(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish, Executor& executor);

}  // namespace fastconv
