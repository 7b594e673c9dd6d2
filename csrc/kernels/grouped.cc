#include "kernels/grouped.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(grouped, const GroupedKernels<float>& floats(); const GroupedKernels<double>& doubles();)

template <>
const GroupedKernels<float>& grouped_kernels<float>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, grouped, floats())
}

template <>
const GroupedKernels<double>& grouped_kernels<double>(Isa isa) {
    FASTCONV_RETURN_BY_ISA(isa, grouped, doubles())
}

}  // namespace fastconv
