// The general algorithm's inner loop, for every element type: acc[j] += x[j * x_step] * w[j * w_step].
#pragma once

#include <cstdint>

#include "base/isa.h"
#include "problem.h"

namespace fastconv {

// Accumulators of the general algorithm.
enum class Accumulator { f32, f64, c64, c128, u32, u64 };

// Adds count products into acc. Steps are in elements of the operands' type.
using RowKernel = void (*)(int64_t count, void* acc, const void* x, int64_t x_step, const void* w, int64_t w_step);

// nullptr when the accumulator does not fit the dtype.
RowKernel row_kernel(Isa isa, Dtype dtype, Accumulator accumulator);

}  // namespace fastconv
