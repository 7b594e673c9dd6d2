#include "kernels/convert.h"

#include "kernels/by_isa.h"

namespace fastconv {

FASTCONV_DECLARE_FOR_ISAS(convert, template <class T> WidenKernel<T> widen_to(Dtype dtype, Part part);
                          template <class T> NarrowKernel<T> narrow_from(Dtype dtype);
                          template <class T> JoinKernel<T> join_from(Dtype dtype);)

template <class T>
WidenKernel<T> widen_kernel(Isa isa, Dtype dtype, Part part) {
    FASTCONV_RETURN_BY_ISA(isa, convert, widen_to<T>(dtype, part))
}
template <class T>
NarrowKernel<T> narrow_kernel(Isa isa, Dtype dtype) {
    FASTCONV_RETURN_BY_ISA(isa, convert, narrow_from<T>(dtype))
}
template <class T>
JoinKernel<T> join_kernel(Isa isa, Dtype dtype){FASTCONV_RETURN_BY_ISA(isa, convert, join_from<T>(dtype))}

#define FASTCONV_CONVERT(T) \
    template WidenKernel<T> widen_kernel<T>(Isa, Dtype, Part); \
    template NarrowKernel<T> narrow_kernel<T>(Isa, Dtype); \
    template JoinKernel<T> join_kernel<T>(Isa, Dtype);
FASTCONV_CONVERT(float) FASTCONV_CONVERT(double)
#undef FASTCONV_CONVERT

}  // namespace fastconv
