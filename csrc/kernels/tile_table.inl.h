// The rows of kernels.inc that belong to the including file's ISA, as tables. The file defines FASTCONV_TILE_<its isa> as
// FASTCONV_TILE_HERE before it includes this.

#if !defined(FASTCONV_TILE_scalar)
#define FASTCONV_TILE_scalar(element, rows, vectors)
#endif
#if !defined(FASTCONV_TILE_avx2)
#define FASTCONV_TILE_avx2(element, rows, vectors)
#endif
#if !defined(FASTCONV_TILE_avx512)
#define FASTCONV_TILE_avx512(element, rows, vectors)
#endif
#if !defined(FASTCONV_TILE_neon)
#define FASTCONV_TILE_neon(element, rows, vectors)
#endif
#define FASTCONV_TILE_HERE(element, rows, vectors) FASTCONV_ROW_##element(rows, vectors)

static const TileKernel<float> kFloatRows[] = {
#define FASTCONV_TILE(isa, element, rows, vectors) FASTCONV_TILE_##isa(element, rows, vectors)
#define FASTCONV_ROW_float(rows, vectors) {rows, vectors, tile<float, rows, vectors>},
#define FASTCONV_ROW_double(rows, vectors)
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};

static const TileKernel<double> kDoubleRows[] = {
#define FASTCONV_TILE(isa, element, rows, vectors) FASTCONV_TILE_##isa(element, rows, vectors)
#define FASTCONV_ROW_float(rows, vectors)
#define FASTCONV_ROW_double(rows, vectors) {rows, vectors, tile<double, rows, vectors>},
#include "kernels/kernels.inc"
#undef FASTCONV_ROW_float
#undef FASTCONV_ROW_double
};

static const TileKernels<float> kFloat = {
    kLanes<float>,
    kFloatRows,
    sizeof(kFloatRows) / sizeof(kFloatRows[0]),
    {side_by_side<float>, transposed<float>, gathered<float>},
};
static const TileKernels<double> kDouble = {
    kLanes<double>,
    kDoubleRows,
    sizeof(kDoubleRows) / sizeof(kDoubleRows[0]),
    {side_by_side<double>, transposed<double>, gathered<double>},
};
