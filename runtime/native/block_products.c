#include "block_products.h"

#include <math.h>
#include <stddef.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define VNNI __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define SPECIALIZED inline __attribute__((always_inline)) /* for the constants that are its last arguments */

AVX2 static inline float largest_of(__m256 x) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

/* 32 activations over their scale, as bytes. */
AVX2 static inline __m256i bytes_of(const float *x, __m256 factor) {
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

AVX2 static inline int32_t sum_of_bytes(__m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m128i pair = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}

AVX2 static void quantize(const float *x, int8_t *codes, float *scales, float *offsets, int64_t k, int64_t block) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i low = _mm256_set1_epi16(0xff);
    for (int64_t chunk = 0; chunk < k / CHUNK; chunk++, x += CHUNK, codes += CHUNK) {
        __m256 most = _mm256_setzero_ps();
        for (int i = 0; i < CHUNK; i += 8) most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude));
        const float largest = largest_of(most), scale = largest / 127.0f;
        const __m256 factor = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
        const __m256i first = bytes_of(x, factor), second = bytes_of(x + HALF_CHUNK, factor);
        const __m256i even = _mm256_packus_epi16(_mm256_and_si256(first, low), _mm256_and_si256(second, low));
        const __m256i odd = _mm256_packus_epi16(_mm256_srli_epi16(first, 8), _mm256_srli_epi16(second, 8));
        _mm256_storeu_si256((__m256i *)codes, _mm256_permute4x64_epi64(even, 0xd8));
        _mm256_storeu_si256((__m256i *)(codes + HALF_CHUNK), _mm256_permute4x64_epi64(odd, 0xd8));
        const float of_first = MIDDLE * scale * (float)sum_of_bytes(first);
        const float of_second = MIDDLE * scale * (float)sum_of_bytes(second);
        scales[chunk] = scale;
        if (block < CHUNK)
            offsets[2 * chunk] = of_first, offsets[2 * chunk + 1] = of_second;
        else
            offsets[chunk] = of_first + of_second;
    }
}

/* Sums of four neighbouring products, of even and odd codes together. Codes reach 15: 16 bits hold four products. */
AVX2 static SPECIALIZED __m256i fours_avx2(__m256i low, __m256i high, const __m256i *activations) {
    const __m256i even = _mm256_maddubs_epi16(low, _mm256_loadu_si256(activations));
    const __m256i odd = _mm256_maddubs_epi16(high, _mm256_loadu_si256(activations + 1));
    return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

VNNI static SPECIALIZED __m256i fours_vnni(__m256i low, __m256i high, const __m256i *activations) {
    const __m256i even = _mm256_dpbusd_epi32(_mm256_setzero_si256(), low, _mm256_loadu_si256(activations));
    return _mm256_dpbusd_epi32(even, high, _mm256_loadu_si256(activations + 1));
}

/* A column's scale; where blocks are half as long as a chunk, that of each half. */
AVX2 static SPECIALIZED __m256 scale_of(const float *scales, int column, const int halves) {
    const __m256 first = _mm256_broadcast_ss(scales + column);
    return halves ? _mm256_insertf128_ps(first, _mm_broadcast_ss(scales + TOGETHER + column), 1) : first;
}

/* Four columns of some rows. `halves`: blocks are half as long as a chunk. */
#define TILE(name, TARGET, fours)                                                                                      \
    TARGET static SPECIALIZED void name(const BlockProduct *p, int64_t row, int64_t column, const int rows,            \
                                        const int halves) {                                                            \
        const int64_t chunks = p->k / CHUNK, per_block = halves ? 1 : p->block / CHUNK,                                \
                      step = halves ? 2 * TOGETHER : TOGETHER;                                                         \
        const int64_t offsets = halves ? 2 * chunks : chunks;                                                          \
        const uint8_t *codes = p->codes + column * (p->k / 2);                                                         \
        const float *scales = p->scales + column * (p->k / p->block), *of_block = scales;                              \
        const int8_t *x = p->activations + row * p->k;                                                                 \
        const __m256i low_half = _mm256_set1_epi8(15);                                                                 \
        __m256 sums[2][TOGETHER];                                                                                      \
        __m128 middles[2];                                                                                             \
        for (int r = 0; r < rows; r++) {                                                                               \
            middles[r] = _mm_setzero_ps();                                                                             \
            for (int c = 0; c < TOGETHER; c++) sums[r][c] = _mm256_setzero_ps();                                       \
        }                                                                                                              \
        for (int64_t chunk = 0, left = per_block; chunk < chunks;                                                      \
             chunk++, codes += TOGETHER * HALF_CHUNK, x += CHUNK) {                                                    \
            __m256 of_row[2];                                                                                          \
            for (int r = 0; r < rows; r++)                                                                             \
                of_row[r] = _mm256_broadcast_ss(p->activation_scales + (row + r) * chunks + chunk);                    \
            _Pragma("GCC unroll 4") for (int c = 0; c < TOGETHER; c++) {                                               \
                const __m256i both = _mm256_loadu_si256((const __m256i *)(codes + c * HALF_CHUNK));                    \
                const __m256i low = _mm256_and_si256(both, low_half);                                                  \
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);                           \
                const __m256 scale = scale_of(of_block, c, halves);                                                    \
                _Pragma("GCC unroll 2") for (int r = 0; r < rows; r++) {                                               \
                    const __m256i sum = fours(low, high, (const __m256i *)(x + r * p->k));                             \
                    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), of_row[r]);                           \
                    sums[r][c] = _mm256_fmadd_ps(scaled, scale, sums[r][c]);                                           \
                    __asm__("" : "+x"(sums[r][c])); /* keeps the order, in which the sixteen registers are enough */   \
                }                                                                                                      \
            }                                                                                                          \
            if (--left == 0) left = per_block, of_block += step;                                                       \
        }                                                                                                              \
        of_block = scales;                                                                                             \
        for (int64_t i = 0, left = per_block; i < offsets; i++) {                                                      \
            const __m128 four = _mm_loadu_ps(of_block);                                                                \
            for (int r = 0; r < rows; r++)                                                                             \
                middles[r] = _mm_fmadd_ps(four, _mm_broadcast_ss(p->offsets + (row + r) * offsets + i), middles[r]);   \
            if (--left == 0) left = per_block, of_block += TOGETHER;                                                   \
        }                                                                                                              \
        for (int r = 0; r < rows; r++) {                                                                               \
            const __m256 halved =                                                                                      \
                _mm256_hadd_ps(_mm256_hadd_ps(sums[r][0], sums[r][1]), _mm256_hadd_ps(sums[r][2], sums[r][3]));        \
            const __m128 total = _mm_add_ps(_mm256_castps256_ps128(halved), _mm256_extractf128_ps(halved, 1));         \
            const __m128 result = _mm_add_ps(_mm_sub_ps(total, middles[r]), _mm_loadu_ps(p->bias + column));           \
            _mm_storeu_ps(p->y + (row + r) * p->n + column, result);                                                   \
        }                                                                                                              \
    }

#define MULTIPLY(name, TARGET, tile)                                                                                   \
    TARGET static void name(const BlockProduct *p, int64_t first, int64_t end) {                                       \
        const int halves = p->block < CHUNK;                                                                           \
        int64_t row = 0;                                                                                               \
        for (; row + 2 <= p->rows; row += 2)                                                                           \
            for (int64_t column = first; column < end; column += TOGETHER) {                                           \
                if (halves)                                                                                            \
                    tile(p, row, column, 2, 1);                                                                        \
                else                                                                                                   \
                    tile(p, row, column, 2, 0);                                                                        \
            }                                                                                                          \
        for (; row < p->rows; row++)                                                                                   \
            for (int64_t column = first; column < end; column += TOGETHER) {                                           \
                if (halves)                                                                                            \
                    tile(p, row, column, 1, 1);                                                                        \
                else                                                                                                   \
                    tile(p, row, column, 1, 0);                                                                        \
            }                                                                                                          \
    }

TILE(tile_avx2, AVX2, fours_avx2)
TILE(tile_vnni, VNNI, fours_vnni)
MULTIPLY(multiply_avx2, AVX2, tile_avx2)
MULTIPLY(multiply_vnni, VNNI, tile_vnni)

static const BlockInstructions avx2 = {quantize, multiply_avx2};
static const BlockInstructions vnni = {quantize, multiply_vnni};

static size_t found_here(const BlockInstructions *found[2]) {
    size_t count = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        found[count++] = &vnni;
    found[count++] = &avx2;
    return count;
}

#else

static size_t found_here(const BlockInstructions *found[2]) { return (void)found, 0; }

#endif

/* Whether instructions multiply small matrices as plain arithmetic does. */
static int right(const BlockInstructions *instructions, int64_t block) {
    enum { ROWS = 3, N = 8, K = 128 };
    float x[ROWS * K], activation_scales[ROWS * K / CHUNK], offsets[ROWS * K / HALF_CHUNK], scales[N * K / HALF_CHUNK];
    float bias[N], y[ROWS * N];
    int8_t activations[ROWS * K];
    uint8_t codes[N * K / 2];
    uint32_t state = 1; /* of a linear congruential generator */
#define NEXT(most) ((int)((state = state * 1664525u + 1013904223u) >> 16) % (2 * (most) + 1) - (most))
    for (int i = 0; i < ROWS * K; i++) x[i] = (float)NEXT(1000) / 256;
    for (int i = 0; i < N * K / 2; i++) codes[i] = (uint8_t)(NEXT(127) + 127);
    for (int i = 0; i < N * K / HALF_CHUNK; i++) scales[i] = (float)(NEXT(50) + 60) / 1024;
    for (int i = 0; i < N; i++) bias[i] = (float)NEXT(100) / 16;
#undef NEXT
    const int64_t chunks = K / CHUNK, offset_count = block < CHUNK ? 2 * chunks : chunks;
    for (int row = 0; row < ROWS; row++)
        instructions->quantize(x + row * K, activations + row * K, activation_scales + row * chunks,
                               offsets + row * offset_count, K, block);
    const BlockProduct product = {activations, activation_scales, offsets, codes, scales, bias, y, ROWS, N, K, block};
    instructions->multiply(&product, 0, N);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < N; column++) {
            double sum = bias[column];
            for (int i = 0; i < K; i++) {
                const int chunk = i / CHUNK, within = i % CHUNK;
                const int activation = activations[row * K + chunk * CHUNK + within % 2 * HALF_CHUNK + within / 2];
                const double scale = activation_scales[row * chunks + chunk];
                if (fabs(activation * scale - x[row * K + i]) > 0.51 * scale) return 0;
                const uint8_t both =
                    codes[((column / TOGETHER * chunks + chunk) * TOGETHER + column % TOGETHER) * HALF_CHUNK +
                          within / 2];
                const int code = within % 2 ? both >> 4 : both & 15;
                const float of_block =
                    scales[(column / TOGETHER * (K / block) + i / block) * TOGETHER + column % TOGETHER];
                sum += (double)activation * (code - MIDDLE) * scale * of_block;
            }
            if (fabs(sum - y[row * N + column]) > 1e-3) return 0;
        }
    return 1;
}

const BlockInstructions *block_instructions_here(void) {
    static const BlockInstructions *known;
    if (known != NULL) return known;
    const BlockInstructions *found[2];
    const size_t count = found_here(found);
    for (size_t i = 0; i < count; i++)
        if (right(found[i], HALF_CHUNK) && right(found[i], CHUNK) && right(found[i], 2 * CHUNK))
            return known = found[i];
    return NULL;
}
