// Dot products by AVX-512's instructions: 4 bytes of a row are broadcast against 16 columns.

static constexpr int kVectorRows = 12;  // times two blocks: 24 sums, two columns, and broadcasts from memory

struct BrainDots {
    typedef __m512 Sum;
    __attribute__((target("avx512bf16"))) static inline Sum add(Sum sum, __m512i a, __m512i b) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
};
struct ByteDots {  // unsigned times signed
    typedef __m512i Sum;
    __attribute__((target("avx512vnni"))) static inline Sum add(Sum sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

template <class Dots, int Rows, int Blocks>
__attribute__((target("avx512bf16,avx512vnni"))) static void vector_rows(const DotTile& t, const char* a, char* c) {
    typename Dots::Sum sum[Rows][Blocks] = {};
    if (t.accumulate)
        for (int m = 0; m < Rows; ++m)
            for (int v = 0; v < Blocks; ++v) __builtin_memcpy(&sum[m][v], c + (2 * m + v) * kDotBytes, kDotBytes);
    const char* b[2] = {t.b[0], t.b[1]};
    for (int64_t tap = 0; tap < t.taps; ++tap) {
        const char* from = a + t.offset[tap];
        for (int64_t i = 0; i < 16 * t.steps; ++i, from += 4) {
            __m512i columns[Blocks];
            for (int v = 0; v < Blocks; ++v) {
                columns[v] = _mm512_loadu_si512(b[v]);
                b[v] += kDotBytes;
            }
#pragma GCC unroll 12
            for (int m = 0; m < Rows; ++m) {
                int32_t bytes;
                __builtin_memcpy(&bytes, from + m * t.a_step, sizeof(bytes));
                const __m512i row = _mm512_set1_epi32(bytes);
#pragma GCC unroll 2
                for (int v = 0; v < Blocks; ++v) sum[m][v] = Dots::add(sum[m][v], row, columns[v]);
            }
        }
    }
#pragma GCC unroll 12
    for (int m = 0; m < Rows; ++m)
        for (int v = 0; v < Blocks; ++v) __builtin_memcpy(c + (2 * m + v) * kDotBytes, &sum[m][v], kDotBytes);
}

template <class Dots, int Blocks>
static void vector_segment(const DotTile& t, int rows, const char* a, char* c) {
    while (rows > 0) {
        const int taken = rows >= 12 ? 12 : rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
        switch (taken) {
            case 12: vector_rows<Dots, 12, Blocks>(t, a, c); break;
            case 8: vector_rows<Dots, 8, Blocks>(t, a, c); break;
            case 4: vector_rows<Dots, 4, Blocks>(t, a, c); break;
            case 2: vector_rows<Dots, 2, Blocks>(t, a, c); break;
            default: vector_rows<Dots, 1, Blocks>(t, a, c); break;
        }
        rows -= taken;
        a += taken * t.a_step;
        c += taken * 2 * kDotBytes;
    }
}

template <class Dots>
static void vector_run(const DotTile& t, int segments, int blocks, int rows) {
    for (int s = 0; s < segments; ++s) {
        char* c = static_cast<char*>(t.c) + s * kDotRows * 2 * kDotBytes;
        if (blocks > 1)
            vector_segment<Dots, 2>(t, rows, t.a[s], c);
        else
            vector_segment<Dots, 1>(t, rows, t.a[s], c);
    }
}

static void vector_begin(int) {}
static void vector_end() {}

static const DotKernels kVectorKernels[] = {
    {kVectorRows, 2, 0, vector_begin, vector_end, vector_run<BrainDots>},
    {kVectorRows, 2, 0x80, vector_begin, vector_end, vector_run<ByteDots>},
};
