// Body of the stencil and dot kernels (kernels/stencil.h) for one ISA; included by kernels/isa/stencil_<isa>.cc.

// Holds a loaded vector in a register: compilers else load it again for every use, as the operand of each multiply-add.
template <class V>
static inline void hold(V& value) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#endif
}

template <class T, int Rows, int Vectors, int Taps>
static void stencil(const StencilArguments<T>& arguments) {
    constexpr int L = kLanes<T>;
    Vec<T> sum[Rows][Vectors] = {};
    const int64_t row_step = arguments.row_step;
    for (int64_t g = 0; g < arguments.groups; ++g) {
        const T* weight = arguments.weight[g];
        const T* plane = arguments.in + arguments.offset[g];
        for (int64_t q = 0; q < arguments.shifts; ++q, weight += Taps) {
            Vec<T> scale[Taps];
#pragma GCC unroll 8
            for (int h = 0; h < Taps; ++h) scale[h] = splat(weight[h]);
            const T* in = plane + arguments.shift[q];
#pragma GCC unroll 24
            for (int j = 0; j < Rows + Taps - 1; ++j, in += row_step) {
                Vec<T> value[Vectors];
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) {
                    value[v] = load(in + v * L);
                    hold(value[v]);
                }
#pragma GCC unroll 8
                for (int h = 0; h < Taps; ++h) {
                    const int r = j - h;
                    if (r < 0 || r >= Rows) continue;
#pragma GCC unroll 4
                    for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(scale[h], value[v], sum[r][v]);
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
            T* place = arguments.out + r * arguments.out_step + v * L;
            store(place, arguments.accumulate ? sum[r][v] + load<T>(place) : sum[r][v]);
        }
    }
}

template <class T, int Left, int Right>
static void dot(int64_t depth, const T* const* a, const T* const* b, T* sum) {
    constexpr int L = kLanes<T>;
    Vec<T> total[Left][Right];
#pragma GCC unroll 8
    for (int i = 0; i < Left; ++i) {
#pragma GCC unroll 24
        for (int j = 0; j < Right; ++j) total[i][j] = load<T>(sum + (i * Right + j) * L);
    }
    const T* left[Left];
    const T* right[Right];
    for (int i = 0; i < Left; ++i) left[i] = a[i];
    for (int j = 0; j < Right; ++j) right[j] = b[j];
    for (int64_t k = 0; k + L <= depth; k += L) {
        Vec<T> value[Left];
#pragma GCC unroll 8
        for (int i = 0; i < Left; ++i) value[i] = load(left[i] + k);
#pragma GCC unroll 24
        for (int j = 0; j < Right; ++j) {
            const Vec<T> other = load(right[j] + k);
#pragma GCC unroll 8
            for (int i = 0; i < Left; ++i) total[i][j] = fma(value[i], other, total[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Left; ++i) {
#pragma GCC unroll 24
        for (int j = 0; j < Right; ++j) store(sum + (i * Right + j) * L, total[i][j]);
    }
}
