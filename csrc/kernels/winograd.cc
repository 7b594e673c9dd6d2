#include "kernels/winograd.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(winograd, const WinogradKernels<float>& floats(); const WinogradKernels<double>& doubles();)

template <>
const WinogradKernels<float>& winograd_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, winograd, floats())
}

template <>
const WinogradKernels<double>& winograd_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, winograd, doubles())
}

}  // namespace fastconv
