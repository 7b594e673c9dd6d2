#include "kernels/point.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(point, const PointKernels<float>& floats(); const PointKernels<double>& doubles();)

template <>
const PointKernels<float>& point_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, point, floats())
}

template <>
const PointKernels<double>& point_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, point, doubles())
}

}  // namespace fastconv
