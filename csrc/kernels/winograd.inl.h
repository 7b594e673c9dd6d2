// Body of the Winograd kernels (kernels/winograd.h) for one ISA; included by kernels/isa/winograd_<isa>.cc inside its namespace.

template <class T, int Rows, int Vectors>
static void product(int64_t depth, const T* a, int64_t block, const T* b, T* c, bool accumulate) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    for (; depth > 0; depth -= L, a += block) {
        const int64_t steps = depth < L ? depth : L;
        for (int64_t k = 0; k < steps; ++k) {
            Vec<T> operand[Vectors];
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) {
                operand[v] = load(b + v * L);
                if constexpr (Rows > 1) keep_in_register(operand[v]);
            }
#pragma GCC unroll 16
            for (int m = 0; m < Rows; ++m) {
                const Vec<T> scale = splat(a[m * L + k]);
#pragma GCC unroll 2
                for (int v = 0; v < Vectors; ++v) sum[m][v] = fma(scale, operand[v], sum[m][v]);
            }
            b += Vectors * L;
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
            T* place = c + (m * Vectors + v) * L;
            store(place, accumulate ? sum[m][v] + load<T>(place) : sum[m][v]);
        }
    }
}

// A square of lanes rows and pixels columns is turned: to[p][j] = from[j][p] for p < pixels and j < count. Whole: both are L.
template <class T, bool Whole>
static inline void turn_in(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t pixels, int64_t count) {
    constexpr int L = kLanes<T>;
    Vec<T> rows[L];
#pragma GCC unroll 16
    for (int j = 0; j < L; ++j) {
        if (Whole)
            rows[j] = load(from + j * from_step);
        else
            rows[j] = j < count ? load_first(from + j * from_step, pixels) : Vec<T>{};
    }
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int p = 0; p < L; ++p)
        if (Whole || p < pixels) store(to + p * to_step, rows[p]);
}

// The way back: to[j][p] = from[p][j].
template <class T, bool Whole>
static inline void turn_out(T* to, int64_t to_step, const T* from, int64_t pixels, int64_t count) {
    constexpr int L = kLanes<T>;
    Vec<T> rows[L];
#pragma GCC unroll 16
    for (int p = 0; p < L; ++p) rows[p] = Whole || p < pixels ? load(from + p * L) : Vec<T>{};
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int j = 0; j < L; ++j) {
        if (Whole)
            store(to + j * to_step, rows[j]);
        else if (j < count)
            store_first(to + j * to_step, rows[j], pixels);
    }
}

template <class T>
static void gather(T* to, int64_t to_step, int64_t pixels, const T* from, int64_t pixel_step, int64_t lane_step, int64_t count) {
    constexpr int L = kLanes<T>;
    if (lane_step == 1) {
        for (int64_t p = 0; p < pixels; ++p)
            store(to + p * to_step, count == L ? load(from + p * pixel_step) : load_first(from + p * pixel_step, count));
    } else if (pixel_step == 1) {
        for (int64_t p = 0; p < pixels; p += L) {
            const int64_t left = pixels - p < L ? pixels - p : L;
            if (left == L && count == L)
                turn_in<T, true>(to + p * to_step, to_step, from + p, lane_step, L, L);
            else
                turn_in<T, false>(to + p * to_step, to_step, from + p, lane_step, left, count);
        }
    } else {
        for (int64_t p = 0; p < pixels; ++p) {
            for (int64_t j = 0; j < count; ++j) to[p * to_step + j] = from[p * pixel_step + j * lane_step];
            for (int64_t j = count; j < L; ++j) to[p * to_step + j] = T(0);
        }
    }
}

template <class T>
static void scatter(T* to, int64_t pixel_step, int64_t lane_step, int64_t pixels, const T* from, int64_t count) {
    constexpr int L = kLanes<T>;
    if (lane_step == 1) {
        for (int64_t p = 0; p < pixels; ++p) {
            if (count == L)
                store(to + p * pixel_step, load(from + p * L));
            else
                store_first(to + p * pixel_step, load(from + p * L), count);
        }
    } else if (pixel_step == 1) {
        for (int64_t p = 0; p < pixels; p += L) {
            const int64_t left = pixels - p < L ? pixels - p : L;
            if (left == L && count == L)
                turn_out<T, true>(to + p, lane_step, from + p * L, L, L);
            else
                turn_out<T, false>(to + p, lane_step, from + p * L, left, count);
        }
    } else {
        for (int64_t p = 0; p < pixels; ++p)
            for (int64_t j = 0; j < count; ++j) to[p * pixel_step + j * lane_step] = from[p * L + j];
    }
}

// B^T along one column of 4 pixels.
template <class T>
static inline void input_column(Vec<T> (&to)[4], const T* from, int64_t row) {
    const Vec<T> a = load(from), b = load(from + row), c = load(from + 2 * row), d = load(from + 3 * row);
    to[0] = a - c;
    to[1] = b + c;
    to[2] = c - b;
    to[3] = b - d;
}

template <class T>
static void input(T* to, int64_t plane, const T* from, int64_t row, int64_t tiles) {
    constexpr int L = kLanes<T>;
    Vec<T> a[4], b[4], c[4], d[4];
    input_column(a, from, row);
    input_column(b, from + L, row);
    for (int64_t m = 0; m < tiles; ++m, to += L, from += 2 * L) {
        input_column(c, from + 2 * L, row);
        input_column(d, from + 3 * L, row);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            store(to + (4 * i + 0) * plane, a[i] - c[i]);
            store(to + (4 * i + 1) * plane, b[i] + c[i]);
            store(to + (4 * i + 2) * plane, c[i] - b[i]);
            store(to + (4 * i + 3) * plane, b[i] - d[i]);
            a[i] = c[i];
            b[i] = d[i];
        }
    }
}

// G along one line of 3 taps.
template <class T>
static inline void weight_line(Vec<T> (&to)[4], Vec<T> a, Vec<T> b, Vec<T> c) {
    const Vec<T> half = splat(T(0.5)), ends = a + c;
    to[0] = a;
    to[1] = half * (ends + b);
    to[2] = half * (ends - b);
    to[3] = c;
}

template <class T>
static void weights(T* to, int64_t plane, int64_t step, const T* from, int64_t ky, int64_t kx, int64_t item, int64_t count, int64_t lanes) {
    const bool whole = lanes == kLanes<T>;
    for (int64_t i = 0; i < count; ++i, to += step, from += item) {
        Vec<T> column[3][4];
#pragma GCC unroll 3
        for (int x = 0; x < 3; ++x) {
            Vec<T> tap[3];
#pragma GCC unroll 3
            for (int y = 0; y < 3; ++y) tap[y] = whole ? load(from + y * ky + x * kx) : load_first(from + y * ky + x * kx, lanes);
            weight_line<T>(column[x], tap[0], tap[1], tap[2]);
        }
#pragma GCC unroll 4
        for (int y = 0; y < 4; ++y) {
            Vec<T> line[4];
            weight_line<T>(line, column[0][y], column[1][y], column[2][y]);
#pragma GCC unroll 4
            for (int x = 0; x < 4; ++x) store(to + (4 * y + x) * plane, line[x]);
        }
    }
}

template <class T>
static bool output(T* to, int64_t row, const T* from, int64_t plane, int64_t step, int64_t tiles, const T* bias, bool relu) {
    constexpr int L = kLanes<T>;
    const Vec<T> shift = bias == nullptr ? Vec<T>{} : load(bias);
    Vec<T> zero = {};  // stays zero unless something times zero is NaN
    for (int64_t m = 0; m < tiles; ++m, from += step, to += 2 * L) {
        Vec<T> left[4], right[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const T* at = from + 4 * i * plane;
            const Vec<T> b = load(at + plane), c = load(at + 2 * plane);
            left[i] = load(at) + b + c;
            right[i] = b - c - load(at + 3 * plane);
        }
        Vec<T> sum[4] = {left[0] + left[1] + left[2], right[0] + right[1] + right[2], left[1] - left[2] - left[3],
                         right[1] - right[2] - right[3]};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            zero = fma(sum[i], Vec<T>{}, zero);
            if (bias != nullptr) sum[i] += shift;
            if (relu) sum[i] = sum[i] < Vec<T>{} ? Vec<T>{} : sum[i];  // NaN stays NaN
            store(to + (i / 2) * row + (i % 2) * L, sum[i]);
        }
    }
    T total = 0;
    for (int j = 0; j < L; ++j) total += zero[j];
    return total == total;
}
