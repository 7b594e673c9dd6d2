// Element types as the kernels load them. Included inside a namespace of its own by each ISA-flagged file: nothing here may be
// shared between files built with different flags.
//
// No include guard against a second namespace: a file includes it once.

struct Half {
    uint16_t bits;
};
struct Brain {
    uint16_t bits;
};
template <class T>
struct Complex {
    T re, im;
};

template <class To, class From>
static inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
}

// Integer arithmetic and one subtraction of normal numbers: exact whatever the thread's flush mode, and it vectorises.
static inline float widen(Half h) {
    const uint32_t exponent_mask = 0x7c00u << 13;
    uint32_t bits = (h.bits & 0x7fffu) << 13;
    const uint32_t exponent = bits & exponent_mask;
    bits += (127u - 15u) << 23;
    const uint32_t special = bits + ((128u - 16u) << 23);                                                        // inf and NaN
    const uint32_t tiny = bit_cast<uint32_t>(bit_cast<float>(bits + (1u << 23)) - bit_cast<float>(113u << 23));  // zero, subnormal
    const uint32_t magnitude = exponent == exponent_mask ? special : exponent == 0 ? tiny : bits;
    return bit_cast<float>(magnitude | (static_cast<uint32_t>(h.bits & 0x8000u) << 16));
}
static inline float widen(Brain b) { return bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }
template <class T>
static inline T widen(T value) {
    return value;
}

// One term, in the accumulator's arithmetic. Integers wrap modulo 2^bits: signed operands are sign-extended, then unsigned.
template <class Acc, class T>
static inline void add_product(Acc& acc, T x, T w) {
    acc += static_cast<Acc>(widen(x)) * static_cast<Acc>(widen(w));
}
template <class A, class T>
static inline void add_product(Complex<A>& acc, Complex<T> x, Complex<T> w) {
    const A xr = x.re, xi = x.im, wr = w.re, wi = w.im;
    acc.re += xr * wr - xi * wi;
    acc.im += xr * wi + xi * wr;
}
