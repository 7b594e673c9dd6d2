// Body of the point kernels (kernels/point.h) for one ISA; included by kernels/isa/point_<isa>.cc inside its namespace.

template <class T, int Rows, int Vectors>
static void point(const PointArguments<T>& arguments) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    const T* row[Rows];
    for (int m = 0; m < Rows; ++m) row[m] = arguments.row[m];
    const T* weight = arguments.weight;
    const int32_t *offset = arguments.offset, *const end = offset + arguments.depth;
    for (; offset != end; ++offset, weight += Vectors * L) {
        const int64_t at = *offset;
        Vec<T> operand[Vectors];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            operand[v] = load(weight + v * L);
            if constexpr (Rows > 1) keep_in_register(operand[v]);
        }
#pragma GCC unroll 16
        for (int m = 0; m < Rows; ++m) {
            const Vec<T> scale = splat(row[m][at]);
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) sum[m][v] = fma(scale, operand[v], sum[m][v]);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            T* place = arguments.sum[m] + arguments.to + v * L;
            store(place, arguments.accumulate ? sum[m][v] + load<T>(place) : sum[m][v]);
        }
    }
}

// Rows of a length that is known when the kernel is built are single moves.
template <class T, int Length>
static void copy_short(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
    for (int64_t i = 0; i < count; ++i, to += to_step, from += from_step) __builtin_memcpy(to, from, Length * sizeof(T));
}

template <class T>
static void copy_block(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count, int64_t length) {
    constexpr int L = kLanes<T>;
    switch (length) {
        case 1: return copy_short<T, 1>(to, to_step, from, from_step, count);
        case 2: return copy_short<T, 2>(to, to_step, from, from_step, count);
        case 4: return copy_short<T, 4>(to, to_step, from, from_step, count);
        case 8: return copy_short<T, 8>(to, to_step, from, from_step, count);
        default: break;
    }
    const int64_t whole = length / L * L, rest = length - whole;
    for (int64_t i = 0; i < count; ++i, to += to_step, from += from_step) {
        for (int64_t j = 0; j < whole; j += L) store(to + j, load(from + j));
        if (rest > 0) store_first(to + whole, load_first(from + whole, rest), rest);
    }
}

// L rows of L lanes, transposed in registers; rows beyond `count` read as zeros.
template <class T>
static inline void load_square(Vec<T> (&rows)[kLanes<T>], const T* from, int64_t step, int64_t count) {
    constexpr int L = kLanes<T>;
    step = step_by_step(step);
    if (count == L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i, from += step) rows[i] = load(from);
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) rows[i] = i < count ? load(from + i * step) : Vec<T>{};
    }
    transpose<T>(rows);
}

template <class T>
static void lines(T* to, int64_t to_step, const T* from, const T* twin, int64_t from_step, int64_t count, int64_t length) {
    constexpr int L = kLanes<T>;
    const int64_t each = twin == nullptr ? 1 : 2;
    for (int64_t j = 0; j < length; j += L) {
        const int64_t columns = length - j < L ? length - j : L;
        for (int64_t i = 0; i < count; i += L) {
            const int64_t points = count - i < L ? count - i : L;
            T* place = to + j * to_step + i * each;
            const int64_t step = step_by_step(to_step);
            Vec<T> even[L], odd[L];
            load_square<T>(even, from + i * from_step + j, from_step, points);
            if (twin == nullptr) {
                if (points == L && columns == L) {
#pragma GCC unroll 16
                    for (int q = 0; q < L; ++q, place += step) store(place, even[q]);
                } else {
                    T held[L][L];
#pragma GCC unroll 16
                    for (int q = 0; q < L; ++q) store(held[q], even[q]);
                    for (int64_t q = 0; q < columns; ++q, place += step) store_first(place, load(held[q]), points);
                }
                continue;
            }
            T held[L][L];  // two squares do not fit the registers
#pragma GCC unroll 16
            for (int q = 0; q < L; ++q) store(held[q], even[q]);
            load_square<T>(odd, twin + i * from_step + j, from_step, points);
            T pairs[L][2 * L];
            const bool whole = points == L && columns == L;
            T* at = whole ? place : pairs[0];
            const int64_t along = whole ? step : 2 * L;
#pragma GCC unroll 16
            for (int q = 0; q < L; ++q, at += along) {
                const Vec<T> other = load(held[q]);
                store(at, zip<0>(other, odd[q], typename MakeIndices<L>::type()));
                store(at + L, zip<L / 2>(other, odd[q], typename MakeIndices<L>::type()));
            }
            for (int64_t q = 0; q < columns && !whole; ++q, place += step) copy_block<T>(place, 0, pairs[q], 0, 1, 2 * points);
        }
    }
}

template <class T>
static void fetch(const T* to, int64_t to_step, int64_t count, int64_t length) {
    constexpr int64_t Line = 64 / sizeof(T);
    for (int64_t j = 0; j < count; ++j, to += to_step) {
        for (int64_t i = 0; i < length; i += Line) __builtin_prefetch(to + i, 1);
        __builtin_prefetch(to + length - 1, 1);
    }
}

template <class T>
static bool spread(T* to, const int64_t* place, const T* from, int64_t step, int64_t count) {
    constexpr int L = kLanes<T>;
    Vec<T> zero{};  // stays zero unless something times zero is NaN
    for (int64_t k = 0; k < count; k += L) {
        const int64_t columns = count - k < L ? count - k : L;
        Vec<T> rows[L];
        if (columns == L) {
#pragma GCC unroll 16
            for (int j = 0; j < L; ++j) rows[j] = load(from + j * step + k);
        } else {
#pragma GCC unroll 16
            for (int j = 0; j < L; ++j) rows[j] = load_first(from + j * step + k, columns);
        }
        transpose<T>(rows);
        if (columns == L) {
#pragma GCC unroll 16
            for (int q = 0; q < L; ++q) {
                zero = fma(rows[q], Vec<T>{}, zero);
                store(to + place[k + q], rows[q]);
            }
        } else {
            T held[L][L];
#pragma GCC unroll 16
            for (int q = 0; q < L; ++q) store(held[q], rows[q]);
            for (int64_t q = 0; q < columns; ++q) {
                const Vec<T> row = load(held[q]);
                zero = fma(row, Vec<T>{}, zero);
                store(to + place[k + q], row);
            }
        }
    }
    T total = 0;
    for (int i = 0; i < L; ++i) total += zero[i];
    return total == total;
}
