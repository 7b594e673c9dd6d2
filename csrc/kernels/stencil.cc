#include "kernels/stencil.h"

namespace fastconv {

#define FASTCONV_DECLARE(isa) \
    namespace stencil_##isa { \
        const StencilKernels<float>& floats(); \
        const StencilKernels<double>& doubles(); \
    }
FASTCONV_DECLARE(scalar)
FASTCONV_DECLARE(avx2)
FASTCONV_DECLARE(avx512)
FASTCONV_DECLARE(neon)
#undef FASTCONV_DECLARE

template <>
const StencilKernels<float>& stencil_kernels<float>(Isa isa) {
    switch (isa) {
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2: return stencil_avx2::floats();
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512: return stencil_avx512::floats();
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return stencil_neon::floats();
#endif
        default: return stencil_scalar::floats();
    }
}

template <>
const StencilKernels<double>& stencil_kernels<double>(Isa isa) {
    switch (isa) {
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2: return stencil_avx2::doubles();
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512: return stencil_avx512::doubles();
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return stencil_neon::doubles();
#endif
        default: return stencil_scalar::doubles();
    }
}

}  // namespace fastconv
