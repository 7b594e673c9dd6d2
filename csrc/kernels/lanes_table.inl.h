// The lane kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and lanes.inl.h.

// In every row: T, and what lhs, rhs and out are of.
template <class Lhs, class Rhs, class Out>
struct FloatLanes {
    static constexpr LaneKernel<float> rows[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_LANE(isa, element, rows, columns, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, columns, taps, lane_tile<element, Lhs, Rhs, Out, rows, columns, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
    };
    static constexpr int count = sizeof(rows) / sizeof(rows[0]);
};
static const LaneKernel<double> kDoubleRows[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_LANE(isa, element, rows, columns, taps) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, columns, taps, lane_tile<element, element, element, element, rows, columns, taps>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class M>
static constexpr LaneSet<float> half_lane_set() {
    LaneSet<float> set{{}, gather_lanes<float, M>, scatter_lanes<float, M>};
    if constexpr (kHalfVectors) {
        set.of[static_cast<int>(LaneHalves::images)] = FloatLanes<M, float, M>::rows;
        set.of[static_cast<int>(LaneHalves::sums)] = FloatLanes<M, M, float>::rows;
    }
    return set;
}
static const LaneKernels<float> kFloat = {
    kLanes<float>,
    FloatLanes<float, float, float>::count,
    {{FloatLanes<float, float, float>::rows, nullptr, nullptr}, gather_lanes<float, float>, scatter_lanes<float, float>},
    half_lane_set<Half>(),
    half_lane_set<Brain>()};
static const LaneKernels<double> kDouble = {kLanes<double>,
                                            sizeof(kDoubleRows) / sizeof(kDoubleRows[0]),
                                            {{kDoubleRows, nullptr, nullptr}, gather_lanes<double, double>, scatter_lanes<double, double>},
                                            {},
                                            {}};
