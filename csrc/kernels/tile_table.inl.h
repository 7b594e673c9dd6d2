// The tile kernels of this ISA out of kernels.inc, as tables; included after only_here.inl.h and tile.inl.h.

template <class T, int Rows, int Vectors>
static constexpr TileFunction<T> by_rows() {
    if constexpr (Rows <= kMaxByRows)
        return tile<T, Rows, Vectors, true>;
    else
        return nullptr;
}

static const TileKernel<float> kFloatTiles[] = {
#define FASTCONV_ROW_float(...) __VA_ARGS__
#define FASTCONV_ROW_double(...)
#define FASTCONV_TILE(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, tile<element, rows, vectors, false>, by_rows<element, rows, vectors>()}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};
static const TileKernel<double> kDoubleTiles[] = {
#define FASTCONV_ROW_double(...) __VA_ARGS__
#define FASTCONV_ROW_float(...)
#define FASTCONV_TILE(isa, element, rows, vectors) \
    FASTCONV_IF_##isa(FASTCONV_ROW_##element({rows, vectors, tile<element, rows, vectors, false>, by_rows<element, rows, vectors>()}, ))
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_double
#undef FASTCONV_ROW_float
};

template <class T, int Count>
static constexpr TileKernels<T> tile_kernel_set(const TileKernel<T> (&tiles)[Count]) {
    return {kLanes<T>, tiles, Count, {spaced<T>, runs<T>, walked<T>, weave<T>}, finite<T>};
}
static const TileKernels<float> kFloat = tile_kernel_set(kFloatTiles);
static const TileKernels<double> kDouble = tile_kernel_set(kDoubleTiles);
