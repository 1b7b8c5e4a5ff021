/* What products share: the processor's instructions, and how rows are shared out over tiles. */

#ifndef EDGEFORMER_VECTORS_H
#define EDGEFORMER_VECTORS_H

#include <stdint.h>

/* So many columns of a product lie side by side, with a quad of their inputs each; GROUPS of them go together best. */
enum { COLUMNS = 16, QUAD = 4, GROUPS = 2 };

/* Rows of a product of floats that share what is read, and of the other matrix that are fetched before their turn. */
enum { TOGETHER = 6, SOON_ROWS = 16 };

#define SPECIALIZED inline __attribute__((always_inline)) /* for the constants that are its last arguments */

/* How many rows to compute at once, of those that are left: parts are alike, so that none is nearly empty. */
static inline int64_t rows_each(int64_t left, int64_t most) {
    const int64_t parts = (left + most - 1) / most;
    return (left + parts - 1) / parts;
}

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the order in which sums are added to, in which the registers are enough. */
#define IN_REGISTER(sum) __asm__("" : "+v"(sum))

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))

/* Fetches what is read next: codes of the columns after these, which the processor does not foresee as well. */
#define SOON(address) _mm_prefetch((const char *)(address), _MM_HINT_T0)

static inline int has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* EDGEFORMER_NATIVE=avx2 in the environment asks for AVX2 alone. Found out once. */
static inline int has_avx512(void) {
    static int known = -1;
    if (known >= 0) return known;
    const char *asked = getenv("EDGEFORMER_NATIVE");
    if (asked != NULL && strcmp(asked, "avx2") == 0) return known = 0;
    return known = has_avx2() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512vnni");
}

AVX2 static inline float largest_of(__m256 x) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

AVX2 static inline float sum_of(__m256 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Four bytes, as often as a register has room for them. */
AVX2 static inline __m256i quad_avx2(const void *bytes) {
    int32_t quad;
    memcpy(&quad, bytes, sizeof quad);
    return _mm256_set1_epi32(quad);
}

AVX512 static inline __m512i quad_avx512(const void *bytes) {
    int32_t quad;
    memcpy(&quad, bytes, sizeof quad);
    return _mm512_set1_epi32(quad);
}

#else

static inline int has_avx2(void) { return 0; }

#endif

#endif
