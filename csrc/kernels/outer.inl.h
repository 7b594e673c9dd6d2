// Body of the outer-product kernels (kernels/outer.h) and their table for one ISA; included by kernels/isa/outer_<isa>.cc inside
// its namespace, after only_here.inl.h.

template <class T, int Rows, int Vectors>
static void outer(const OuterArguments<T>& o) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    for (int64_t y = 0; y < o.rows; ++y) {
        const T* row[Rows];
        for (int m = 0; m < Rows; ++m) row[m] = o.a[m] + y * o.a_row;
        const T* b = o.b + y * o.b_row;
        const int64_t b_pixel = o.b_pixel, a_pixel = o.a_pixel;
        int64_t at = 0;
        for (int64_t x = o.pixels; x > 0; --x) {
            Vec<T> operand[Vectors];
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) operand[v] = load(b + v * L);
#pragma GCC unroll 8
            for (int m = 0; m < Rows; ++m) {
                const Vec<T> scale = splat(row[m][at]);
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) sum[m][v] = fma(scale, operand[v], sum[m][v]);
            }
            at += a_pixel;
            b += b_pixel;
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            T* place = o.sum + (m * Vectors + v) * L;
            store(place, o.accumulate ? sum[m][v] + load<T>(place) : sum[m][v]);
        }
    }
}

template <class T>
static void add_parts(T* into, const T* from, int64_t step, int64_t parts, int64_t count) {
    for (int64_t j = 0; j < count; j += kLanes<T>) {
        Vec<T> sum = load<T>(into + j);
        const T* part = from + j;
        for (int64_t i = 0; i < parts; ++i, part += step) sum = sum + load(part);
        store(into + j, sum);
    }
}

static const OuterKernel<float> kFloatTiles[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_OUTER(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, outer<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const OuterKernel<double> kDoubleTiles[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_OUTER(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, outer<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr OuterKernels<T> outer_kernel_set(const OuterKernel<T> (&tiles)[Count]) {
    return {kLanes<T>, tiles, Count, add_parts<T>};
}
static const OuterKernels<float> kFloat = outer_kernel_set(kFloatTiles);
static const OuterKernels<double> kDouble = outer_kernel_set(kDoubleTiles);
