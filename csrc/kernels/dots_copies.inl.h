// The copies that lay operands of dot products out, by 16 x 16 transpositions in registers.

template <class T>
struct Sixteen {
    typedef T type __attribute__((vector_size(16 * sizeof(T))));
};
template <class T>
using Row16 = typename Sixteen<T>::type;

static inline Row16<uint8_t> load_some(const uint8_t* from, __mmask16 mask) {
    return reinterpret_cast<Row16<uint8_t>>(_mm_maskz_loadu_epi8(mask, from));
}
static inline Row16<uint16_t> load_some(const uint16_t* from, __mmask16 mask) {
    return reinterpret_cast<Row16<uint16_t>>(_mm256_maskz_loadu_epi16(mask, from));
}
static inline Row16<uint32_t> load_some(const uint32_t* from, __mmask16 mask) {
    return reinterpret_cast<Row16<uint32_t>>(_mm512_maskz_loadu_epi32(mask, from));
}
static inline void store_some(uint8_t* to, Row16<uint8_t> row, __mmask16 mask) {
    _mm_mask_storeu_epi8(to, mask, reinterpret_cast<__m128i>(row));
}
static inline void store_some(uint16_t* to, Row16<uint16_t> row, __mmask16 mask) {
    _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(row));
}
static inline void store_some(uint32_t* to, Row16<uint32_t> row, __mmask16 mask) {
    _mm512_mask_storeu_epi32(to, mask, reinterpret_cast<__m512i>(row));
}

// Every second element.
static inline Row16<uint16_t> load_spaced(const uint16_t* from, __mmask16 mask) {
    const __mmask32 even = _pdep_u32(mask, 0x55555555u);
    return reinterpret_cast<Row16<uint16_t>>(_mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_loadu_epi16(even, from)));
}

// One stage of the transposition: exchanges the off-diagonal blocks of `Half` elements of rows a and b.
template <int Half, class V, int... I>
static inline void exchange(V& a, V& b, Indices<I...>) {
    const V low = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I : 16 + I - Half)...);
    const V high = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I + Half : 16 + I)...);
    a = low;
    b = high;
}
template <int Half, class V>
static inline void exchange_all(V (&rows)[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if ((i & Half) == 0) exchange<Half>(rows[i], rows[i + Half], MakeIndices<16>::type());
}

template <int Spacing, class T>
static inline void transpose_block(T* to, int64_t to_step, const T* from, int64_t from_step, int rows, int columns) {
    const __mmask16 across = static_cast<__mmask16>(0xffffu >> (16 - columns)), along = static_cast<__mmask16>(0xffffu >> (16 - rows));
    Row16<T> row[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        row[i] = Row16<T>{};
        if (i >= rows) continue;
        if constexpr (Spacing == 1)
            row[i] = load_some(from + i * from_step, across);
        else
            row[i] = load_spaced(from + i * from_step, across);
    }
    exchange_all<8>(row);
    exchange_all<4>(row);
    exchange_all<2>(row);
    exchange_all<1>(row);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if (i < columns) store_some(to + i * to_step, row[i], along);
}

template <int Spacing, class T>
static void transpose_all(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += 16) {
        const int high = static_cast<int>(rows - i < 16 ? rows - i : 16);
        for (int64_t j = 0; j < columns; j += 16) {
            const int wide = static_cast<int>(columns - j < 16 ? columns - j : 16);
            transpose_block<Spacing>(to + j * to_step + i, to_step, from + i * from_step + j * Spacing, from_step, high, wide);
        }
    }
}

static void transpose(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t spacing, int64_t rows, int64_t columns,
                      int size) {
    if (size == 1)
        transpose_all<1>(static_cast<uint8_t*>(to), to_step, static_cast<const uint8_t*>(from), from_step, rows, columns);
    else if (size == 4)
        transpose_all<1>(static_cast<uint32_t*>(to), to_step, static_cast<const uint32_t*>(from), from_step, rows, columns);
    else if (spacing == 1)
        transpose_all<1>(static_cast<uint16_t*>(to), to_step, static_cast<const uint16_t*>(from), from_step, rows, columns);
    else
        transpose_all<2>(static_cast<uint16_t*>(to), to_step, static_cast<const uint16_t*>(from), from_step, rows, columns);
}

static void interleave(void* to, const void* const* rows, int size) {
    if (size == 2) {
        const __m512i a = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(rows[0])));
        const __m512i b = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(rows[1])));
        _mm512_storeu_si512(to, _mm512_or_si512(a, _mm512_maskz_slli_epi32(0xffff, b, 16)));
    } else {
        __m512i sum = _mm512_setzero_si512();
        for (int i = 3; i >= 0; --i) {
            const __m512i next = _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(static_cast<const __m128i*>(rows[i])));
            sum = _mm512_or_si512(_mm512_maskz_slli_epi32(0xffff, sum, 8), next);
        }
        _mm512_storeu_si512(to, sum);
    }
}

static uint32_t survey(const uint16_t* from, int64_t count, bool* subnormal) {
    __m512i largest = _mm512_setzero_si512();
    uint32_t tiny = 0;
    for (int64_t j = 0; j < count; j += 32) {
        const int64_t left = count - j;
        const __mmask32 mask = left >= 32 ? 0xffffffffu : (1u << left) - 1u;
        const __m512i magnitude = _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, from + j), _mm512_set1_epi16(0x7fff));
        largest = _mm512_maskz_max_epu16(0xffffffffu, largest, magnitude);
        // 1 to 0x7f: less one, they are the smallest numbers
        tiny |= _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)), _mm512_set1_epi16(0x7f));
    }
    uint16_t lanes[32];
    _mm512_storeu_si512(lanes, largest);
    uint32_t most = 0;
    for (int i = 0; i < 32; ++i) most = lanes[i] > most ? lanes[i] : most;
    *subnormal = tiny != 0;
    return most;
}

__attribute__((target("avx512bf16"))) static void narrow(uint16_t* to, const float* from, int64_t count) {
    for (int64_t j = 0; j < count; j += 16) {
        const __mmask16 mask = count - j >= 16 ? 0xffff : static_cast<__mmask16>((1u << (count - j)) - 1u);
        _mm256_mask_storeu_epi16(to + j, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + j))));
    }
}
