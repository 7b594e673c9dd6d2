// The point kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and point.inl.h.

static const PointKernel<float> kFloatPoints[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_POINT(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, point<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const PointKernel<double> kDoublePoints[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_POINT(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, point<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr PointKernels<T> point_kernel_set(const PointKernel<T> (&points)[Count]) {
    return {kLanes<T>, points, Count, copy_block<T>, lines<T>, fetch<T>, spread<T>};
}
static const PointKernels<float> kFloat = point_kernel_set(kFloatPoints);
static const PointKernels<double> kDouble = point_kernel_set(kDoublePoints);
