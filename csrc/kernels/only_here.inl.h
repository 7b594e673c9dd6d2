// Narrows kernels.inc to the including file's ISA: FASTCONV_IF_<isa>(row) gives the row for that ISA and nothing for the others.
// The file defines FASTCONV_IF_<its isa> as FASTCONV_HERE before it includes this.

#define FASTCONV_HERE(...) __VA_ARGS__
#if !defined(FASTCONV_IF_scalar)
#define FASTCONV_IF_scalar(...)
#endif
#if !defined(FASTCONV_IF_avx2)
#define FASTCONV_IF_avx2(...)
#endif
#if !defined(FASTCONV_IF_avx512)
#define FASTCONV_IF_avx512(...)
#endif
#if !defined(FASTCONV_IF_neon)
#define FASTCONV_IF_neon(...)
#endif
