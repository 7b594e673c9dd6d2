#include "drivers/epilogue.h"

#include <cmath>
#include <cstring>

namespace fastconv {
namespace {

template <class T>
T sigmoid(T value) {
    return T(1) / (T(1) + std::exp(-value));
}

template <class T>
T apply(Activation activation, T value) {
    constexpr T sqrt_half = T(0.70710678118654752440L);
    constexpr T tanh_scale = T(0.79788456080286535588L);  // sqrt(2 / pi)
    switch (activation) {
        case Activation::none: return value;
        case Activation::relu: return value > T(0) || value != value ? value : T(0);  // NaN stays NaN
        case Activation::gelu: return T(0.5) * value * std::erfc(-value * sqrt_half);
        case Activation::gelu_tanh: return T(0.5) * value * (T(1) + std::tanh(tanh_scale * (value + T(0.044715) * value * value * value)));
        case Activation::silu: return value * sigmoid(value);
        case Activation::tanh: return std::tanh(value);
        case Activation::sigmoid: return sigmoid(value);
        case Activation::leaky_relu: return value >= T(0) ? value : T(0.01) * value;
    }
    return value;
}

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

}  // namespace

double activate(Activation activation, double value) { return apply(activation, value); }
float activate(Activation activation, float value) { return apply(activation, value); }

template <class T>
void finish_row(T* row, int64_t count, int64_t step, const T* bias, int64_t bias_step, Activation activation) {
    if (bias != nullptr)
        for (int64_t j = 0; j < count; ++j) row[j * step] += bias[j * bias_step];
    if (activation == Activation::relu) {  // worth a loop of its own: the others cost a library call each
        for (int64_t j = 0; j < count; ++j) row[j * step] = apply(Activation::relu, row[j * step]);
    } else if (activation != Activation::none) {
        for (int64_t j = 0; j < count; ++j) row[j * step] = apply(activation, row[j * step]);
    }
}
template void finish_row<float>(float*, int64_t, int64_t, const float*, int64_t, Activation);
template void finish_row<double>(double*, int64_t, int64_t, const double*, int64_t, Activation);

uint16_t narrow_bf16(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // a quiet NaN
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t narrow_f16(float value) {
    const uint32_t bits = bits_of(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity: at least 65520
    if (magnitude >= 0x38800000u)                         // normal: drop 13 bits, to even
        return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
    if (magnitude < 0x33000000u) return sign;  // below half of the smallest subnormal
    const uint32_t shift = 126u - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t quotient = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return static_cast<uint16_t>(sign | (quotient + ((rest > half || (rest == half && (quotient & 1u))) ? 1u : 0u)));
}

}  // namespace fastconv
