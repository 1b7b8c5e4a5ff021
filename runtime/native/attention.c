#include "attention.h"

#include "vectors.h"

#include <string.h>

#if defined(__x86_64__)

enum { KEYS = 128 }; /* of a block, whose scores and values stay in the second cache */
enum { ROWS = 48 };  /* at most, of a part: queries of some tokens and heads */

static const float HIDDEN = -1e30f; /* the score of a key that is not seen */

/* The rows of one part: what their softmax needs so far, and their results. */
typedef struct {
    float queries[ROWS * MOST_HEAD_DIM], results[ROWS * MOST_HEAD_DIM]; /* (rows, head_dim) */
    float scores[ROWS * KEYS], largest[ROWS], sums[ROWS];
    float turned[MOST_HEAD_DIM * KEYS]; /* keys of a block, (head_dim, KEYS) */
} Part;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int attention_runs_here(void) { return has_avx2(); }

size_t plan_attention(Attention *a) {
    a->is_wide = has_avx512() && a->head_dim % 16 == 0;
    const int64_t group = a->heads / a->kv_heads;
    a->heads_each = least(group, ROWS);
    a->tokens_each = least(a->q_len, ROWS / a->heads_each);
    const int64_t by_heads = (group + a->heads_each - 1) / a->heads_each;
    const int64_t by_tokens = (a->q_len + a->tokens_each - 1) / a->tokens_each;
    return (size_t)(a->batch * a->kv_heads * by_heads * by_tokens);
}

/* The position of a row's first new token. */
static int64_t first_position(const Attention *a, int64_t row) { return a->is_first ? 0 : a->last[row] + 1 - a->q_len; }

AVX2 static SPECIALIZED void turn_pairs(const float *restrict x, const float *restrict cosines,
                                        const float *restrict sines, int64_t count, float factor,
                                        float *restrict turned, const int64_t step, int64_t apart) {
    for (int64_t i = 0; i < count; i++) {
        const float first = x[i * step], second = x[i * step + apart];
        turned[i * step] = (first * cosines[i] - second * sines[i]) * factor;
        turned[i * step + apart] = (second * cosines[i] + first * sines[i]) * factor;
    }
}

/* A head of a token at a position, turned as RoFormer has it (arXiv:2104.09864), times a factor. */
AVX2 static void turn(const Attention *a, const float *x, int64_t position, float factor, float *turned) {
    const int64_t half = a->head_dim / 2;
    if (a->cosines == NULL) {
        for (int64_t i = 0; i < a->head_dim; i++) turned[i] = x[i] * factor;
        return;
    }
    const float *cosines = a->cosines + position * half, *sines = a->sines + position * half;
    if (a->interleaved)
        turn_pairs(x, cosines, sines, half, factor, turned, 2, 1);
    else
        turn_pairs(x, cosines, sines, half, factor, turned, 1, half);
}

AVX2 void write_caches(void *given, size_t part) {
    const Attention *a = given;
    const int64_t row = (int64_t)part / a->kv_heads, head = (int64_t)part % a->kv_heads, begin = first_position(a, row);
    float *keys = a->keys.data + row * a->keys.row + head * a->keys.head;
    float *values = a->values.data + row * a->values.row + head * a->values.head;
    for (int64_t token = 0; token < a->q_len; token++) {
        const int64_t position = begin + token, at = row * a->q_len + token;
        const float *key = a->key + at * a->key_stride + head * a->head_dim;
        const float *value = a->value + at * a->value_stride + head * a->head_dim;
        turn(a, key, position, 1.0f, keys + position * a->keys.token);
        memcpy(values + position * a->values.token, value, (size_t)a->head_dim * sizeof(float));
    }
}

/* Where there is one query for a key, keys are read as they lie, and multiplied with it one by one. */

enum { STEP = 8 };

AVX2 static inline __m128 sums_of(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

/* Scores of some rows with four keys. */
AVX2 static SPECIALIZED void score_tile(const float *queries, const float *const keys[4], int64_t head_dim,
                                        float *scores, const int rows) {
    __m256 sums[2][4];
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < 4; k++) sums[r][k] = _mm256_setzero_ps();
    for (int64_t i = 0; i < head_dim; i += STEP) {
        __m256 of_row[2];
        for (int r = 0; r < rows; r++) of_row[r] = _mm256_loadu_ps(queries + r * head_dim + i);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const __m256 key = _mm256_loadu_ps(keys[k] + i);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) sums[r][k] = _mm256_fmadd_ps(of_row[r], key, sums[r][k]);
        }
    }
    for (int r = 0; r < rows; r++)
        _mm_storeu_ps(scores + r * KEYS, sums_of(sums[r][0], sums[r][1], sums[r][2], sums[r][3]));
}

/* Scores of all rows with a block of keys; those behind its end are not seen. */
AVX2 static void score_each(Part *part, int rows, const float *keys, int64_t step, int64_t count, int64_t head_dim) {
    for (int64_t k = 0; k < count; k += 4) {
        const float *four[4];
        for (int i = 0; i < 4; i++) four[i] = keys + least(k + i, count - 1) * step;
        int row = 0;
        for (; row + 2 <= rows; row += 2)
            score_tile(part->queries + row * head_dim, four, head_dim, part->scores + row * KEYS + k, 2);
        if (row < rows) score_tile(part->queries + row * head_dim, four, head_dim, part->scores + row * KEYS + k, 1);
    }
}

/* Eight keys, eight inputs of each, turned. */
AVX2 static void turn_square_avx2(const float *const keys[8], float *turned) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(keys[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
            a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xee);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(turned + i * KEYS, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(turned + (i + 4) * KEYS, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

/* Sixteen keys, sixteen inputs of each, turned. */
AVX512 static void turn_square_avx512(const float *const keys[16], float *turned) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(keys[i]);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm512_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
            a[i + 2 * j + 1] = _mm512_shuffle_ps(b[i + j], b[i + j + 2], 0xee);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; odd++) { /* a's quarters 0 and 2, or 1 and 3, of eight keys each */
            const __m512 left =
                odd ? _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd) : _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
            const __m512 right =
                odd ? _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd) : _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
            _mm512_storeu_ps(turned + (i + 4 * odd) * KEYS, _mm512_shuffle_f32x4(left, right, 0x88));
            _mm512_storeu_ps(turned + (i + 4 * odd + 8) * KEYS, _mm512_shuffle_f32x4(left, right, 0xdd));
        }
}

/* What follows is there for registers of eight numbers and of sixteen. */

#include "form_avx2.h"

#include "exponential_form.h"
#include "matrices_form.h"

#include "attention_form.h"

#include "form_end.h"

#include "form_avx512.h"

#include "exponential_form.h"
#include "matrices_form.h"

#include "attention_form.h"

void attend(void *given, size_t part) {
    const Attention *a = given;
    if (a->is_wide)
        attend_avx512(given, part);
    else
        attend_avx2(given, part);
}

#else

int attention_runs_here(void) { return 0; }
size_t plan_attention(Attention *attention) { return (void)attention, 0; }
void write_caches(void *attention, size_t part) { (void)attention, (void)part; }
void attend(void *attention, size_t part) { (void)attention, (void)part; }

#endif
