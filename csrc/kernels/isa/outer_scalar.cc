// Outer-product kernels for scalar.
#include "kernels/outer.h"

namespace fastconv::outer_scalar {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_scalar FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/outer.inl.h"
// clang-format on
}  // namespace

const OuterKernels<float>& floats() { return kFloat; }
const OuterKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::outer_scalar
