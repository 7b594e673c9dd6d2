// Body of the outer-product kernels (kernels/outer.h) and their table for one ISA; included by kernels/isa/outer_<isa>.cc inside
// its namespace, after only_here.inl.h.

// Keeps a loaded vector in its register: with few rows the compiler would load it anew for each, and loads are what is scarce.
template <class V>
static inline void keep(V& value) {
#if defined(__AVX512F__)
    asm("" : "+v"(value));
#elif defined(__x86_64__)
    asm("" : "+x"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#endif
}

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
            for (int v = 0; v < Vectors; ++v) {
                operand[v] = load(b + v * L);
                keep(operand[v]);
            }
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

static constexpr int64_t kPixelsAhead = 32;  // of the vector that memory is asked for

// More rows of one vector than there are pointers for: three share one.
template <class T, int Rows, bool Far>
static void threes(const OuterArguments<T>& o) {
    static_assert(Rows % 3 == 0, "rows go by threes");
    constexpr int L = kLanes<T>, Threes = Rows / 3;
    Vec<T> sum[Rows] = {};
    const int64_t a_pixel = o.a_pixel, b_pixel = o.b_pixel;
    for (int64_t y = 0; y < o.rows; ++y) {
        const T* row[Threes];
        for (int i = 0; i < Threes; ++i) row[i] = o.a[3 * i] + y * o.a_row;
        const T* b = o.b + y * o.b_row;
        int64_t first = 0, second = o.a_step, third = 2 * o.a_step;
        for (int64_t x = o.pixels; x > 0; --x) {
            const Vec<T> operand = load(b);
            if constexpr (Far) __builtin_prefetch(b + kPixelsAhead * b_pixel);
#pragma GCC unroll 9
            for (int i = 0; i < Threes; ++i) {
                sum[3 * i] = fma(splat(row[i][first]), operand, sum[3 * i]);
                sum[3 * i + 1] = fma(splat(row[i][second]), operand, sum[3 * i + 1]);
                sum[3 * i + 2] = fma(splat(row[i][third]), operand, sum[3 * i + 2]);
            }
            first += a_pixel;
            second += a_pixel;
            third += a_pixel;
            b += b_pixel;
        }
    }
#pragma GCC unroll 27
    for (int m = 0; m < Rows; ++m) store(o.sum + m * L, o.accumulate ? sum[m] + load<T>(o.sum + m * L) : sum[m]);
}

template <class T, int Rows>
static void outer_by_threes(const OuterArguments<T>& o) {
    if (o.far)
        threes<T, Rows, true>(o);
    else
        threes<T, Rows, false>(o);
}

template <class T, int Rows, int Vectors>
static constexpr OuterFunction<T> outer_function() {
    if constexpr (Rows <= kOuterPlaces) {
        return outer<T, Rows, Vectors>;
    } else {
        static_assert(Vectors == 1, "many rows go with one vector");
        return outer_by_threes<T, Rows>;
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
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, outer_function<element, rows, vectors>()}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const OuterKernel<double> kDoubleTiles[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_OUTER(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, outer_function<element, rows, vectors>()}, ))
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
