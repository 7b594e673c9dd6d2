// Grouped kernels for avx512.
#include "kernels/grouped.h"

#include <immintrin.h>

namespace fastconv::grouped_avx512 {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_avx512 FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/grouped.inl.h"
#include "kernels/grouped_table.inl.h"
// clang-format on
}  // namespace

const GroupedKernels<float>& floats() { return kFloat; }
const GroupedKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::grouped_avx512
