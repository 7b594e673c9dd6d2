// Vectors of T whose elements lie in memory as M: T itself, or a half type where T is float and kHalfVectors says so. Included after
// vector.inl.h and halves.inl.h.

#if defined(__AVX2__)
static constexpr bool kHalfVectors = true;  // whole vectors are converted at once
#else
static constexpr bool kHalfVectors = false;
#endif

// Out of line: what happens at ends alone need not be part of every kernel.
template <class T, class M>
static __attribute__((noinline)) Vec<T> load_one_by_one(const M* from, int64_t count) {
    T lanes[kLanes<T>] = {};
    for (int64_t j = 0; j < count; ++j) lanes[j] = widen(from[j]);
    return load(lanes);
}
template <class T, class M>
static __attribute__((noinline)) void store_one_by_one(M* to, Vec<T> value, int64_t count) {
    T lanes[kLanes<T>];
    store(lanes, value);
    for (int64_t j = 0; j < count; ++j) convert(lanes[j], to[j]);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
static inline __m256 load_whole(const Half* from) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
static inline __m256 load_whole(const Brain* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
static inline void store_whole(Half* to, __m256 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
static inline void store_whole(Brain* to, __m256 value) {  // as to_brain
    const __m256i bits = _mm256_castps_si256(value), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}
#endif

// The first `count` lanes, from or to memory; nothing beyond them is touched. Missing lanes read as zero.
template <class T, class M>
static inline __attribute__((always_inline)) Vec<T> load_as(const M* from, int64_t count) {
    if constexpr (AreSame<T, M>::value) return count == kLanes<T> ? load(from) : load_first(from, count);
#if defined(__AVX512F__)
    else
        return load_halves(from, first_of(count));
#elif defined(__AVX2__)
    else
        return count == kLanes<T> ? load_whole(from) : load_one_by_one<T>(from, count);
#else
    else
        return load_one_by_one<T>(from, count);
#endif
}
template <class T, class M>
static inline __attribute__((always_inline)) void store_as(M* to, Vec<T> value, int64_t count) {
    if constexpr (AreSame<T, M>::value) {
        if (count == kLanes<T>)
            store(to, value);
        else
            store_first(to, value, count);
    } else {
#if defined(__AVX512F__)
        store_halves(to, value, first_of(count));
#elif defined(__AVX2__)
        if (count == kLanes<T>)
            store_whole(to, value);
        else
            store_one_by_one<T>(to, value, count);
#else
        store_one_by_one<T>(to, value, count);
#endif
    }
}
