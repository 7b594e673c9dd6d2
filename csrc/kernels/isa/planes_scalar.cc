// Plane kernels for scalar.
#include "kernels/planes.h"

namespace fastconv::planes_scalar {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_scalar FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/planes.inl.h"
#include "kernels/planes_table.inl.h"
// clang-format on
}  // namespace

const PlaneKernels<float>& floats() { return kFloat; }
const PlaneKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::planes_scalar
