// The grouped kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and grouped.inl.h.

static const LanesKernel<float> kFloatLanes[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_SPREAD(isa, element, rows) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, lanes<element, rows>, same_lanes<element, rows>}, ))
#include "kernels/kernels.inc"
};
static const LaneSumKernel<float> kFloatLaneSums[] = {
#define FASTCONV_SPREAD_SUM(isa, element, rows, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, taps, lane_sums<element, rows, taps>}, ))
#include "kernels/kernels.inc"
};
static const PixelsKernel<float> kFloatPixels[] = {
#define FASTCONV_PIXELS(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, pixels<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const LanesKernel<double> kDoubleLanes[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_SPREAD(isa, element, rows) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, lanes<element, rows>, same_lanes<element, rows>}, ))
#include "kernels/kernels.inc"
};
static const LaneSumKernel<double> kDoubleLaneSums[] = {
#define FASTCONV_SPREAD_SUM(isa, element, rows, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, taps, lane_sums<element, rows, taps>}, ))
#include "kernels/kernels.inc"
};
static const PixelsKernel<double> kDoublePixels[] = {
#define FASTCONV_PIXELS(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, pixels<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Lanes, int Sums, int Pixels>
static constexpr GroupedKernels<T> grouped_kernel_set(const LanesKernel<T> (&rows)[Lanes], const LaneSumKernel<T> (&sums)[Sums],
                                                      const PixelsKernel<T> (&tiles)[Pixels]) {
    return {kLanes<T>, rows, Lanes, sums, Sums, tiles, Pixels, spread<T>, copy<T>, pad_rows<T>, copy_rows<T>};
}
static const GroupedKernels<float> kFloat = grouped_kernel_set(kFloatLanes, kFloatLaneSums, kFloatPixels);
static const GroupedKernels<double> kDouble = grouped_kernel_set(kDoubleLanes, kDoubleLaneSums, kDoublePixels);
