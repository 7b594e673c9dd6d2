// Outputs without a product: nothing but bias and activation, the same for every image and position.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "problem.h"

namespace fastconv {

// True when no output has a product, whatever the operands hold.
bool is_bare(const Problem& problem);

// Writes one element of `values` for each group and feature (groups outermost) to all its images and positions.
// element: bytes of one. The elements are 1, 2, 4, 8 or 16 bytes long.
void fill_bare(const Problem& problem, void* out, const char* values, int64_t element, Executor& executor);

}  // namespace fastconv
