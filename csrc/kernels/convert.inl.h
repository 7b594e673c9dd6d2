// Body of the converting copies (kernels/convert.h) for one ISA; included by kernels/isa/convert_<isa>.cc inside its namespace,
// after halves.inl.h.

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
