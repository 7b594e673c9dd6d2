#include "kernels/block.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(block, const BlockKernels<float>& floats(); const BlockKernels<double>& doubles();)

template <>
const BlockKernels<float>& block_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, block, floats())
}

template <>
const BlockKernels<double>& block_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, block, doubles())
}

}  // namespace fastconv
