#include "kernels/lanes.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(lanes, const LaneKernels<float>& floats(); const LaneKernels<double>& doubles();)

template <>
const LaneKernels<float>& lane_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, lanes, floats())
}

template <>
const LaneKernels<double>& lane_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, lanes, doubles())
}

}  // namespace fastconv
