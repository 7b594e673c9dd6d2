// Body of the grouped kernels (kernels/grouped.h) for one ISA; included by kernels/isa/grouped_<isa>.cc inside its namespace.

template <class T, int Rows>
static inline void store_lanes(const LanesArguments<T>& o, const Vec<T> (&total)[Rows]) {
    T* out = o.out;
#pragma GCC unroll 32
    for (int t = 0; t < Rows; ++t, out += o.out_step) store(out, o.accumulate ? total[t] + load<T>(out) : total[t]);
}

// Whole: the inputs of neighbouring rows are neighbouring vectors, at distances that instructions hold.
template <class T, int Rows, bool Whole>
static void lanes_by(const LanesArguments<T>& o) {
    constexpr int L = kLanes<T>;
    const int64_t move = Whole ? L : o.step;
    const T* weight = o.weight;
    Vec<T> total[Rows] = {};
    for (int64_t k = 0; k < o.depth; ++k, weight += L) {
        const Vec<T> scale = load(weight);
        const T* from = o.in + o.offset[k];
        if (k < o.ahead.count) __builtin_prefetch(o.ahead.first + k * o.ahead.step);
#pragma GCC unroll 32
        for (int t = 0; t < Rows; ++t) total[t] = fma(scale, load(from + t * move), total[t]);
    }
    store_lanes<T, Rows>(o, total);
}

template <class T, int Rows>
static void lanes(const LanesArguments<T>& o) {
    if (o.step == kLanes<T>)
        lanes_by<T, Rows, true>(o);
    else
        lanes_by<T, Rows, false>(o);
}

// Four rows share a pointer: there are not enough of them for all.
template <class T, int Rows>
static void same_lanes(const LanesArguments<T>& o) {
    constexpr int L = kLanes<T>, Fours = (Rows + 3) / 4;
    const T* row[Fours];
    for (int i = 0; i < Fours; ++i) row[i] = o.in + 4 * i * o.step;
    const int64_t step = o.step;
    const T* weight = o.weight;
    Vec<T> total[Rows] = {};
    for (int64_t k = 0; k < o.depth; ++k, weight += L) {
        const Vec<T> scale = load(weight);
        const int64_t at[4] = {o.offset[k], o.offset[k] + step, o.offset[k] + 2 * step, o.offset[k] + 3 * step};
#pragma GCC unroll 32
        for (int t = 0; t < Rows; ++t) total[t] = fma(scale, splat(row[t / 4][at[t % 4]]), total[t]);
    }
    store_lanes<T, Rows>(o, total);
}

template <class T, int Rows, int Taps>
static void lane_sums(int64_t count, const T* dy, int64_t dy_step, const int64_t* offset, const T* in, int64_t step, T* sum,
                      const Ahead<T>& ahead) {
    constexpr int L = kLanes<T>;
    Vec<T> total[Rows][Taps];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int q = 0; q < Taps; ++q) total[r][q] = load<T>(sum + (r * Taps + q) * L);
    }
    int64_t row[Rows];
    for (int r = 0; r < Rows; ++r) row[r] = offset[r];
    for (int64_t x = 0; x < count; ++x, dy += dy_step, in += step) {
        const Vec<T> scale = load(dy);
        if (x < ahead.count) __builtin_prefetch(ahead.first + x * ahead.step);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
            for (int q = 0; q < Taps; ++q) total[r][q] = fma(scale, load(in + row[r] + q * L), total[r][q]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int q = 0; q < Taps; ++q) store(sum + (r * Taps + q) * L, total[r][q]);
    }
}

template <class T, int Rows, int Vectors>
static void pixels(int64_t depth, const int64_t* offset, const T* weight, const T* in, T* out, int64_t out_step) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    for (int64_t k = 0; k < depth; ++k, weight += Rows) {
        const T* from = in + offset[k];
        Vec<T> value[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) value[v] = load(from + v * L);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Vec<T> scale = splat(weight[r]);
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(scale, value[v], sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) store(out + r * out_step + v * L, sum[r][v]);
    }
}

// Lanes by run-time indices. Where the ISA has no such permutation, lanes go through memory.
#if defined(__AVX512F__)
#define FASTCONV_PERMUTES 1
template <class T>
struct Indices32 {
    __m512i value;
    explicit Indices32(const int32_t* from)
        : value(sizeof(T) == 4 ? _mm512_loadu_si512(from)
                               : _mm512_maskz_cvtepi32_epi64(0xff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))) {}
};
template <int Sources>
static inline __m512 pick(const __m512* source, const Indices32<float>& index) {
    if constexpr (Sources == 1) return _mm512_maskz_permutexvar_ps(0xffff, index.value, source[0]);
    if constexpr (Sources > 1) {
        const __m512 low = _mm512_permutex2var_ps(source[0], index.value, source[1]);
        if constexpr (Sources == 2) return low;
        if constexpr (Sources > 2) {
            const __m512 high = _mm512_permutex2var_ps(source[2], index.value, source[Sources - 1]);
            return _mm512_mask_mov_ps(low, _mm512_test_epi32_mask(index.value, _mm512_set1_epi32(32)), high);
        }
    }
}
template <int Sources>
static inline __m512d pick(const __m512d* source, const Indices32<double>& index) {
    if constexpr (Sources == 1) return _mm512_maskz_permutexvar_pd(0xff, index.value, source[0]);
    if constexpr (Sources > 1) {
        const __m512d low = _mm512_permutex2var_pd(source[0], index.value, source[1]);
        if constexpr (Sources == 2) return low;
        if constexpr (Sources > 2) {
            const __m512d high = _mm512_permutex2var_pd(source[2], index.value, source[Sources - 1]);
            return _mm512_mask_mov_pd(low, _mm512_test_epi64_mask(index.value, _mm512_set1_epi64(16)), high);
        }
    }
}
#elif defined(__AVX2__)
#define FASTCONV_PERMUTES 1
template <class T>
struct Indices32 {  // indices of 32-bit lanes within a source, and the source that each lane takes
    __m256i lane, source;
    explicit Indices32(const int32_t* from) {
        if constexpr (sizeof(T) == 4) {
            const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
            lane = index;  // the permutation reads three bits
            source = _mm256_srli_epi32(index, 3);
        } else {
            const __m256i index = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
            const __m256i first = _mm256_slli_epi64(index, 1);
            lane = _mm256_or_si256(first, _mm256_slli_epi64(_mm256_add_epi64(first, _mm256_set1_epi64x(1)), 32));
            source = _mm256_srli_epi64(index, 2);
            source = _mm256_or_si256(source, _mm256_slli_epi64(source, 32));
        }
    }
};
template <int Sources, class T, class V>
static inline V pick(const V* source, const Indices32<T>& index) {
    __m256 value = _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(source[0]), index.lane);
    for (int s = 1; s < Sources; ++s) {
        const __m256 other = _mm256_permutevar8x32_ps(reinterpret_cast<__m256>(source[s]), index.lane);
        value = _mm256_blendv_ps(value, other, _mm256_castsi256_ps(_mm256_cmpeq_epi32(index.source, _mm256_set1_epi32(s))));
    }
    return reinterpret_cast<V>(value);
}
#endif

#if defined(FASTCONV_PERMUTES)
template <class T, int Channels>
struct Places {
    Indices32<T> of[Channels];
};
template <class T, int... C>
static inline Places<T, sizeof...(C)> indices_of(const int32_t* index, Indices<C...>) {
    return {{Indices32<T>(index + C * kLanes<T>)...}};
}

template <class T, int Sources, int Channels>
static void spread_channels(T* to, int64_t channel_step, const T* from, int64_t step, int64_t count, const int32_t* index, int64_t last) {
    constexpr int L = kLanes<T>;
    const auto place = indices_of<T>(index, typename MakeIndices<Channels>::type());
    for (int64_t i = 0; i < count; ++i, from += step, to += L) {
        Vec<T> source[Sources];
        for (int s = 0; s < Sources - 1; ++s) source[s] = load(from + s * L);
        const T* end = from + (Sources - 1) * L;
        source[Sources - 1] = last == L ? load(end) : load_first(end, last);
#pragma GCC unroll 4
        for (int c = 0; c < Channels; ++c) store(to + c * channel_step, Vec<T>(pick<Sources>(source, place.of[c])));
    }
}

template <class T, int Sources>
static void spread_from(T* to, int64_t channel_step, int64_t channels, const T* from, int64_t step, int64_t count, const int32_t* index,
                        int64_t last) {
    constexpr int L = kLanes<T>;
    for (; channels >= 4; channels -= 4, index += 4 * L, to += 4 * channel_step)
        spread_channels<T, Sources, 4>(to, channel_step, from, step, count, index, last);
    switch (channels) {
        case 3: return spread_channels<T, Sources, 3>(to, channel_step, from, step, count, index, last);
        case 2: return spread_channels<T, Sources, 2>(to, channel_step, from, step, count, index, last);
        case 1: return spread_channels<T, Sources, 1>(to, channel_step, from, step, count, index, last);
        default: return;
    }
}

template <class T>
static void spread(T* to, int64_t channel_step, int64_t channels, const T* from, int64_t step, int64_t count, const int32_t* index,
                   int sources, int64_t last) {
    switch (sources) {
        case 1: return spread_from<T, 1>(to, channel_step, channels, from, step, count, index, last);
        case 2: return spread_from<T, 2>(to, channel_step, channels, from, step, count, index, last);
        case 3: return spread_from<T, 3>(to, channel_step, channels, from, step, count, index, last);
        default: return spread_from<T, 4>(to, channel_step, channels, from, step, count, index, last);
    }
}
#else
template <class T>
static void spread(T* to, int64_t channel_step, int64_t channels, const T* from, int64_t step, int64_t count, const int32_t* index, int,
                   int64_t) {
    constexpr int L = kLanes<T>;
    for (int64_t i = 0; i < count; ++i, from += step, to += L)
        for (int64_t c = 0; c < channels; ++c) {
#pragma GCC unroll 8
            for (int j = 0; j < L; ++j) to[c * channel_step + j] = from[index[c * L + j]];
        }
}
#endif

template <class T>
static void copy(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count, int64_t width) {
    if (width == kLanes<T>) {
        for (int64_t i = 0; i < count; ++i) store(to + i * to_step, load(from + i * from_step));
    } else {
        for (int64_t i = 0; i < count; ++i) store_first(to + i * to_step, load_first(from + i * from_step, width), width);
    }
}

// The first `count` elements; whole vectors, of which the last may lie over the one before.
template <class T>
static inline void copy_run(T* to, const T* from, int64_t count) {
    constexpr int L = kLanes<T>;
    if (count < L) {
        if (count > 0) store_first(to, load_first(from, count), count);
        return;
    }
    int64_t j = 0;
    for (; j + L <= count; j += L) store(to + j, load(from + j));
    if (j < count) store(to + count - L, load(from + count - L));
}

template <class T>
static void pad_rows(T* to, int64_t pitch, const T* from, int64_t from_step, int64_t rows, int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r, to += pitch, from += from_step) {
        for (int64_t j = 0; j < begin; ++j) to[j] = T(0);
        copy_run(to + begin, from, end - begin);
        for (int64_t j = end; j < pitch; ++j) to[j] = T(0);
    }
}

template <class T>
static void copy_rows(T* to, int64_t to_step, const T* from, int64_t pitch, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r) copy_run(to + r * to_step, from + r * pitch, count);
}
