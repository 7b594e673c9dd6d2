#include "kernels/dots.h"

namespace fastconv {

#if defined(FASTCONV_HAVE_AVX512)
namespace dots_avx512 {
const DotKernels* select(DotUnit unit, DotType type);
const DotCopies& copies();
}  // namespace dots_avx512

const DotKernels* dot_kernels(DotUnit unit, DotType type) { return dots_avx512::select(unit, type); }
const DotCopies& dot_copies() { return dots_avx512::copies(); }
#else
const DotKernels* dot_kernels(DotUnit, DotType) { return nullptr; }
const DotCopies& dot_copies() {
    static const DotCopies none{};
    return none;
}
#endif

}  // namespace fastconv
