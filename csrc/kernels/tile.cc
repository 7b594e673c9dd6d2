#include "kernels/tile.h"

namespace fastconv {

#define FASTCONV_DECLARE(isa) \
    namespace tile_##isa { \
        const TileKernels<float>& floats(); \
        const TileKernels<double>& doubles(); \
    }
FASTCONV_DECLARE(scalar)
FASTCONV_DECLARE(avx2)
FASTCONV_DECLARE(avx512)
FASTCONV_DECLARE(neon)
#undef FASTCONV_DECLARE

template <>
const TileKernels<float>& tile_kernels<float>(Isa isa) {
    switch (isa) {
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2: return tile_avx2::floats();
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512: return tile_avx512::floats();
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return tile_neon::floats();
#endif
        default: return tile_scalar::floats();
    }
}

template <>
const TileKernels<double>& tile_kernels<double>(Isa isa) {
    switch (isa) {
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2: return tile_avx2::doubles();
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512: return tile_avx512::doubles();
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return tile_neon::doubles();
#endif
        default: return tile_scalar::doubles();
    }
}

}  // namespace fastconv
