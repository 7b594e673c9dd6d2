// Row kernels for neon.
#include "kernels/row.h"

namespace fastconv::row_neon {
namespace {
#include "kernels/element.inl.h"
#include "kernels/row.inl.h"
}  // namespace

RowKernel select(Dtype dtype, Accumulator accumulator) { return select_row(dtype, accumulator); }

}  // namespace fastconv::row_neon
