// Body of the converting copies (kernels/convert.h) for one ISA; included by kernels/isa/convert_<isa>.cc inside its namespace,
// after element.inl.h.

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

template <class T, class From>
static void widen_run(int64_t count, T* __restrict__ to, const void* from_, int64_t step) {
    const From* __restrict__ from = static_cast<const From*>(from_);
    int64_t j = 0;
    if (step == 1) {
#if defined(__AVX512F__)
        if constexpr (AreHalves<T,
                                From>::value) {  // loads do not meet what was stored under masks, even full ones, before it is in the cache
            for (; j + 16 <= count; j += 16) _mm512_storeu_ps(to + j, load_halves(from + j, 0xffff));
            if (j < count) _mm512_mask_storeu_ps(to + j, first_of(count - j), load_halves(from + j, first_of(count - j)));
            return;
        }
#elif defined(__F16C__)
        if constexpr (sizeof(T) == 4 && AreSame<From, Half>::value)
            for (; j + 8 <= count; j += 8)
                _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j))));
#endif
        for (; j < count; ++j) to[j] = static_cast<T>(widen(from[j]));
    } else {
        for (; j < count; ++j) to[j] = static_cast<T>(widen(from[j * step]));
    }
}

template <class T, class From, Part Which>
static void take_part(int64_t count, T* __restrict__ to, const void* from_, int64_t step) {
    const Complex<From>* __restrict__ from = static_cast<const Complex<From>*>(from_);
    auto part = [](Complex<From> z) {
        const T re = static_cast<T>(z.re), im = static_cast<T>(z.im);
        return Which == Part::real ? re : Which == Part::imaginary ? im : Which == Part::sum ? re + im : -im;
    };
    if (step == 1)
        for (int64_t j = 0; j < count; ++j) to[j] = part(from[j]);
    else
        for (int64_t j = 0; j < count; ++j) to[j] = part(from[j * step]);
}

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

template <class T, class To>
static void narrow_run(int64_t count, void* to_, int64_t step, const T* __restrict__ from) {
    To* __restrict__ to = static_cast<To*>(to_);
    int64_t j = 0;
    if (step == 1) {
#if defined(__AVX512F__)
        if constexpr (AreHalves<T, To>::value) {
            for (; j + 16 <= count; j += 16) store_halves(to + j, _mm512_loadu_ps(from + j), 0xffff);
            if (j < count) store_halves(to + j, _mm512_maskz_loadu_ps(first_of(count - j), from + j), first_of(count - j));
            return;
        }
#elif defined(__F16C__)
        if constexpr (sizeof(T) == 4 && AreSame<To, Half>::value)
            for (; j + 8 <= count; j += 8)
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
#endif
        for (; j < count; ++j) convert(from[j], to[j]);
    } else {
        for (; j < count; ++j) convert(from[j], to[j * step]);
    }
}

template <class T, class To>
static bool join_run(int64_t count, void* to_, int64_t step, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c) {
    Complex<To>* __restrict__ to = static_cast<Complex<To>*>(to_);
    T zero = 0;  // stays zero unless something times zero is NaN
    for (int64_t j = 0; j < count; ++j) {
        const T re = c == nullptr ? a[j] : a[j] - b[j], im = c == nullptr ? b[j] : c[j] - a[j] - b[j];
        to[j * step] = {static_cast<To>(re), static_cast<To>(im)};
        zero += re * T(0) + im * T(0);
    }
    return zero == zero;
}

template <class T, class From>
static WidenKernel<T> part_kernel(Part part) {
    switch (part) {
        case Part::real: return take_part<T, From, Part::real>;
        case Part::imaginary: return take_part<T, From, Part::imaginary>;
        case Part::minus_imaginary: return take_part<T, From, Part::minus_imaginary>;
        case Part::sum: return take_part<T, From, Part::sum>;
        default: return nullptr;
    }
}

template <class T>
static WidenKernel<T> select_widen(Dtype dtype, Part part) {
    if (dtype == Dtype::c64) return part_kernel<T, float>(part);
    if (dtype == Dtype::c128) return sizeof(T) == 8 ? part_kernel<T, double>(part) : nullptr;
    if (part != Part::whole) return nullptr;
    switch (dtype) {
        case Dtype::f32: return widen_run<T, float>;
        case Dtype::f64: return sizeof(T) == 8 ? widen_run<T, double> : nullptr;
        case Dtype::f16: return widen_run<T, Half>;
        case Dtype::bf16: return widen_run<T, Brain>;
        case Dtype::i8: return widen_run<T, int8_t>;
        case Dtype::i16: return widen_run<T, int16_t>;
        case Dtype::i32: return widen_run<T, int32_t>;
        case Dtype::i64: return widen_run<T, int64_t>;
        case Dtype::u8: return widen_run<T, uint8_t>;
        case Dtype::u16: return widen_run<T, uint16_t>;
        case Dtype::u32: return widen_run<T, uint32_t>;
        case Dtype::u64: return widen_run<T, uint64_t>;
        default: return nullptr;
    }
}

template <class T>
static NarrowKernel<T> select_narrow(Dtype dtype) {
    switch (dtype) {
        case Dtype::f32: return narrow_run<T, float>;
        case Dtype::f64: return narrow_run<T, double>;
        case Dtype::f16: return narrow_run<T, Half>;
        case Dtype::bf16: return narrow_run<T, Brain>;
        case Dtype::i8: return narrow_run<T, int8_t>;
        case Dtype::i16: return narrow_run<T, int16_t>;
        case Dtype::i32: return narrow_run<T, int32_t>;
        case Dtype::i64: return narrow_run<T, int64_t>;
        case Dtype::u8: return narrow_run<T, uint8_t>;
        case Dtype::u16: return narrow_run<T, uint16_t>;
        case Dtype::u32: return narrow_run<T, uint32_t>;
        case Dtype::u64: return narrow_run<T, uint64_t>;
        default: return nullptr;
    }
}

template <class T>
static JoinKernel<T> select_join(Dtype dtype) {
    return dtype == Dtype::c64 ? join_run<T, float> : dtype == Dtype::c128 ? join_run<T, double> : nullptr;
}
