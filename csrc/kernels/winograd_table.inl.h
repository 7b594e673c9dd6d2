// The Winograd kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and winograd.inl.h.

static const ProductKernel<float> kFloatProducts[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_PRODUCT(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, product<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const ProductKernel<double> kDoubleProducts[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_PRODUCT(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, product<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr WinogradKernels<T> winograd_kernel_set(const ProductKernel<T> (&products)[Count]) {
    return {kLanes<T>, products, Count, gather<T>, scatter<T>, input<T>, weights<T>, output<T>};
}
static const WinogradKernels<float> kFloat = winograd_kernel_set(kFloatProducts);
static const WinogradKernels<double> kDouble = winograd_kernel_set(kDoubleProducts);
