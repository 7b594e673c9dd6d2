// Chooses among the builds of a kernel family, one namespace per instruction set: family_scalar, family_avx2, ...
#pragma once

#include "base/isa.h"

#if defined(FASTCONV_HAVE_AVX2)
#define FASTCONV_CASE_AVX2(family, call) \
    case Isa::avx2: return family##_avx2::call;
#else
#define FASTCONV_CASE_AVX2(family, call)
#endif
#if defined(FASTCONV_HAVE_AVX512)
#define FASTCONV_CASE_AVX512(family, call) \
    case Isa::avx512: return family##_avx512::call;
#else
#define FASTCONV_CASE_AVX512(family, call)
#endif
#if defined(FASTCONV_HAVE_NEON)
#define FASTCONV_CASE_NEON(family, call) \
    case Isa::neon: return family##_neon::call;
#else
#define FASTCONV_CASE_NEON(family, call)
#endif

// `return family_<isa>::call;` for the level `isa`; the scalar build where this library has no other.
#define FASTCONV_RETURN_BY_ISA(isa, family, call) \
    switch (isa) { \
        FASTCONV_CASE_AVX2(family, call) \
        FASTCONV_CASE_AVX512(family, call) \
        FASTCONV_CASE_NEON(family, call) \
        default: return family##_scalar::call; \
    }

// `declaration` in the namespace of every build.
#define FASTCONV_DECLARE_FOR_ISAS(family, ...) \
    namespace family##_scalar { \
        __VA_ARGS__ \
    } \
    namespace family##_avx2 { \
        __VA_ARGS__ \
    } \
    namespace family##_avx512 { \
        __VA_ARGS__ \
    } \
    namespace family##_neon { \
        __VA_ARGS__ \
    }
