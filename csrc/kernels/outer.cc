#include "kernels/outer.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(outer, const OuterKernels<float>& floats(); const OuterKernels<double>& doubles();)

template <>
const OuterKernels<float>& outer_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, outer, floats())
}

template <>
const OuterKernels<double>& outer_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, outer, doubles())
}

}  // namespace fastconv
