// In-register transposition of a square of vectors. Included after vector.inl.h and indices.inl.h.

// One stage of an in-register transposition: exchanges the off-diagonal blocks of `Half` lanes of rows a and b.
template <int Half, class V, int... I>
static inline void exchange(V& a, V& b, Indices<I...>) {
    constexpr int L = sizeof...(I);
    const V low = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I : L + I - Half)...);
    const V high = __builtin_shufflevector(a, b, ((I & Half) == 0 ? I + Half : L + I)...);
    a = low;
    b = high;
}

template <int Half, class V, int L>
static inline void exchange_all(V (&rows)[L]) {
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
        if ((i & Half) == 0) exchange<Half>(rows[i], rows[i + Half], typename MakeIndices<L>::type());
}

// rows[i][j] <-> rows[j][i] for kLanes<T> vectors.
template <class T>
static inline void transpose(Vec<T> (&rows)[kLanes<T>]) {
    constexpr int L = kLanes<T>;
    if constexpr (L >= 16) exchange_all<8>(rows);
    if constexpr (L >= 8) exchange_all<4>(rows);
    if constexpr (L >= 4) exchange_all<2>(rows);
    exchange_all<1>(rows);
}

// Lanes of a and b in turn, from lane First on: a[First], b[First], a[First + 1], ...
template <int First, class V, int... I>
static inline V zip(V a, V b, Indices<I...>) {
    constexpr int L = sizeof...(I);
    return __builtin_shufflevector(a, b, (First + I / 2 + (I % 2) * L)...);
}

// A step whose multiples are added one by one: compilers would keep the address of every row, and spill them.
static inline int64_t step_by_step(int64_t step) {
    asm("" : "+r"(step));
    return step;
}
