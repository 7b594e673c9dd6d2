// Body of the plane kernels (kernels/planes.h) for one ISA; included by kernels/isa/planes_<isa>.cc.

// The lanes whose bit is set, from memory; the others are zero and are not read.
template <class T>
static inline Vec<T> load_set(const T* from, uint32_t set) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        return _mm512_maskz_loadu_ps(static_cast<__mmask16>(set), from);
    else
        return _mm512_maskz_loadu_pd(static_cast<__mmask8>(set), from);
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) {
        const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        return _mm256_maskload_ps(from, _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(set)), bits), bits));
    } else {
        const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
        return _mm256_maskload_pd(from, _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(set), bits), bits));
    }
#else
    T lanes[kLanes<T>];
    for (int j = 0; j < kLanes<T>; ++j) lanes[j] = (set >> j & 1) != 0 ? from[j] : T(0);
    return load(lanes);
#endif
}

template <class V, int... I>
static inline V every_second(V a, V b, Indices<I...>) {
    return __builtin_shufflevector(a, b, (2 * I)...);
}
template <class V, int... I>
static inline V every_second_odd(V a, V b, Indices<I...>) {
    return __builtin_shufflevector(a, b, (2 * I + 1)...);
}
template <class V, int... I>
static inline V zip_low(V a, V b, Indices<I...>) {
    return __builtin_shufflevector(a, b, (I / 2 + I % 2 * static_cast<int>(sizeof...(I)))...);
}
template <class V, int... I>
static inline V zip_high(V a, V b, Indices<I...>) {
    constexpr int L = sizeof...(I);
    return __builtin_shufflevector(a, b, (L / 2 + I / 2 + I % 2 * L)...);
}

// Vector v of a row of outputs' inputs.
template <class T, int Step, bool Masked>
static inline __attribute__((always_inline)) Vec<T> plane_vector(const T* row, const uint32_t* mask, int v) {
    constexpr int L = kLanes<T>;
    if constexpr (Step == 1) {
        return Masked ? load_set(row + v * L, mask[v]) : load(row + v * L);
    } else {
        const T* from = row + 2 * v * L;
        const Vec<T> low = Masked ? load_set(from, mask[2 * v]) : load(from);
        const Vec<T> high = Masked ? load_set(from + L, mask[2 * v + 1]) : load(from + L);
        return every_second(low, high, typename MakeIndices<L>::type());
    }
}

// The even and the odd lanes of the inputs of vector v, for two shifts that differ by one.
template <class T, bool Masked>
static inline __attribute__((always_inline)) void plane_pair(const T* row, const uint32_t* mask, int v, Vec<T>* even, Vec<T>* odd) {
    constexpr int L = kLanes<T>;
    const T* from = row + 2 * v * L;
    const Vec<T> low = Masked ? load_set(from, mask[2 * v]) : load(from);
    const Vec<T> high = Masked ? load_set(from + L, mask[2 * v + 1]) : load(from + L);
    *even = every_second(low, high, typename MakeIndices<L>::type());
    *odd = every_second_odd(low, high, typename MakeIndices<L>::type());
}

template <class T, int Rows, int Vectors, int Taps, int Step, bool Masked>
static inline __attribute__((always_inline)) void plane_as(const PlaneArguments<T>& a) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    const T* const* row = a.row;
    const T* weight = a.weight;
    for (int64_t g = 0; g < a.groups; ++g, row += Rows + Taps - 1) {
        const uint32_t* mask = a.mask;
        for (int64_t q = 0; q < a.shifts; ++q, weight += Taps, mask += Vectors * Step) {
            const int64_t shift = a.shift[q];
            if (Step == 2 && q + 1 < a.shifts && a.shift[q + 1] == shift + 1) {  // the next shift reads the lanes between
                Vec<T> scale[2][Taps];
#pragma GCC unroll 8
                for (int h = 0; h < Taps; ++h) {
                    scale[0][h] = splat(weight[h]);
                    scale[1][h] = splat(weight[Taps + h]);
                }
#pragma GCC unroll 16
                for (int j = 0; j < Rows + Taps - 1; ++j) {
                    if (row[j] == nullptr) continue;
#pragma GCC unroll 8
                    for (int v = 0; v < Vectors; ++v) {
                        Vec<T> even, odd;
                        plane_pair<T, Masked>(row[j] + shift, mask, v, &even, &odd);
                        keep_in_register(even);
                        keep_in_register(odd);
#pragma GCC unroll 8
                        for (int h = 0; h < Taps; ++h)
                            if (j - h >= 0 && j - h < Rows) sum[j - h][v] = fma(scale[0][h], even, sum[j - h][v]);
#pragma GCC unroll 8
                        for (int h = 0; h < Taps; ++h)
                            if (j - h >= 0 && j - h < Rows) sum[j - h][v] = fma(scale[1][h], odd, sum[j - h][v]);
                    }
                }
                ++q;
                weight += Taps;
                mask += Vectors * Step;
                continue;
            }
            Vec<T> scale[Taps];
#pragma GCC unroll 8
            for (int h = 0; h < Taps; ++h) scale[h] = splat(weight[h]);
#pragma GCC unroll 16
            for (int j = 0; j < Rows + Taps - 1; ++j) {
                if (row[j] == nullptr) continue;
                Vec<T> value[Vectors];
#pragma GCC unroll 8
                for (int v = 0; v < Vectors; ++v) value[v] = plane_vector<T, Step, Masked>(row[j] + shift, mask, v);
                if constexpr (Taps > 1) {
#pragma GCC unroll 8
                    for (int v = 0; v < Vectors; ++v) keep_in_register(value[v]);
                }
#pragma GCC unroll 8
                for (int h = 0; h < Taps; ++h) {
                    if (j - h < 0 || j - h >= Rows) continue;
#pragma GCC unroll 8
                    for (int v = 0; v < Vectors; ++v) sum[j - h][v] = fma(scale[h], value[v], sum[j - h][v]);
                }
            }
        }
    }
    const int64_t rows = a.rows, width = a.width, out_step = a.out_step;
    const bool accumulate = a.accumulate;
    T* out = a.out;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        if (r >= rows) break;
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
            T* place = out + r * out_step + v * L;
            const int64_t left = width - v * L;
            if (left >= L)
                store(place, accumulate ? sum[r][v] + load<T>(place) : sum[r][v]);
            else if (left > 0)
                store_first(place, accumulate ? sum[r][v] + load_first<T>(place, left) : sum[r][v], left);
        }
    }
}

template <class T, int Rows, int Vectors, int Taps, int Step>
static void plane(const PlaneArguments<T>& arguments) {
    if (arguments.mask == nullptr)
        plane_as<T, Rows, Vectors, Taps, Step, false>(arguments);
    else
        plane_as<T, Rows, Vectors, Taps, Step, true>(arguments);
}

template <class T>
static void interleave(const T* even, const T* odd, T* out, int64_t outputs) {
    constexpr int L = kLanes<T>;
    for (int64_t j = 0; j < outputs; j += 2 * L, even += L, odd += L, out += 2 * L) {
        const Vec<T> a = load(even), b = load(odd);
        const Vec<T> low = zip_low(a, b, typename MakeIndices<L>::type()), high = zip_high(a, b, typename MakeIndices<L>::type());
        const int64_t left = outputs - j;
        if (left >= L)
            store(out, low);
        else
            store_first(out, low, left);
        if (left >= 2 * L)
            store(out + L, high);
        else if (left > L)
            store_first(out + L, high, left - L);
    }
}
