// Lane kernels for avx512.
#include "kernels/lanes.h"

#include <immintrin.h>

namespace fastconv::lanes_avx512 {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_avx512 FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/transpose.inl.h"
#include "kernels/element.inl.h"
#include "kernels/halves.inl.h"
#include "kernels/half_vectors.inl.h"
#include "kernels/lanes.inl.h"
#include "kernels/lanes_table.inl.h"
// clang-format on
}  // namespace

const LaneKernels<float>& floats() { return kFloat; }
const LaneKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::lanes_avx512
