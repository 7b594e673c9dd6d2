#include "kernels/stencil.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(stencil, const StencilKernels<float>& floats(); const StencilKernels<double>& doubles();)

template <>
const StencilKernels<float>& stencil_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, stencil, floats())
}

template <>
const StencilKernels<double>& stencil_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, stencil, doubles())
}

}  // namespace fastconv
