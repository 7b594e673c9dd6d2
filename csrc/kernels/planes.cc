#include "kernels/planes.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(planes, const PlaneKernels<float>& floats(); const PlaneKernels<double>& doubles();)

template <>
const PlaneKernels<float>& plane_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, planes, floats())
}

template <>
const PlaneKernels<double>& plane_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, planes, doubles())
}

}  // namespace fastconv
