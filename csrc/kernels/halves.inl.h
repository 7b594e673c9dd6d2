// Half types: rounding to them, and whole vectors of them. Included inside a namespace of its own by ISA-flagged files, after
// element.inl.h.

// Rounds to the nearest, ties to even, whatever the thread's mode. Written without branches, so that it vectorises.
static inline Brain to_brain(float value) {
    const uint32_t bits = bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}
static inline Half to_half(float value) {
    const uint32_t bits = bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below the normal halves: shifted as an integer by what the exponent says, with the lost bits gathered in `rest`.
    const uint32_t exponent = magnitude >> 23, shift = exponent < 102u ? 25u : 126u - (exponent > 112u ? 112u : exponent);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t quotient = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
    const uint32_t up = rest > tie || (rest == tie && (quotient & 1u) != 0) ? 1u : 0u;
    const uint32_t tiny = exponent < 102u ? 0u : quotient + up;
    const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return {static_cast<uint16_t>(sign | (magnitude >= 0x477ff000u ? large : magnitude >= 0x38800000u ? normal : tiny))};
}

template <class A, class B>
struct AreSame {
    static constexpr bool value = false;
};
template <class A>
struct AreSame<A, A> {
    static constexpr bool value = true;
};

#if defined(__AVX512F__)
// The first `count` of 16 half numbers, widened; and back, to the nearest.
static inline __m512 load_halves(const Half* from, __mmask16 some) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_maskz_loadu_epi16(some, from));
}
static inline __m512 load_halves(const Brain* from, __mmask16 some) {
    const __m512i bits = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(some, from));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, bits, 16));
}
static inline void store_halves(Half* to, __m512 value, __mmask16 some) {
    _mm256_mask_storeu_epi16(to, some, _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT));
}
static inline void store_halves(Brain* to, __m512 value, __mmask16 some) {  // as to_brain
    const __m512i bits = _mm512_castps_si512(value);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)), nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m512i sum = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    sum = _mm512_mask_add_epi32(sum, odd, sum, _mm512_set1_epi32(1));
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_mask_storeu_epi16(to, some, _mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_srli_epi32(0xffff, sum, 16)));
}
static inline __mmask16 first_of(int64_t count) { return count >= 16 ? 0xffff : static_cast<__mmask16>(0xffffu >> (16 - count)); }

template <class T, class U>
struct AreHalves {  // of float and a half type
    static constexpr bool value = sizeof(T) == 4 && (AreSame<U, Half>::value || AreSame<U, Brain>::value);
};
#endif

static inline void convert(float value, float& to) { to = value; }
static inline void convert(float value, double& to) { to = static_cast<double>(value); }
static inline void convert(double value, float& to) { to = static_cast<float>(value); }
static inline void convert(double value, double& to) { to = value; }
static inline void convert(float value, Half& to) { to = to_half(value); }
static inline void convert(float value, Brain& to) { to = to_brain(value); }
static inline void convert(double value, Half& to) { to = to_half(static_cast<float>(value)); }
static inline void convert(double value, Brain& to) { to = to_brain(static_cast<float>(value)); }
template <class To>
static inline void convert(float value, To& to) {  // whole numbers below 2^24
    to = static_cast<To>(static_cast<int32_t>(value));
}
template <class To>
static inline void convert(double value, To& to) {  // whole numbers below 2^53
    to = static_cast<To>(static_cast<int64_t>(value));
}
