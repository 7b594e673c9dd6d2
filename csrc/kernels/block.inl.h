// Body of the block kernels (kernels/block.h) for one ISA; included by kernels/isa/block_<isa>.cc inside its namespace.

template <class T, int Rows, int Vectors>
static void block(const BlockArguments<T>& arguments) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    const T* const* a = arguments.a;
    for (int64_t s = 0; s < arguments.segments; ++s, a += Rows) {
        const T* row[Rows];
#pragma GCC unroll 8
        for (int m = 0; m < Rows; ++m) row[m] = a[m];
        const T* b = arguments.b[s] + arguments.b_shift;
        int64_t at = arguments.a_shift;
        for (int64_t i = 0; i < arguments.steps; ++i, at += arguments.a_step, b += arguments.b_step) {
            // One index for all rows, where compilers would rather advance every pointer; and the steps stay in memory, where they
            // would rather move them to and from vector registers: row pointers need all others.
            __asm__("" : "+r"(at) : : "memory");
            Vec<T> operand[Vectors];
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) {
                operand[v] = load(b + v * L);
                if constexpr (Rows > 1) keep_in_register(operand[v]);
            }
#pragma GCC unroll 8
            for (int m = 0; m < Rows; ++m) {
                const Vec<T> scale = splat(row[m][at]);
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) sum[m][v] = fma(scale, operand[v], sum[m][v]);
            }
        }
    }
    const int64_t tail = arguments.tail;
#pragma GCC unroll 8
    for (int m = 0; m < Rows; ++m) {
        T* c = arguments.c[m];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v, c += L) {
            if (v + 1 < Vectors || tail == L)
                store(c, arguments.accumulate ? sum[m][v] + load<T>(c) : sum[m][v]);
            else
                store_first(c, arguments.accumulate ? sum[m][v] + load_first<T>(c, tail) : sum[m][v], tail);
        }
    }
}
