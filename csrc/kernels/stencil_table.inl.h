// The stencil and dot kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and stencil.inl.h.

static const StencilKernel<float> kFloatStencils[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_STENCIL(isa, element, rows, vectors, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, taps, stencil<element, rows, vectors, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const DotKernel<float> kFloatDots[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_DOT(isa, element, left, right) FASTCONV_IF_##isa(FASTCONV_ROW_##element({left, right, dot<element, left, right>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const StencilKernel<double> kDoubleStencils[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_STENCIL(isa, element, rows, vectors, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, taps, stencil<element, rows, vectors, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};
static const DotKernel<double> kDoubleDots[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_DOT(isa, element, left, right) FASTCONV_IF_##isa(FASTCONV_ROW_##element({left, right, dot<element, left, right>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Stencils, int Dots>
static constexpr StencilKernels<T> stencil_kernel_set(const StencilKernel<T> (&stencils)[Stencils], const DotKernel<T> (&dots)[Dots]) {
    return {kLanes<T>, stencils, Stencils, dots, Dots};
}
static const StencilKernels<float> kFloat = stencil_kernel_set(kFloatStencils, kFloatDots);
static const StencilKernels<double> kDouble = stencil_kernel_set(kDoubleStencils, kDoubleDots);
