#include "kernels/row.h"

namespace fastconv {

namespace row_scalar {
RowKernel select(Dtype dtype, Accumulator accumulator);
}
namespace row_avx2 {
RowKernel select(Dtype dtype, Accumulator accumulator);
}
namespace row_avx512 {
RowKernel select(Dtype dtype, Accumulator accumulator);
}
namespace row_neon {
RowKernel select(Dtype dtype, Accumulator accumulator);
}

RowKernel row_kernel(Isa isa, Dtype dtype, Accumulator accumulator) {
    switch (isa) {
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2: return row_avx2::select(dtype, accumulator);
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512: return row_avx512::select(dtype, accumulator);
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return row_neon::select(dtype, accumulator);
#endif
        default: return row_scalar::select(dtype, accumulator);
    }
}

}  // namespace fastconv
