#include "row_products.h"

#include <math.h>
#include <stddef.h>

static const float STEP = 1.0f / 127.0f, SMALLEST = 1e-12f; /* of a row's scale */

enum { MOST_CHECKED = 13 }; /* rows: one more than are computed at once */

#if defined(__x86_64__)

AVX2 static __m256i codes_of(const float *x, __m256 scale) {
    const __m256i rounded = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x), scale));
    return _mm256_add_epi32(rounded, _mm256_set1_epi32(ZERO_POINT));
}

AVX2 static float quantize_avx2(const float *x, uint8_t *codes, int64_t k) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* what packing does within halves, undone */
    __m256 most = _mm256_setzero_ps();
    for (int64_t i = 0; i < k; i += 8) most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude));
    float scale = largest_of(most) * STEP;
    if (scale < SMALLEST) scale = SMALLEST;
    const __m256 scales = _mm256_set1_ps(scale);
    for (int64_t i = 0; i < k; i += 32) {
        const __m256i first = _mm256_packs_epi32(codes_of(x + i, scales), codes_of(x + i + 8, scales));
        const __m256i second = _mm256_packs_epi32(codes_of(x + i + 16, scales), codes_of(x + i + 24, scales));
        const __m256i bytes = _mm256_packus_epi16(first, second);
        _mm256_storeu_si256((__m256i *)(codes + i), _mm256_permutevar8x32_epi32(bytes, in_order));
    }
    return scale;
}

AVX512 static float quantize_avx512(const float *x, uint8_t *codes, int64_t k) {
    __m512 most = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += 16) most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
    float scale = _mm512_reduce_max_ps(most) * STEP;
    if (scale < SMALLEST) scale = SMALLEST;
    const __m512 scales = _mm512_set1_ps(scale);
    const __m512i zero_point = _mm512_set1_epi32(ZERO_POINT);
    for (int64_t i = 0; i < k; i += 16) {
        const __m512i rounded = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_loadu_ps(x + i), scales));
        _mm_storeu_si128((__m128i *)(codes + i), _mm512_cvtepi32_epi8(_mm512_add_epi32(rounded, zero_point)));
    }
    return scale;
}

/* Sixteen columns of some rows. Two products of activation and code are added in 16 bits, which codes of up to 64 leave
   room for. Sums are kept in `splits` parts, where there would be too few to add to while others are being added to. */
AVX2 static SPECIALIZED void tile_avx2(const RowProduct *p, int64_t row, int64_t column, const int rows,
                                       const int splits) {
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *x = p->activations + row * p->k;
    const int8_t *codes = p->codes + column * p->k;
    __m256i sums[4][4][2];
#pragma GCC unroll 4
    for (int s = 0; s < splits; s++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) sums[s][r][half] = _mm256_setzero_si256();
    for (int64_t i = 0; i < p->k; i += splits * QUAD, codes += splits * QUAD * COLUMNS) {
#pragma GCC unroll 4
        for (int s = 0; s < splits; s++) {
            const __m256i *of_columns = (const __m256i *)(codes + s * QUAD * COLUMNS);
            SOON(of_columns + COLUMNS * p->k / (int64_t)sizeof *of_columns);
            const __m256i of_halves[2] = {_mm256_loadu_si256(of_columns), _mm256_loadu_si256(of_columns + 1)};
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const __m256i quad = quad_avx2(x + r * p->k + i + s * QUAD);
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    const __m256i pairs = _mm256_maddubs_epi16(quad, of_halves[half]);
                    sums[s][r][half] = _mm256_add_epi32(sums[s][r][half], _mm256_madd_epi16(pairs, ones));
                    IN_REGISTER(sums[s][r][half]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const int64_t first = column + half * COLUMNS / 2;
            __m256i sum = sums[0][r][half];
#pragma GCC unroll 4
            for (int s = 1; s < splits; s++) sum = _mm256_add_epi32(sum, sums[s][r][half]);
            sum = _mm256_sub_epi32(sum, _mm256_loadu_si256((const __m256i *)(p->offsets + first)));
            __m256 result = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(p->scales + first));
            result = _mm256_mul_ps(result, _mm256_broadcast_ss(p->row_scales + row + r));
            result = _mm256_add_ps(result, _mm256_loadu_ps(p->bias + first));
            _mm256_storeu_ps(p->y + (row + r) * p->n + first, _mm256_max_ps(_mm256_set1_ps(p->lowest), result));
        }
}

/* Sixteen columns of some rows, as above, or `groups` times as many. */
AVX512 static SPECIALIZED void tile_avx512(const RowProduct *p, int64_t row, int64_t column, const int rows,
                                           const int splits, const int groups) {
    const uint8_t *x = p->activations + row * p->k;
    const int8_t *codes = p->codes + column * p->k;
    const int64_t group_codes = COLUMNS * p->k;
    __m512i sums[4][12][2];
#pragma GCC unroll 4
    for (int s = 0; s < splits; s++)
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) sums[s][r][g] = _mm512_setzero_si512();
    for (int64_t i = 0; i < p->k; i += splits * QUAD, codes += splits * QUAD * COLUMNS) {
#pragma GCC unroll 4
        for (int s = 0; s < splits; s++) {
            __m512i of_columns[2];
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                of_columns[g] = _mm512_loadu_si512(codes + g * group_codes + s * QUAD * COLUMNS);
                SOON(codes + (g + groups) * group_codes + s * QUAD * COLUMNS);
            }
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                const __m512i quad = quad_avx512(x + r * p->k + i + s * QUAD);
#pragma GCC unroll 2
                for (int g = 0; g < groups; g++) {
                    sums[s][r][g] = _mm512_dpbusd_epi32(sums[s][r][g], quad, of_columns[g]);
                    IN_REGISTER(sums[s][r][g]);
                }
            }
        }
    }
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        const int64_t first = column + g * COLUMNS;
        const __m512i offsets = _mm512_loadu_si512(p->offsets + first);
        const __m512 scales = _mm512_loadu_ps(p->scales + first), bias = _mm512_loadu_ps(p->bias + first);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __m512i sum = sums[0][r][g];
#pragma GCC unroll 4
            for (int s = 1; s < splits; s++) sum = _mm512_add_epi32(sum, sums[s][r][g]);
            __m512 result = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, offsets)), scales);
            result = _mm512_mul_ps(result, _mm512_set1_ps(p->row_scales[row + r]));
            result = _mm512_max_ps(_mm512_set1_ps(p->lowest), _mm512_add_ps(result, bias));
            _mm512_storeu_ps(p->y + (row + r) * p->n + first, result);
        }
    }
}

AVX2 static SPECIALIZED void rows_avx2(const RowProduct *p, int64_t row, int64_t first, int64_t end, const int rows,
                                       const int splits) {
    for (int64_t column = first; column < end; column += COLUMNS) tile_avx2(p, row, column, rows, splits);
}

AVX512 static SPECIALIZED void rows_avx512(const RowProduct *p, int64_t row, int64_t first, int64_t end, const int rows,
                                           const int splits, const int groups) {
    int64_t column = first;
    for (; column + groups * COLUMNS <= end; column += groups * COLUMNS)
        tile_avx512(p, row, column, rows, splits, groups);
    if (column < end) tile_avx512(p, row, column, rows, splits, 1);
}

#define CASE(instructions, rows, ...)                                                                                  \
    case rows:                                                                                                         \
        rows_##instructions(p, row, first, end, rows, __VA_ARGS__);                                                    \
        break;

AVX2 static void multiply_avx2(const RowProduct *p, int64_t first, int64_t end) {
    for (int64_t row = 0, rows; row < p->rows; row += rows) {
        rows = rows_each(p->rows - row, 4);
        switch (rows) {
            CASE(avx2, 1, 4)
            CASE(avx2, 2, 2)
            CASE(avx2, 3, 1)
            CASE(avx2, 4, 1)
        }
    }
}

/* For few rows codes come from memory, which one stream of them has more from than two. */
AVX512 static void multiply_avx512(const RowProduct *p, int64_t first, int64_t end) {
    for (int64_t row = 0, rows; row < p->rows; row += rows) {
        rows = rows_each(p->rows - row, 12);
        switch (rows) {
            CASE(avx512, 1, 4, 1)
            CASE(avx512, 2, 4, 1)
            CASE(avx512, 3, 4, 1)
            CASE(avx512, 4, 2, 2)
            CASE(avx512, 5, 1, 2)
            CASE(avx512, 6, 1, 2)
            CASE(avx512, 7, 1, 2)
            CASE(avx512, 8, 1, 2)
            CASE(avx512, 9, 1, 2)
            CASE(avx512, 10, 1, 2)
            CASE(avx512, 11, 1, 2)
            CASE(avx512, 12, 1, 2)
        }
    }
}

static const RowInstructions avx2 = {"AVX2", quantize_avx2, multiply_avx2};
static const RowInstructions avx512 = {"AVX-512 VNNI", quantize_avx512, multiply_avx512};

static size_t found_here(const RowInstructions *found[2]) {
    size_t count = 0;
    if (has_avx512()) found[count++] = &avx512;
    if (has_avx2()) found[count++] = &avx2;
    return count;
}

#else

static size_t found_here(const RowInstructions *found[2]) { return (void)found, 0; }

#endif

/* Whether instructions multiply so many rows as plain arithmetic does, to the last bit. */
static int right(const RowInstructions *instructions, int rows) {
    enum { N = 3 * COLUMNS, K = 64 };
    float x[MOST_CHECKED * K], row_scales[MOST_CHECKED], scales[N], bias[N], y[MOST_CHECKED * N];
    uint8_t activations[MOST_CHECKED * K];
    int8_t codes[N * K];
    int32_t offsets[N] = {0};
    uint32_t state = 1; /* of a linear congruential generator */
#define NEXT(most) ((int)((state = state * 1664525u + 1013904223u) >> 16) % (2 * (most) + 1) - (most))
    for (int i = 0; i < rows * K; i++) x[i] = (float)NEXT(1000) / 256;
    for (int i = 0; i < N * K; i++) codes[i] = (int8_t)NEXT(64);
    for (int i = 0; i < N; i++) scales[i] = (float)(NEXT(50) + 60) / 1024, bias[i] = (float)NEXT(100) / 16;
#undef NEXT
#define CODE(column, i)                                                                                                \
    codes[((column) / COLUMNS * K + (i) / QUAD * QUAD) * COLUMNS + (column) % COLUMNS * QUAD + (i) % QUAD]
    for (int column = 0; column < N; column++)
        for (int i = 0; i < K; i++) offsets[column] += ZERO_POINT * CODE(column, i);
    for (int row = 0; row < rows; row++)
        row_scales[row] = instructions->quantize(x + row * K, activations + row * K, K);
    const float lowest = rows % 2 ? -INFINITY : 0;
    const RowProduct product = {activations, row_scales, codes, offsets, scales, bias, y, rows, N, K, lowest};
    instructions->multiply(&product, 0, N);
    for (int row = 0; row < rows; row++) {
        float largest = 0;
        for (int i = 0; i < K; i++) largest = fabsf(x[row * K + i]) > largest ? fabsf(x[row * K + i]) : largest;
        const float scale = largest * STEP;
        if (row_scales[row] != scale) return 0;
        for (int column = 0; column < N; column++) {
            int32_t sum = 0;
            for (int i = 0; i < K; i++) sum += (int32_t)nearbyintf(x[row * K + i] / scale) * CODE(column, i);
            const float expected = (float)sum * scales[column] * scale + bias[column];
            if (y[row * N + column] != (expected > lowest ? expected : lowest)) return 0;
        }
    }
#undef CODE
    return 1;
}

static int all_right(const RowInstructions *instructions) {
    for (int rows = 1; rows <= MOST_CHECKED; rows++)
        if (!right(instructions, rows)) return 0;
    return 1;
}

const RowInstructions *row_instructions_here(void) {
    static const RowInstructions *known;
    if (known != NULL) return known;
    const RowInstructions *found[2];
    const size_t count = found_here(found);
    for (size_t i = 0; i < count; i++)
        if (all_right(found[i])) return known = found[i];
    return NULL;
}
