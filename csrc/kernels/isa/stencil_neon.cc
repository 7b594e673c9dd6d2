// Stencil kernels for neon.
#include "kernels/stencil.h"

namespace fastconv::stencil_neon {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_neon FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/stencil.inl.h"
#include "kernels/stencil_table.inl.h"
// clang-format on
}  // namespace

const StencilKernels<float>& floats() { return kFloat; }
const StencilKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::stencil_neon
