// Plane kernels for avx2.
#include "kernels/planes.h"

#include <immintrin.h>

namespace fastconv::planes_avx2 {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_avx2 FASTCONV_HERE
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

}  // namespace fastconv::planes_avx2
