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
            for (int v = 0; v < Vectors; ++v) {
                operand[v] = load(b + v * L);
                keep_in_register(operand[v]);  // with few rows it would be loaded for each, and loads are what is scarce
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

// One place of a under the three pixels of b that it meets; First and Last: of its taps, fewer at both ends of a row of pixels.
template <class T, int Threes, int First, int Last>
static inline void meet(Vec<T> (&sum)[3 * Threes], const T* const (&row)[Threes], int64_t at, const Vec<T> (&pixel)[3]) {
#pragma GCC unroll 9
    for (int i = 0; i < Threes; ++i) {
        Vec<T> scale = splat(row[i][at]);
        keep_in_register(scale);
#pragma GCC unroll 3
        for (int tap = First; tap <= Last; ++tap) sum[3 * i + tap] = fma(scale, pixel[tap], sum[3 * i + tap]);
    }
}

// The same sums in the same order where three rows are neighbouring taps of the pixels: what one of them reads now the one before it
// reads a pixel later. So an element is read once, and the last three pixels stay in registers: 9 loads instead of 27.
template <class T, int Rows, bool Far>
static void sliding(const OuterArguments<T>& o) {
    constexpr int L = kLanes<T>, Threes = Rows / 3;
    Vec<T> sum[Rows] = {};
    const int64_t a_pixel = o.a_pixel, b_pixel = o.b_pixel;
    for (int64_t y = 0; y < o.rows; ++y) {
        const T* row[Threes];
        for (int i = 0; i < Threes; ++i) row[i] = o.a[3 * i] + y * o.a_row;
        const T* b = o.b + y * o.b_row;
        Vec<T> pixel[3] = {load(b), {}, {}};  // the latest first
        int64_t at = 0;
        meet<T, Threes, 0, 0>(sum, row, at, pixel);
        pixel[1] = pixel[0];
        pixel[0] = load(b += b_pixel);
        meet<T, Threes, 0, 1>(sum, row, at += a_pixel, pixel);
        for (int64_t x = o.pixels - 2; x > 0; --x) {
            pixel[2] = pixel[1];
            pixel[1] = pixel[0];
            pixel[0] = load(b += b_pixel);
            if constexpr (Far) __builtin_prefetch(b + kPixelsAhead * b_pixel);
            meet<T, Threes, 0, 2>(sum, row, at += a_pixel, pixel);
        }
        pixel[2] = pixel[1];
        pixel[1] = pixel[0];
        meet<T, Threes, 1, 2>(sum, row, at += a_pixel, pixel);
        pixel[2] = pixel[1];
        meet<T, Threes, 2, 2>(sum, row, at += a_pixel, pixel);
    }
#pragma GCC unroll 27
    for (int m = 0; m < Rows; ++m) store(o.sum + m * L, o.accumulate ? sum[m] + load<T>(o.sum + m * L) : sum[m]);
}

template <class T, int Rows>
static void outer_by_threes(const OuterArguments<T>& o) {
    if (o.a_step == o.a_pixel && o.pixels > 1)
        o.far ? sliding<T, Rows, true>(o) : sliding<T, Rows, false>(o);
    else
        o.far ? threes<T, Rows, true>(o) : threes<T, Rows, false>(o);
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
