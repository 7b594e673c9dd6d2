// Block kernels for scalar.
#include "kernels/block.h"

namespace fastconv::block_scalar {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_scalar FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/block.inl.h"
#include "kernels/block_table.inl.h"
// clang-format on
}  // namespace

const BlockKernels<float>& floats() { return kFloat; }
const BlockKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::block_scalar
