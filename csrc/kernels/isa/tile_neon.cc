// Tile kernels for neon.
#include "kernels/tile.h"

#include <arm_neon.h>

namespace fastconv::tile_neon {
namespace {
#include "kernels/indices.inl.h"
#include "kernels/vector.inl.h"
// clang-format off: the order matters
#include "kernels/tile.inl.h"
#define FASTCONV_TILE_neon FASTCONV_TILE_HERE
#include "kernels/tile_table.inl.h"
// clang-format on
}  // namespace

const TileKernels<float>& floats() { return kFloat; }
const TileKernels<double>& doubles() { return kDouble; }

}  // namespace fastconv::tile_neon
