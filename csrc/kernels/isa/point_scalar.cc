// Point kernels for scalar.
#include "kernels/point.h"

namespace fastconv::point_scalar {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_scalar FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/transpose.inl.h"
#include "kernels/point.inl.h"
#include "kernels/point_table.inl.h"
// clang-format on
}  // namespace

const PointKernels<float>& floats() { return kFloat; }
const PointKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::point_scalar
