// The plane kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and planes.inl.h.

static const PlaneKernel<float> kFloatPlanes[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_PLANE(isa, element, rows, vectors, taps, step) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, taps, step, plane<element, rows, vectors, taps, step>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const PlaneKernel<double> kDoublePlanes[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_PLANE(isa, element, rows, vectors, taps, step) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, taps, step, plane<element, rows, vectors, taps, step>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr PlaneKernels<T> plane_kernel_set(const PlaneKernel<T> (&planes)[Count]) {
    return {kLanes<T>, planes, Count, interleave<T>};
}
static const PlaneKernels<float> kFloat = plane_kernel_set(kFloatPlanes);
static const PlaneKernels<double> kDouble = plane_kernel_set(kDoublePlanes);
