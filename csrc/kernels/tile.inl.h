// Body of the tile kernels (kernels/tile.h) for one ISA; included by kernels/isa/tile_<isa>.cc inside its namespace.

// The most rows of the form that reads a[m][k]: each needs a pointer.
static constexpr int kMaxByRows = 8;

template <class T, int Rows, int Vectors, bool ByRows>
static void tile(int64_t depth, const T* a, const T* b, T* c, bool accumulate) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    const T* row[Rows];
    for (int m = 0; m < Rows; ++m) row[m] = a + m * depth;
    for (int64_t k = 0; k < depth; ++k) {
        Vec<T> operand[Vectors];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            operand[v] = load(b + v * L);
            if constexpr (Rows > 1) keep_in_register(operand[v]);
        }
#pragma GCC unroll 24
        for (int m = 0; m < Rows; ++m) {
            const Vec<T> scale = splat(ByRows ? row[m][k] : a[m]);
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) sum[m][v] = fma(scale, operand[v], sum[m][v]);
        }
        a += Rows;
        b += Vectors * L;
    }
#pragma GCC unroll 24
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            T* place = c + (m * Vectors + v) * L;
            store(place, accumulate ? sum[m][v] + load<T>(place) : sum[m][v]);
        }
    }
}

template <int Offset, class V, int... I>
static inline V every_second(V a, V b, Indices<I...>) {
    return __builtin_shufflevector(a, b, (2 * I + Offset)...);
}

template <class V, int... I>
static inline V backwards(V a, Indices<I...>) {
    return __builtin_shufflevector(a, a, (static_cast<int>(sizeof...(I)) - 1 - I)...);
}

template <class V, int... I>
static inline V every_third(V a, V b, V c, Indices<I...>) {
    constexpr int L = sizeof...(I);
    const V ab = __builtin_shufflevector(a, b, (3 * I < 2 * L ? 3 * I : 0)...);
    return __builtin_shufflevector(ab, c, (3 * I < 2 * L ? I : 3 * I - L)...);
}

// from[0], from[Spacing], ... : a vector of them, out of Spacing vectors.
template <int Spacing, class T>
static inline Vec<T> every(const T* from) {
    constexpr int L = kLanes<T>;
    if constexpr (Spacing == 1)
        return load(from);
    else if constexpr (Spacing == 3)
        return every_third(load(from), load(from + L), load(from + 2 * L), typename MakeIndices<L>::type());
    else
        return every_second<0>(every<Spacing / 2>(from), every<Spacing / 2>(from + Spacing / 2 * L), typename MakeIndices<L>::type());
}
// The same for the first `count` lanes (0 < count <= lanes); nothing behind the last is read.
template <int Spacing, class T>
static inline Vec<T> every_first(const T* from, int64_t count) {
    constexpr int L = kLanes<T>;
    Vec<T> part[Spacing] = {};
    const int64_t elements = Spacing * (count - 1) + 1;
#pragma GCC unroll 4
    for (int i = 0; i < Spacing; ++i) {
        const int64_t left = elements - i * L;
        if (left > 0) part[i] = left >= L ? load(from + i * L) : load_first(from + i * L, left);
    }
    if constexpr (Spacing == 3) return every_third(part[0], part[1], part[2], typename MakeIndices<L>::type());
#pragma GCC unroll 2
    for (int half = Spacing / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
        for (int i = 0; i < half; ++i) part[i] = every_second<0>(part[2 * i], part[2 * i + 1], typename MakeIndices<L>::type());
    }
    return part[0];
}

template <class T, int Spacing>
static void spaced_by(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, int64_t count) {
    constexpr int L = kLanes<T>;
    for (int64_t k = 0; k < depth; ++k, panel += width, from += step) {
        int64_t j = 0;
        for (; j + L < count; j += L)  // one lane more must follow: the last load ends past the lane's own last element
            store(panel + j, every<Spacing>(from + Spacing * j));
        store_first(panel + j, every_first<Spacing>(from + Spacing * j, count - j), count - j);
    }
}

template <class T>
static void spaced(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, int64_t spacing, int64_t count) {
    constexpr int L = kLanes<T>;
    if (spacing == 1) {
        const int64_t whole = count / L * L, rest = count - whole;
        for (int64_t k = 0; k < depth; ++k, panel += width, from += step) {
            for (int64_t j = 0; j < whole; j += L) store(panel + j, load(from + j));
            if (rest > 0) store_first(panel + whole, load_first(from + whole, rest), rest);
        }
    } else if (spacing == -1) {
        const int64_t whole = count / L * L;
        for (int64_t k = 0; k < depth; ++k, panel += width, from += step) {
            for (int64_t j = 0; j < whole; j += L) store(panel + j, backwards(load(from - j - (L - 1)), typename MakeIndices<L>::type()));
            for (int64_t j = whole; j < count; ++j) panel[j] = from[-j];
        }
    } else if (spacing == 2) {
        spaced_by<T, 2>(panel, width, depth, from, step, count);
    } else if (spacing == 3) {
        spaced_by<T, 3>(panel, width, depth, from, step, count);
    } else if (spacing == 4) {
        spaced_by<T, 4>(panel, width, depth, from, step, count);
    } else {
        for (int64_t k = 0; k < depth; ++k, panel += width, from += step)
            for (int64_t j = 0; j < count; ++j) panel[j] = from[j * spacing];
    }
}

// Vector S of C interleaved ones.
template <int C, int S, class V, int... I>
static inline V woven(const V* part, Indices<I...>) {
    constexpr int L = sizeof...(I), at = S * L;
    V all = __builtin_shufflevector(part[0], part[1], ((at + I) / C + ((at + I) % C == 1 ? L : 0))...);
    if constexpr (C > 2) all = __builtin_shufflevector(all, part[2], ((at + I) % C == 2 ? L + (at + I) / C : I)...);
    if constexpr (C > 3) all = __builtin_shufflevector(all, part[3], ((at + I) % C == 3 ? L + (at + I) / C : I)...);
    return all;
}

template <class T, int C>
static void weave_by(T* to, const T* from, int64_t pitch, int64_t count) {
    constexpr int L = kLanes<T>;
    for (int64_t j = 0; j < count; j += L, to += C * L) {
        Vec<T> part[C], all[C];
        const int64_t lanes = count - j < L ? count - j : L;
        for (int c = 0; c < C; ++c) part[c] = lanes == L ? load(from + c * pitch + j) : load_first(from + c * pitch + j, lanes);
        constexpr typename MakeIndices<L>::type indices{};
        all[0] = woven<C, 0>(part, indices);
        all[1] = woven<C, 1>(part, indices);
        if constexpr (C > 2) all[2] = woven<C, 2>(part, indices);
        if constexpr (C > 3) all[3] = woven<C, 3>(part, indices);
        for (int i = 0; i < C; ++i) {
            const int64_t left = lanes * C - i * L;
            if (left >= L)
                store(to + i * L, all[i]);
            else if (left > 0)
                store_first(to + i * L, all[i], left);
        }
    }
}

template <class T>
static void weave(T* to, const T* from, int64_t pitch, int64_t parts, int64_t count) {
    switch (parts) {
        case 2: return weave_by<T, 2>(to, from, pitch, count);
        case 3: return weave_by<T, 3>(to, from, pitch, count);
        case 4: return weave_by<T, 4>(to, from, pitch, count);
        default: break;
    }
    for (int64_t j = 0; j < count; ++j)
        for (int64_t c = 0; c < parts; ++c) *to++ = from[c * pitch + j];
}

template <class T, int Run>
static void short_runs(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, const int64_t* start, int64_t count) {
    for (int64_t k = 0; k < depth; ++k, panel += width, from += step)
        for (int64_t j = 0; j < count; j += Run) __builtin_memcpy(panel + j, from + start[j], Run * sizeof(T));
}

// The same from start[j] downwards.
template <class T, int Run>
static void short_runs_down(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, const int64_t* start, int64_t count) {
    for (int64_t k = 0; k < depth; ++k, panel += width, from += step)
        for (int64_t j = 0; j < count; j += Run) {
            T held[Run];
            __builtin_memcpy(held, from + start[j] - (Run - 1), Run * sizeof(T));
#pragma GCC unroll 8
            for (int i = 0; i < Run; ++i) panel[j + i] = held[Run - 1 - i];
        }
}

template <class T>
static void runs(T* panel, int64_t width, int64_t depth, const T* from, int64_t step, const int64_t* start, int64_t run, int64_t count) {
    switch (run) {
        case -2: return short_runs_down<T, 2>(panel, width, depth, from, step, start, count);
        case -4: return short_runs_down<T, 4>(panel, width, depth, from, step, start, count);
        case -8: return short_runs_down<T, 8>(panel, width, depth, from, step, start, count);
        case 2: return short_runs<T, 2>(panel, width, depth, from, step, start, count);
        case 3: return short_runs<T, 3>(panel, width, depth, from, step, start, count);
        case 4: return short_runs<T, 4>(panel, width, depth, from, step, start, count);
        case 8: return short_runs<T, 8>(panel, width, depth, from, step, start, count);
        default: break;
    }
    const int64_t length = run < 0 ? -run : run, next = run < 0 ? -1 : 1;
    for (int64_t k = 0; k < depth; ++k, panel += width, from += step)
        for (int64_t j = 0; j < count; j += length)
            for (int64_t i = 0; i < length; ++i) panel[j + i] = from[start[j] + i * next];
}

template <class T>
static void gathered(T* panel, int64_t width, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end, int64_t count,
                     int64_t step) {
    for (int64_t j = 0; j < count; ++j) {
        T* place = panel + j;
        const T* source = from[j];
        for (int64_t k = 0; k < begin[j]; ++k) place[k * width] = T(0);
        for (int64_t k = begin[j]; k < end[j]; ++k) place[k * width] = source[k * step];
        for (int64_t k = end[j]; k < depth; ++k) place[k * width] = T(0);
    }
}

// panel[k][j] = from[j][k * Step] for L steps of k and `count` <= L lanes; Whole: count is L. Step is 1 or 2; with 2, one element
// past the last one is read.
template <class T, bool Whole, int Step>
static inline void transpose_square(T* panel, int64_t width, const T* const* from, int64_t k, int64_t count) {
    constexpr int L = kLanes<T>;
    Vec<T> rows[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
        if (!Whole && i >= count)
            rows[i] = Vec<T>{};
        else if constexpr (Step == 1)
            rows[i] = load(from[i] + k);
        else
            rows[i] = every_second<0>(load(from[i] + 2 * k), load(from[i] + 2 * k + L), typename MakeIndices<L>::type());
    }
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
        if (Whole)
            store(panel + i * width, rows[i]);
        else
            store_first(panel + i * width, rows[i], count);
    }
}

static constexpr int64_t kShortest = 4;  // steps that are worth a transposition

// The same for `depth` < L steps, of a whole vector of lanes and step 1.
template <class T>
static inline void transpose_short(T* panel, int64_t width, const T* const* from, int64_t depth) {
    constexpr int L = kLanes<T>;
    Vec<T> rows[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) rows[i] = load_first(from[i], depth);
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
        if (i < depth) store(panel + i * width, rows[i]);
}

template <class T, bool Whole, int Step>
static void transposed_lanes(T* panel, int64_t width, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end,
                             int64_t count) {
    constexpr int L = kLanes<T>;
    int64_t first = 0, last = depth;  // where all lanes have data
    for (int64_t i = 0; i < count; ++i) {
        if (begin[i] > first) first = begin[i];
        if (end[i] < last) last = end[i];
    }
    if (Step == 2) --last;  // the last element's neighbour may not exist
    int64_t k = first;
    for (; k + L <= last; k += L) transpose_square<T, Whole, Step>(panel + k * width, width, from, k, count);
    if (k < last && last - first >= L) {
        transpose_square<T, Whole, Step>(panel + (last - L) * width, width, from, last - L, count);
        k = last;
    } else if (Whole && Step == 1 && last - k >= kShortest) {  // such as the nine taps of a kernel
        const T* at[L];
        for (int i = 0; i < L; ++i) at[i] = from[i] + k;
        transpose_short<T>(panel + k * width, width, at, last - k);
        k = last;
    }
    if (k < first) k = first;
    for (int64_t i = 0; i < count; ++i) {  // the rest, element by element
        T* place = panel + i;
        const T* source = from[i];
        const int64_t head = first < depth ? first : depth;
        for (int64_t q = 0; q < head; ++q) place[q * width] = q >= begin[i] && q < end[i] ? source[q * Step] : T(0);
        for (int64_t q = k > head ? k : head; q < depth; ++q) place[q * width] = q >= begin[i] && q < end[i] ? source[q * Step] : T(0);
    }
}

template <class T, int Step>
static void transposed(T* panel, int64_t width, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end,
                       int64_t count) {
    constexpr int L = kLanes<T>;
    int64_t j = 0;
    for (; j + L <= count; j += L) transposed_lanes<T, true, Step>(panel + j, width, depth, from + j, begin + j, end + j, L);
    if (j < count) transposed_lanes<T, false, Step>(panel + j, width, depth, from + j, begin + j, end + j, count - j);
}

template <class T>
static void walked(T* panel, int64_t width, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end, int64_t count,
                   int64_t step) {
    if (step == 1)
        transposed<T, 1>(panel, width, depth, from, begin, end, count);
    else if (step == 2)
        transposed<T, 2>(panel, width, depth, from, begin, end, count);
    else
        gathered(panel, width, depth, from, begin, end, count, step);
}

template <class T>
static bool finite(const T* from, int64_t count) {
    Vec<T> zero[4] = {};  // stays zero unless something times zero is NaN
    int64_t j = 0;
    for (; j + 4 * kLanes<T> <= count; j += 4 * kLanes<T>) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) zero[i] = fma(load(from + j + i * kLanes<T>), Vec<T>{}, zero[i]);
    }
    for (; j < count; j += kLanes<T>) zero[0] = fma(load(from + j), Vec<T>{}, zero[0]);
    const Vec<T> sum = (zero[0] + zero[1]) + (zero[2] + zero[3]);
    T total = 0;
    for (int i = 0; i < kLanes<T>; ++i) total += sum[i];
    return total == total;
}
