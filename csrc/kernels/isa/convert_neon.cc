// Converting copies for neon.
#include "kernels/convert.h"

namespace fastconv::convert_neon {
namespace {
// clang-format off: the order matters
#include "kernels/element.inl.h"
#include "kernels/halves.inl.h"
#include "kernels/convert.inl.h"
// clang-format on
}  // namespace

#include "kernels/convert_table.inl.h"

}  // namespace fastconv::convert_neon
