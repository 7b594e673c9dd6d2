// Tile kernels for scalar.
#include "kernels/tile.h"

namespace fastconv::tile_scalar {
namespace {
// clang-format off: the order matters
#define FASTCONV_IF_scalar FASTCONV_HERE
#include "kernels/only_here.inl.h"
#include "kernels/vector.inl.h"
#include "kernels/keep.inl.h"
#include "kernels/indices.inl.h"
#include "kernels/transpose.inl.h"
#include "kernels/tile.inl.h"
#include "kernels/tile_table.inl.h"
// clang-format on
}  // namespace

const TileKernels<float>& floats() { return kFloat; }
const TileKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::tile_scalar
