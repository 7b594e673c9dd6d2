#include "kernels/tile.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(tile, const TileKernels<float>& floats(); const TileKernels<double>& doubles();)

template <>
const TileKernels<float>& tile_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, tile, floats())
}

template <>
const TileKernels<double>& tile_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, tile, doubles())
}

}  // namespace fastconv
