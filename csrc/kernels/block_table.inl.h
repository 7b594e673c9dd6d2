// The block kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and block.inl.h.

static const BlockKernel<float> kFloatBlocks[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_BLOCK(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, block<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const BlockKernel<double> kDoubleBlocks[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_BLOCK(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, block<element, rows, vectors>}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr BlockKernels<T> block_kernel_set(const BlockKernel<T> (&blocks)[Count]) {
    return {kLanes<T>, blocks, Count};
}
static const BlockKernels<float> kFloat = block_kernel_set(kFloatBlocks);
static const BlockKernels<double> kDouble = block_kernel_set(kDoubleBlocks);
