// Outer-product kernels for avx2.
#include "kernels/outer.h"

#include <immintrin.h>

namespace fastconv::outer_avx2 {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_avx2 FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/outer.inl.h"
// clang-format on
}  // namespace

const OuterKernels<float>& floats() { return kFloat; }
const OuterKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::outer_avx2
