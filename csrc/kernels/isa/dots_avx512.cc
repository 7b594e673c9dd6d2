// Dot-product tiles and the copies around them. The functions that need more than the avx512 level say so themselves; the unit in
// use decides whether they are called.
#include <immintrin.h>

#include "kernels/dots.h"

namespace fastconv::dots_avx512 {
namespace {

// clang-format off: the order matters
#include "kernels/indices.inl.h"
#include "kernels/dots_copies.inl.h"
#include "kernels/dots_vector.inl.h"
#include "kernels/dots_tiles.inl.h"
// clang-format on

}  // namespace

const DotKernels* select(DotUnit unit, DotType type) {
    if (unit == DotUnit::tiles) return &kTileKernels[static_cast<int>(type)];
    if (unit == DotUnit::vector && type != DotType::u8) return &kVectorKernels[static_cast<int>(type)];
    return nullptr;
}

const DotCopies& copies() {
    static const DotCopies all{transpose, interleave, survey, narrow};
    return all;
}

}  // namespace fastconv::dots_avx512
