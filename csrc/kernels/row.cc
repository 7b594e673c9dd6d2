#include "kernels/row.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(row, RowKernel select(Dtype dtype, Accumulator accumulator);)

RowKernel row_kernel(Isa isa, Dtype dtype, Accumulator accumulator) { FASTCONV_RETURN_BY_ISA(isa, row, select(dtype, accumulator)) }

}  // namespace fastconv
