/* The C interface of the fastconv library; the only exported symbols besides the XLA FFI handlers
 * `fastconv_conv_v1` and `fastconv_counted_v1`.
 *
 * Every function is thread-safe. No exception crosses this boundary. A call that fails writes nothing to `out`.
 */
#ifndef FASTCONV_H
#define FASTCONV_H

#include <stdint.h>

#if defined(_WIN32)
#define FASTCONV_EXPORT __declspec(dllexport)
#else
#define FASTCONV_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a signature below changes; the Python side refuses another number. */
#define FASTCONV_ABI 1
FASTCONV_EXPORT int64_t fastconv_abi(void);

/* Runs the packed problem (src/fastconv/problem.py) of `count` int64 words.
 * lhs, rhs, bias (or NULL) and out point at the buffers' first elements. `ranges` holds 8 numbers: for lhs, rhs, bias and
 * out the range lo <= index < hi of elements that may be touched. Returns 0, or nonzero with a message in
 * fastconv_error() of the same thread. Uses the library's own thread pool. */
FASTCONV_EXPORT int fastconv_conv(const int64_t* words, int64_t count, const void* lhs, const void* rhs, const void* bias, void* out,
                                  const int64_t* ranges);

/* The message of this thread's last failed call. */
FASTCONV_EXPORT const char* fastconv_error(void);

/* Threads that calls from now on may use, the caller included; n >= 1. fastconv_set_threads(0) restores the default:
 * FASTCONV_NUM_THREADS, else the number of CPUs in the affinity mask. */
FASTCONV_EXPORT void fastconv_set_threads(int64_t n);
FASTCONV_EXPORT int64_t fastconv_get_threads(void);

/* ISA level in use ("scalar", "avx2", "avx512", "neon") and a comma-separated list of those this CPU and build can run.
 * fastconv_set_isa caps the level (for tests; FASTCONV_ISA does it at load); returns 0, or nonzero for an unknown name. */
FASTCONV_EXPORT const char* fastconv_isa(void);
FASTCONV_EXPORT const char* fastconv_isas(void);
FASTCONV_EXPORT int fastconv_set_isa(const char* name);

/* What multiplies bfloat16 and int8 at that level: "none", "vector" (AVX-512 BF16 and VNNI) or "tiles" (AMX). fastconv_set_dot_unit
 * caps it (for tests); returns 0, or nonzero for a name that is unknown or unavailable. */
FASTCONV_EXPORT const char* fastconv_dot_unit(void);
FASTCONV_EXPORT int fastconv_set_dot_unit(const char* name);

/* Registered kernels, one a line: "isa element family name rows cols". */
FASTCONV_EXPORT const char* fastconv_kernels(void);

/* Runs row `index` of that list alone, `runs` times over, for tests and measurements; `lanes` is the row's vector length in elements.
 *   tile R x V     c[R][V*lanes] (+)= a[depth][R] * b[depth][V*lanes]; sizes: depth, accumulate, by_rows (a is [R][depth])
 *   stencil R x V x H   c[r*out_step + j] (+)= sum over q, h of b[q + (r+h)*row_step + j] * a[q*H + h];
 *                       sizes: shifts, row_step, out_step, accumulate
 *   product R x V  c[R][V*lanes] (+)= a * b[depth][V*lanes], a[k / lanes * block + r*lanes + k % lanes]; sizes: depth, block, accumulate
 *   point R x V    c[R][V*lanes] (+)= a[R][depth] * b[depth][V*lanes]; sizes: depth, accumulate
 *   dot R x C      c[i][j][lane] += a[i][k] * b[j][k] for k of that lane; sizes: depth (whole vectors are used)
 *   block R x V    c[m][j] (+)= sum over s, i of a[s][m][i] * b[s][i][j], j < V*lanes; sizes: segments, steps, tail (lanes of the last
 *                  vector that are stored), accumulate
 * Returns 0, or nonzero with a message. Trusts its arguments. */
FASTCONV_EXPORT int fastconv_run_kernel(int64_t index, int64_t runs, const int64_t* sizes, const void* a, const void* b, void* c);

/* 1 when the library was built with the XLA FFI handler, else 0. */
FASTCONV_EXPORT int64_t fastconv_has_xla(void);

/* Calls of `fastconv_counted_v1` under a key so far, and the nanoseconds spent in them; a key never used has none of either. */
FASTCONV_EXPORT void fastconv_counted(int64_t key, int64_t* calls, int64_t* nanoseconds);
FASTCONV_EXPORT void fastconv_clear_counts(void);

/* CPU brand string, for reports. */
FASTCONV_EXPORT const char* fastconv_cpu(void);

#ifdef __cplusplus
}
#endif
#endif
