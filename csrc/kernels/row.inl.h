// Body of the row kernels (kernels/row.h) for one ISA; included by kernels/isa/row_<isa>.cc inside its namespace.

template <class T, class Acc>
static void row(int64_t count, void* acc_, const void* x_, int64_t x_step, const void* w_, int64_t w_step) {
    Acc* __restrict__ acc = static_cast<Acc*>(acc_);
    const T* __restrict__ x = static_cast<const T*>(x_);
    const T* __restrict__ w = static_cast<const T*>(w_);
    if (w_step == 0 && x_step == 1) {
        const T scale = w[0];
        for (int64_t j = 0; j < count; ++j) add_product(acc[j], x[j], scale);
    } else if (x_step == 0 && w_step == 1) {
        const T scale = x[0];
        for (int64_t j = 0; j < count; ++j) add_product(acc[j], scale, w[j]);
    } else if (w_step == 0) {
        const T scale = w[0];
        for (int64_t j = 0; j < count; ++j) add_product(acc[j], x[j * x_step], scale);
    } else {
        for (int64_t j = 0; j < count; ++j) add_product(acc[j], x[j * x_step], w[j * w_step]);
    }
}

// Integers summed as floating point: each is converted first.
template <class T>
static RowKernel to_real(Accumulator a) {
    return a == Accumulator::f32 ? row<T, float> : a == Accumulator::f64 ? row<T, double> : nullptr;
}

static RowKernel select_row(Dtype dtype, Accumulator accumulator) {
    using A = Accumulator;
    const A a = accumulator;
    switch (dtype) {
        case Dtype::f32: return a == A::f32 ? row<float, float> : a == A::f64 ? row<float, double> : nullptr;
        case Dtype::f64: return a == A::f64 ? row<double, double> : nullptr;
        case Dtype::f16: return a == A::f32 ? row<Half, float> : a == A::f64 ? row<Half, double> : nullptr;
        case Dtype::bf16: return a == A::f32 ? row<Brain, float> : a == A::f64 ? row<Brain, double> : nullptr;
        case Dtype::c64:
            return a == A::c64 ? row<Complex<float>, Complex<float>> : a == A::c128 ? row<Complex<float>, Complex<double>> : nullptr;
        case Dtype::c128: return a == A::c128 ? row<Complex<double>, Complex<double>> : nullptr;
        case Dtype::i8: return a == A::u32 ? row<int8_t, uint32_t> : a == A::u64 ? row<int8_t, uint64_t> : to_real<int8_t>(a);
        case Dtype::i16: return a == A::u32 ? row<int16_t, uint32_t> : a == A::u64 ? row<int16_t, uint64_t> : to_real<int16_t>(a);
        case Dtype::i32: return a == A::u32 ? row<int32_t, uint32_t> : a == A::u64 ? row<int32_t, uint64_t> : to_real<int32_t>(a);
        case Dtype::i64: return a == A::u64 ? row<int64_t, uint64_t> : to_real<int64_t>(a);
        case Dtype::u8: return a == A::u32 ? row<uint8_t, uint32_t> : a == A::u64 ? row<uint8_t, uint64_t> : to_real<uint8_t>(a);
        case Dtype::u16: return a == A::u32 ? row<uint16_t, uint32_t> : a == A::u64 ? row<uint16_t, uint64_t> : to_real<uint16_t>(a);
        case Dtype::u32: return a == A::u32 ? row<uint32_t, uint32_t> : a == A::u64 ? row<uint32_t, uint64_t> : to_real<uint32_t>(a);
        case Dtype::u64: return a == A::u64 ? row<uint64_t, uint64_t> : to_real<uint64_t>(a);
    }
    return nullptr;
}
