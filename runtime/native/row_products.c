#include "row_products.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const float STEP = 1.0f / 127.0f, SMALLEST = 1e-12f; /* of a row's scale */

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define SPECIALIZED inline __attribute__((always_inline)) /* for the constant that is its last argument */

AVX2 static __m256i codes_of(const float *x, __m256 scale) {
    const __m256i rounded = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x), scale));
    return _mm256_add_epi32(rounded, _mm256_set1_epi32(ZERO_POINT));
}

AVX2 static float quantize(const float *x, uint8_t *codes, int64_t k) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* what packing does within halves, undone */
    __m256 most = _mm256_setzero_ps();
    for (int64_t i = 0; i < k; i += 8) most = _mm256_max_ps(most, _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude));
    float each[8], largest = 0;
    _mm256_storeu_ps(each, most);
    for (int i = 0; i < 8; i++) largest = each[i] > largest ? each[i] : largest;
    float scale = largest * STEP;
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

/* Turns the sums of four columns, each in eight parts, into four results of a row. */
AVX2 static inline void finish(const RowProduct *p, int64_t row, int64_t column, __m256i a, __m256i b, __m256i c,
                               __m256i d) {
    const __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    sums = _mm_sub_epi32(sums, _mm_loadu_si128((const __m128i *)(p->offsets + column)));
    __m128 result = _mm_mul_ps(_mm_cvtepi32_ps(sums), _mm_loadu_ps(p->scales + column));
    result = _mm_mul_ps(result, _mm_set1_ps(p->row_scales[row]));
    _mm_storeu_ps(p->y + row * p->n + column, _mm_add_ps(result, _mm_loadu_ps(p->bias + column)));
}

/* Two products of activation and code are added in 16 bits here, which codes of up to 64 leave room for. */
AVX2 static SPECIALIZED void tile_avx2(const RowProduct *p, int64_t row, int64_t column, const int rows) {
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *x = p->activations + row * p->k;
    const int8_t *codes = p->codes + column * p->k;
    __m256i sums[2][COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLUMNS; c++) sums[r][c] = _mm256_setzero_si256();
    for (int64_t i = 0; i < p->k; i += INPUTS, codes += COLUMNS * INPUTS) {
        __m256i inputs[2];
        for (int r = 0; r < rows; r++) inputs[r] = _mm256_loadu_si256((const __m256i *)(x + r * p->k + i));
#pragma GCC unroll 4
        for (int c = 0; c < COLUMNS; c++) {
            const __m256i of_column = _mm256_loadu_si256((const __m256i *)(codes + c * INPUTS));
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const __m256i pairs = _mm256_maddubs_epi16(inputs[r], of_column);
                sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(pairs, ones));
                __asm__("" : "+x"(sums[r][c])); /* keeps the order, in which the sixteen registers are enough */
            }
        }
    }
    for (int r = 0; r < rows; r++) finish(p, row + r, column, sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
}

AVX2 static void multiply_avx2(const RowProduct *p, int64_t first, int64_t end) {
    int64_t row = 0;
    for (; row + 2 <= p->rows; row += 2)
        for (int64_t column = first; column < end; column += COLUMNS) tile_avx2(p, row, column, 2);
    if (row < p->rows)
        for (int64_t column = first; column < end; column += COLUMNS) tile_avx2(p, row, column, 1);
}

/* Two columns share a register: their codes follow each other, and the row's activations stand in it twice. */
AVX512 static SPECIALIZED void tile_avx512(const RowProduct *p, int64_t row, int64_t column, const int rows) {
    const uint8_t *x = p->activations + row * p->k;
    const int8_t *codes = p->codes + column * p->k;
    __m512i sums[4][2];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 2; c++) sums[r][c] = _mm512_setzero_si512();
    for (int64_t i = 0; i < p->k; i += INPUTS, codes += COLUMNS * INPUTS) {
        const __m512i left = _mm512_loadu_si512(codes), right = _mm512_loadu_si512(codes + 2 * INPUTS);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const __m256i once = _mm256_loadu_si256((const __m256i *)(x + r * p->k + i));
            const __m512i twice = _mm512_broadcast_i64x4(once);
            sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], twice, left);
            sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], twice, right);
        }
    }
    for (int r = 0; r < rows; r++)
        finish(p, row + r, column, _mm512_castsi512_si256(sums[r][0]), _mm512_extracti64x4_epi64(sums[r][0], 1),
               _mm512_castsi512_si256(sums[r][1]), _mm512_extracti64x4_epi64(sums[r][1], 1));
}

AVX512 static void multiply_avx512(const RowProduct *p, int64_t first, int64_t end) {
    int64_t row = 0;
    for (; row + 4 <= p->rows; row += 4)
        for (int64_t column = first; column < end; column += COLUMNS) tile_avx512(p, row, column, 4);
    for (; row < p->rows; row++)
        for (int64_t column = first; column < end; column += COLUMNS) tile_avx512(p, row, column, 1);
}

static const RowInstructions avx2 = {"AVX2", quantize, multiply_avx2};
static const RowInstructions avx512 = {"AVX-512 VNNI", quantize, multiply_avx512};

static size_t found_here(const RowInstructions *found[2]) {
    size_t count = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 0;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        found[count++] = &avx512;
    found[count++] = &avx2;
    return count;
}

#else

static size_t found_here(const RowInstructions *found[2]) { return (void)found, 0; }

#endif

/* Whether instructions multiply a small matrix as plain arithmetic does, to the last bit. */
static int right(const RowInstructions *instructions) {
    enum { ROWS = 5, N = 8, K = 64 };
    float x[ROWS * K], row_scales[ROWS], scales[N], bias[N], y[ROWS * N];
    uint8_t activations[ROWS * K];
    int8_t codes[N * K];
    int32_t offsets[N] = {0};
    uint32_t state = 1; /* of a linear congruential generator */
#define NEXT(most) ((int)((state = state * 1664525u + 1013904223u) >> 16) % (2 * (most) + 1) - (most))
    for (int i = 0; i < ROWS * K; i++) x[i] = (float)NEXT(1000) / 256;
    for (int i = 0; i < N * K; i++) codes[i] = (int8_t)NEXT(64);
    for (int i = 0; i < N; i++) scales[i] = (float)(NEXT(50) + 60) / 1024, bias[i] = (float)NEXT(100) / 16;
#undef NEXT
#define CODE(column, i)                                                                                                \
    codes[(column) / COLUMNS * COLUMNS * K + (i) / INPUTS * COLUMNS * INPUTS + (column) % COLUMNS * INPUTS +           \
          (i) % INPUTS]
    for (int column = 0; column < N; column++)
        for (int i = 0; i < K; i++) offsets[column] += ZERO_POINT * CODE(column, i);
    for (int row = 0; row < ROWS; row++)
        row_scales[row] = instructions->quantize(x + row * K, activations + row * K, K);
    const RowProduct product = {activations, row_scales, codes, offsets, scales, bias, y, ROWS, N, K};
    instructions->multiply(&product, 0, N);
    for (int row = 0; row < ROWS; row++) {
        float largest = 0;
        for (int i = 0; i < K; i++) largest = fabsf(x[row * K + i]) > largest ? fabsf(x[row * K + i]) : largest;
        const float scale = largest * STEP;
        if (row_scales[row] != scale) return 0;
        for (int column = 0; column < N; column++) {
            int32_t sum = 0;
            for (int i = 0; i < K; i++) sum += (int32_t)nearbyintf(x[row * K + i] / scale) * CODE(column, i);
            if (y[row * N + column] != (float)sum * scales[column] * scale + bias[column]) return 0;
        }
    }
#undef CODE
    return 1;
}

const RowInstructions *row_instructions_here(void) {
    static const RowInstructions *known;
    if (known != NULL) return known;
    const RowInstructions *found[2];
    const size_t count = found_here(found);
    for (size_t i = 0; i < count; i++)
        if (right(found[i])) return known = found[i];
    return NULL;
}
