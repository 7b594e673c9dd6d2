// Row kernels for avx512.
#include "kernels/row.h"

namespace fastconv::row_avx512 {
namespace {
#include "kernels/element.inl.h"
#include "kernels/row.inl.h"
}  // namespace

RowKernel select(Dtype dtype, Accumulator accumulator) { return select_row(dtype, accumulator); }

}  // namespace fastconv::row_avx512
