#include "block_products.h"

#include <math.h>
#include <stddef.h>

enum { MOST_CHECKED = 7 }; /* rows: one more than are computed at once */

#if defined(__x86_64__)

/* 32 activations over their scale, as bytes. */
AVX2 static inline __m256i bytes_of(const float *x, __m256 factor) {
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Of each eight the even ones before the odd ones. */
AVX2 static inline __m256i evens_first(__m256i bytes) {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(order));
}

AVX2 static inline int32_t sum_of_bytes(__m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m128i pair = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}

AVX2 static void quantize(const float *x, int8_t *codes, float *scales, int32_t *offsets, int64_t k, int64_t block,
                          int64_t bits) {
    const int32_t middle = 1 << (bits - 1);
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int64_t chunk = 0; chunk < k / CHUNK; chunk++, x += CHUNK, codes += CHUNK) {
        __m256 most = _mm256_setzero_ps();
        for (int i = 0; i < CHUNK; i += 8) most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude));
        const float largest = largest_of(most);
        const __m256 factor = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
        const __m256i first = bytes_of(x, factor), second = bytes_of(x + HALF_CHUNK, factor);
        _mm256_storeu_si256((__m256i *)codes, bits == 4 ? evens_first(first) : first);
        _mm256_storeu_si256((__m256i *)(codes + HALF_CHUNK), bits == 4 ? evens_first(second) : second);
        const int32_t of_first = -middle * sum_of_bytes(first), of_second = -middle * sum_of_bytes(second);
        scales[chunk] = largest / 127.0f;
        if (block < CHUNK)
            offsets[2 * chunk] = of_first, offsets[2 * chunk + 1] = of_second;
        else
            offsets[chunk] = of_first + of_second;
    }
}

/* Adds to the sums of sixteen columns what 32 inputs with weights of 4 bits give. Codes reach 15, so that 16 bits have
   room for the sum of eight pairs of products. */
AVX2 static SPECIALIZED void add_4_bits(const uint8_t *codes, int64_t next, const int8_t *x, int64_t k,
                                        __m256i sums[2][2], const int rows) {
    const __m256i low_half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i narrow[2][2];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) narrow[r][0] = narrow[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int octet = 0; octet < HALF_CHUNK / OCTET; octet++) {
        SOON(codes + octet * COLUMNS * QUAD + next);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m256i both = _mm256_loadu_si256((const __m256i *)codes + 2 * octet + half);
            const __m256i low = _mm256_and_si256(both, low_half);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const int8_t *inputs = x + r * k + octet * OCTET;
                const __m256i first = _mm256_maddubs_epi16(low, quad_avx2(inputs));
                const __m256i second = _mm256_maddubs_epi16(high, quad_avx2(inputs + QUAD));
                narrow[r][half] = _mm256_add_epi16(narrow[r][half], _mm256_add_epi16(first, second));
                IN_REGISTER(narrow[r][half]);
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(narrow[r][half], ones));
}

/* The same with weights of 8 bits, whose size is multiplied with activations of their sign: 16 bits have room for two
   products of up to 128 and 127. */
AVX2 static SPECIALIZED void add_8_bits(const uint8_t *codes, int64_t next, const int8_t *x, int64_t k,
                                        __m256i sums[2][2], const int rows) {
    const __m256i middle = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int quad = 0; quad < HALF_CHUNK / QUAD; quad++) {
        SOON(codes + quad * COLUMNS * QUAD + next);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const __m256i loaded = _mm256_loadu_si256((const __m256i *)codes + 2 * quad + half);
            const __m256i weights = _mm256_xor_si256(loaded, middle), sizes = _mm256_abs_epi8(weights);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const __m256i inputs = _mm256_sign_epi8(quad_avx2(x + r * k + quad * QUAD), weights);
                const __m256i pairs = _mm256_maddubs_epi16(sizes, inputs);
                sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(pairs, ones));
                IN_REGISTER(sums[r][half]);
            }
        }
    }
}

/* Sixteen columns of some rows; scales hold for `span` inputs at least. */
AVX2 static SPECIALIZED void tile_avx2(const BlockProduct *p, int64_t row, int64_t column, const int rows,
                                       const int span, const int bits) {
    const int64_t chunks = p->k / CHUNK, spans = p->k / span, per_block = p->block / span;
    const int64_t group_codes = COLUMNS * p->k * bits / 8;
    const uint8_t *codes = p->codes + column * p->k * bits / 8;
    const float *scales = p->scales + column * (p->k / p->block);
    const int8_t *x = p->activations + row * p->k;
    __m256 totals[2][2];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) totals[r][0] = totals[r][1] = _mm256_setzero_ps();
    for (int64_t at = 0, left = per_block; at < spans; at++, x += span) {
        __m256i sums[2][2];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            sums[r][0] = sums[r][1] = _mm256_set1_epi32(bits == 4 ? p->offsets[(row + r) * spans + at] : 0);
        for (int i = 0; i < span; i += HALF_CHUNK, codes += COLUMNS * HALF_CHUNK * bits / 8) {
            if (bits == 4)
                add_4_bits(codes, group_codes, x + i, p->k, sums, rows);
            else
                add_8_bits(codes, group_codes, x + i, p->k, sums, rows);
        }
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            const __m256 of_row = _mm256_broadcast_ss(p->activation_scales + (row + r) * chunks + at * span / CHUNK);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales + half * COLUMNS / 2), of_row);
                totals[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][half]), scale, totals[r][half]);
            }
        }
        if (--left == 0) left = per_block, scales += COLUMNS;
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const int64_t first = column + half * COLUMNS / 2;
            const __m256 result = _mm256_add_ps(totals[r][half], _mm256_loadu_ps(p->bias + first));
            _mm256_storeu_ps(p->y + (row + r) * p->n + first, _mm256_max_ps(_mm256_set1_ps(p->lowest), result));
        }
}

/* As above, of `groups` times sixteen columns. */
AVX512 static SPECIALIZED void tile_avx512(const BlockProduct *p, int64_t row, int64_t column, const int rows,
                                           const int groups, const int span, const int bits) {
    const int64_t chunks = p->k / CHUNK, spans = p->k / span, per_block = p->block / span;
    const int64_t group_codes = COLUMNS * p->k * bits / 8, group_scales = COLUMNS * p->k / p->block;
    const uint8_t *codes = p->codes + column * p->k * bits / 8;
    const float *scales = p->scales + column * (p->k / p->block);
    const int8_t *x = p->activations + row * p->k;
    const __m512i low_half = _mm512_set1_epi8(15);
    __m512 totals[6][2];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) totals[r][g] = _mm512_setzero_ps();
    for (int64_t at = 0, left = per_block; at < spans; at++) {
        __m512i sums[6][2];
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) sums[r][g] = _mm512_set1_epi32(p->offsets[(row + r) * spans + at]);
        for (int octet = 0; octet < span / OCTET; octet++, codes += COLUMNS * bits, x += OCTET) {
            __m512i low[2], high[2];
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                const uint8_t *of_group = codes + g * group_codes;
                const __m512i both = _mm512_loadu_si512(of_group);
                SOON(of_group + groups * group_codes);
                if (bits == 4) {
                    low[g] = _mm512_and_si512(both, low_half);
                    high[g] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
                } else {
                    low[g] = both;
                    high[g] = _mm512_loadu_si512(of_group + COLUMNS * QUAD);
                    SOON(of_group + COLUMNS * QUAD + groups * group_codes);
                }
            }
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                const __m512i first = quad_avx512(x + r * p->k), second = quad_avx512(x + r * p->k + QUAD);
#pragma GCC unroll 2
                for (int g = 0; g < groups; g++) {
                    sums[r][g] = _mm512_dpbusd_epi32(sums[r][g], low[g], first);
                    sums[r][g] = _mm512_dpbusd_epi32(sums[r][g], high[g], second);
                    IN_REGISTER(sums[r][g]);
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512 of_row = _mm512_set1_ps(p->activation_scales[(row + r) * chunks + at * span / CHUNK]);
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + g * group_scales), of_row);
                totals[r][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][g]), scale, totals[r][g]);
            }
        }
        if (--left == 0) left = per_block, scales += COLUMNS;
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const int64_t first = column + g * COLUMNS;
            const __m512 result = _mm512_add_ps(totals[r][g], _mm512_loadu_ps(p->bias + first));
            _mm512_storeu_ps(p->y + (row + r) * p->n + first, _mm512_max_ps(_mm512_set1_ps(p->lowest), result));
        }
}

AVX2 static SPECIALIZED void rows_avx2(const BlockProduct *p, int64_t row, int64_t first, int64_t end, const int rows,
                                       const int span, const int bits) {
    for (int64_t column = first; column < end; column += COLUMNS) tile_avx2(p, row, column, rows, span, bits);
}

/* For few rows codes come from memory, which one stream of them has more from than two. */
AVX512 static SPECIALIZED void rows_avx512(const BlockProduct *p, int64_t row, int64_t first, int64_t end,
                                           const int rows, const int span, const int bits) {
    const int groups = rows < 4 ? 1 : 2;
    int64_t column = first;
    for (; column + groups * COLUMNS <= end; column += groups * COLUMNS)
        tile_avx512(p, row, column, rows, groups, span, bits);
    if (column < end) tile_avx512(p, row, column, rows, 1, span, bits);
}

#define CASE(instructions, rows, bits)                                                                                 \
    case rows:                                                                                                         \
        if (p->block < CHUNK)                                                                                          \
            rows_##instructions(p, row, first, end, rows, HALF_CHUNK, bits);                                           \
        else                                                                                                           \
            rows_##instructions(p, row, first, end, rows, CHUNK, bits);                                                \
        break;

#define MULTIPLY_AVX2(bits)                                                                                            \
    AVX2 static void multiply_##bits##_avx2(const BlockProduct *p, int64_t first, int64_t end) {                       \
        for (int64_t row = 0, rows; row < p->rows; row += rows) {                                                      \
            rows = rows_each(p->rows - row, 2);                                                                        \
            switch (rows) {                                                                                            \
                CASE(avx2, 1, bits)                                                                                    \
                CASE(avx2, 2, bits)                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

#define MULTIPLY_AVX512(bits)                                                                                          \
    AVX512 static void multiply_##bits##_avx512(const BlockProduct *p, int64_t first, int64_t end) {                   \
        for (int64_t row = 0, rows; row < p->rows; row += rows) {                                                      \
            rows = rows_each(p->rows - row, 6);                                                                        \
            switch (rows) {                                                                                            \
                CASE(avx512, 1, bits)                                                                                  \
                CASE(avx512, 2, bits)                                                                                  \
                CASE(avx512, 3, bits)                                                                                  \
                CASE(avx512, 4, bits)                                                                                  \
                CASE(avx512, 5, bits)                                                                                  \
                CASE(avx512, 6, bits)                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

MULTIPLY_AVX2(4)
MULTIPLY_AVX2(8)
MULTIPLY_AVX512(4)
MULTIPLY_AVX512(8)

static void multiply_avx2(const BlockProduct *product, int64_t first, int64_t end) {
    (product->bits == 4 ? multiply_4_avx2 : multiply_8_avx2)(product, first, end);
}

static void multiply_avx512(const BlockProduct *product, int64_t first, int64_t end) {
    (product->bits == 4 ? multiply_4_avx512 : multiply_8_avx512)(product, first, end);
}

static const BlockInstructions avx2 = {"AVX2", quantize, multiply_avx2};
static const BlockInstructions avx512 = {"AVX-512 VNNI", quantize, multiply_avx512};

static size_t found_here(const BlockInstructions *found[2]) {
    size_t count = 0;
    if (has_avx512()) found[count++] = &avx512;
    if (has_avx2()) found[count++] = &avx2;
    return count;
}

#else

static size_t found_here(const BlockInstructions *found[2]) { return (void)found, 0; }

#endif

/* Whether instructions multiply so many rows as plain arithmetic does. */
static int right(const BlockInstructions *instructions, int64_t block, int rows, int bits) {
    enum { N = 3 * COLUMNS, K = 128 };
    float x[MOST_CHECKED * K], activation_scales[MOST_CHECKED * K / CHUNK];
    float scales[N * K / HALF_CHUNK], bias[N], y[MOST_CHECKED * N];
    int32_t offsets[MOST_CHECKED * K / HALF_CHUNK];
    int8_t activations[MOST_CHECKED * K];
    uint8_t codes[N * K];
    uint32_t state = 1; /* of a linear congruential generator */
#define NEXT(most) ((int)((state = state * 1664525u + 1013904223u) >> 16) % (2 * (most) + 1) - (most))
    for (int i = 0; i < rows * K; i++) x[i] = (float)NEXT(1000) / 256;
    for (int i = 0; i < N * K; i++) codes[i] = (uint8_t)(NEXT(128) + 128);
    for (int i = 0; i < N * K / HALF_CHUNK; i++) scales[i] = (float)(NEXT(50) + 60) / 1024;
    for (int i = 0; i < N; i++) bias[i] = (float)NEXT(100) / 16;
#undef NEXT
    const int64_t chunks = K / CHUNK, offset_count = block < CHUNK ? 2 * chunks : chunks;
    for (int row = 0; row < rows; row++)
        instructions->quantize(x + row * K, activations + row * K, activation_scales + row * chunks,
                               offsets + row * offset_count, K, block, bits);
    const float lowest = rows % 2 ? -INFINITY : 0;
    const BlockProduct product = {
        activations, activation_scales, offsets, codes, scales, bias, y, rows, N, K, block, bits, lowest};
    instructions->multiply(&product, 0, N);
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < N; column++) {
            const int group = column / COLUMNS, within = column % COLUMNS;
            double sum = bias[column];
            for (int i = 0; i < K; i++) {
                const int octet = i / OCTET * OCTET, pair = i % OCTET / 2;
                const int activation = activations[row * K + (bits == 4 ? octet + i % 2 * QUAD + pair : i)];
                const double scale = activation_scales[row * chunks + i / CHUNK];
                if (fabs(activation * scale - x[row * K + i]) > 0.51 * scale) return 0;
                const uint8_t both = codes[((group * K + i) / OCTET * COLUMNS + within) * QUAD + pair];
                const uint8_t whole = codes[((group * K + i) / QUAD * COLUMNS + within) * QUAD + i % QUAD];
                const int code = bits == 8 ? whole - 128 : (i % 2 ? both >> 4 : both & 15) - 8;
                const float of_block = scales[(group * (K / block) + i / block) * COLUMNS + within];
                sum += (double)activation * code * scale * of_block;
            }
            if (sum < lowest) sum = lowest;
            if (fabs(sum - y[row * N + column]) > (bits == 4 ? 1e-3 : 1e-2)) return 0;
        }
    return 1;
}

static int all_right(const BlockInstructions *instructions) {
    for (int rows = 1; rows <= MOST_CHECKED; rows++)
        for (int64_t block = HALF_CHUNK; block <= 2 * CHUNK; block *= 2)
            if (!right(instructions, block, rows, 4) || !right(instructions, block, rows, 8)) return 0;
    return 1;
}

const BlockInstructions *block_instructions_here(void) {
    static const BlockInstructions *known;
    if (known != NULL) return known;
    const BlockInstructions *found[2];
    const size_t count = found_here(found);
    for (size_t i = 0; i < count; i++)
        if (all_right(found[i])) return known = found[i];
    return NULL;
}
