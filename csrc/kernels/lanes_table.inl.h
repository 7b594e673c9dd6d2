// The lane kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and lanes.inl.h.

static const LaneKernel<float> kFloatRows[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_LANE(isa, element, rows, columns, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, columns, taps, lane_tile<element, rows, columns, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const LaneKernel<double> kDoubleRows[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_LANE(isa, element, rows, columns, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, columns, taps, lane_tile<element, rows, columns, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr LaneKernels<T> lane_kernel_set(const LaneKernel<T> (&rows)[Count]) {
    return {kLanes<T>, rows, Count, gather_lanes<T>, scatter_lanes<T>};
}
static const LaneKernels<float> kFloat = lane_kernel_set(kFloatRows);
static const LaneKernels<double> kDouble = lane_kernel_set(kDoubleRows);
