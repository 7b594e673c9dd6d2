// The end of a convolution: accumulator -> + bias -> activation -> output type.
#pragma once

#include <cstdint>

#include "problem.h"

namespace fastconv {

double activate(Activation activation, double value);
float activate(Activation activation, float value);

// Adds `bias` and applies the activation to `count` finished sums in place. bias_step 0: one bias for the row.
// bias may be nullptr. T: float or double.
template <class T>
void finish_row(T* row, int64_t count, int64_t step, const T* bias, int64_t bias_step, Activation activation);

// round-to-nearest-even to the half types, as bits.
uint16_t narrow_f16(float value);
uint16_t narrow_bf16(float value);

}  // namespace fastconv
