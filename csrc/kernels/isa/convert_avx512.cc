// Converting copies for avx512.
#include <immintrin.h>

#include "kernels/convert.h"

namespace fastconv::convert_avx512 {
namespace {
// clang-format off: the order matters
#include "kernels/element.inl.h"
#include "kernels/halves.inl.h"
#include "kernels/convert.inl.h"
// clang-format on
}  // namespace

#include "kernels/convert_table.inl.h"

}  // namespace fastconv::convert_avx512
