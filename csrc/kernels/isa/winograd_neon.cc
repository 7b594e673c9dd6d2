// Winograd kernels for neon.
#include "kernels/winograd.h"

namespace fastconv::winograd_neon {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_neon FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/transpose.inl.h"
#include "kernels/winograd.inl.h"
#include "kernels/winograd_table.inl.h"
// clang-format on
}  // namespace

const WinogradKernels<float>& floats() { return kFloat; }
const WinogradKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::winograd_neon
