// Vectors of the ISA a file is built for, by the compiler's vector types. Included inside a namespace of its own by each
// ISA-flagged file. kLanes<T> elements in a vector; fma is one rounding wherever the ISA has it.

#if defined(__AVX512F__)
static constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
static constexpr int kVectorBytes = 32;
#else
static constexpr int kVectorBytes = 16;
#endif

template <class T>
static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
    typedef float type __attribute__((vector_size(kVectorBytes)));
    typedef float loose __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
    typedef double type __attribute__((vector_size(kVectorBytes)));
    typedef double loose __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};
template <class T>
using Vec = typename VectorOf<T>::type;

template <class T>
static inline Vec<T> load(const T* from) {  // any alignment
    return *reinterpret_cast<const typename VectorOf<T>::loose*>(from);
}
template <class T>
static inline void store(T* to, Vec<T> value) {  // any alignment
    *reinterpret_cast<typename VectorOf<T>::loose*>(to) = value;
}
template <class T>
static inline Vec<T> splat(T value) {
    return value - Vec<T>{};  // x - 0 keeps the sign of zero and NaN; compilers turn it into a broadcast
}

#if defined(__AVX512F__)
static inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm512_fmadd_ps(a, b, c); }
static inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__AVX2__)
static inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm256_fmadd_pd(a, b, c); }
#else
template <class V>
static inline V fma(V a, V b, V c) {
    return a * b + c;  // NEON: contracted to one instruction (kernels are built with -ffp-contract=fast)
}
#endif

// The first `count` lanes (0 < count <= lanes) from or to memory; nothing beyond them is touched. Missing lanes read as zero.
template <class T>
static inline Vec<T> load_first(const T* from, int64_t count) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        return _mm512_maskz_loadu_ps(static_cast<__mmask16>(0xffffu >> (16 - count)), from);
    else
        return _mm512_maskz_loadu_pd(static_cast<__mmask8>(0xffu >> (8 - count)), from);
#else
    T lanes[kLanes<T>] = {};
    for (int64_t j = 0; j < count; ++j) lanes[j] = from[j];
    return load(lanes);
#endif
}
template <class T>
static inline void store_first(T* to, Vec<T> value, int64_t count) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        _mm512_mask_storeu_ps(to, static_cast<__mmask16>(0xffffu >> (16 - count)), value);
    else
        _mm512_mask_storeu_pd(to, static_cast<__mmask8>(0xffu >> (8 - count)), value);
#else
    T lanes[kLanes<T>];
    store(lanes, value);
    for (int64_t j = 0; j < count; ++j) to[j] = lanes[j];
#endif
}
