#include "attention.h"

#include "vectors.h"

#include <string.h>

#if defined(__x86_64__)

enum { VECTOR = 8 };
enum { KEYS = 128 }; /* of a block, whose scores and values stay in the first cache */
enum { ROWS = 32 };  /* at most, of a part: queries of some tokens and heads */

static const float HIDDEN = -1e30f; /* the score of a key that is not seen */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int attention_runs_here(void) { return has_avx2(); }

size_t plan_attention(Attention *a) {
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
    for (int64_t i = 0; i < head_dim; i += VECTOR) {
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

/* exp(x) for x up to 0, within 2 units in the last place; 0 for what is below -87. */
AVX2 static inline __m256 exponential(__m256 x) {
    const __m256 seen = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_GE_OQ);
    x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
    const __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x); /* ln 2 in two parts */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 e = _mm256_set1_ps(1.0f / 720);
    const float terms[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}; /* Taylor's, |r| < 0.35 */
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(terms[i]));
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(e, _mm256_castsi256_ps(exponent)), seen);
}

/* Adds the values of a block, weighted, to `width` vectors of some rows' results. */
AVX2 static SPECIALIZED void value_tile(const float *weights, const float *values, int64_t step, int64_t keys,
                                        int64_t head_dim, float *results, const int rows, const int width) {
    __m256 sums[2][4];
    for (int r = 0; r < rows; r++)
        for (int w = 0; w < width; w++) sums[r][w] = _mm256_loadu_ps(results + r * head_dim + w * VECTOR);
    for (int64_t k = 0; k < keys; k++) {
        __m256 weight[2];
        for (int r = 0; r < rows; r++) weight[r] = _mm256_broadcast_ss(weights + r * KEYS + k);
#pragma GCC unroll 4
        for (int w = 0; w < width; w++) {
            const __m256 value = _mm256_loadu_ps(values + k * step + w * VECTOR);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) sums[r][w] = _mm256_fmadd_ps(weight[r], value, sums[r][w]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int w = 0; w < width; w++) _mm256_storeu_ps(results + r * head_dim + w * VECTOR, sums[r][w]);
}

AVX2 static SPECIALIZED void add_values(const float *weights, const float *values, int64_t step, int64_t keys,
                                        int64_t head_dim, float *results, const int rows) {
    int64_t i = 0;
    for (; i + 4 * VECTOR <= head_dim; i += 4 * VECTOR)
        value_tile(weights, values + i, step, keys, head_dim, results + i, rows, 4);
    for (; i < head_dim; i += VECTOR) value_tile(weights, values + i, step, keys, head_dim, results + i, rows, 1);
}

/* The rows of one part: what their softmax needs so far, and their results. */
typedef struct {
    float queries[ROWS * MOST_HEAD_DIM], results[ROWS * MOST_HEAD_DIM]; /* (rows, head_dim) */
    float scores[ROWS * KEYS], largest[ROWS], sums[ROWS];
} Part;

/* Turns a block's scores of one row into weights, relative to the largest score so far. */
AVX2 static void weigh(Part *part, int row, int64_t keys, int64_t head_dim) {
    float *scores = part->scores + row * KEYS, *results = part->results + row * head_dim;
    __m256 most = _mm256_set1_ps(part->largest[row]), sum = _mm256_setzero_ps();
    for (int64_t k = 0; k < keys; k += VECTOR) most = _mm256_max_ps(most, _mm256_loadu_ps(scores + k));
    const float largest = largest_of(most);
    const __m256 offset = _mm256_set1_ps(largest);
    const __m256 kept = exponential(_mm256_sub_ps(_mm256_set1_ps(part->largest[row]), offset));
    for (int64_t k = 0; k < keys; k += VECTOR) {
        const __m256 weights = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + k), offset));
        _mm256_storeu_ps(scores + k, weights);
        sum = _mm256_add_ps(sum, weights);
    }
    part->largest[row] = largest;
    part->sums[row] = part->sums[row] * _mm256_cvtss_f32(kept) + sum_of(sum);
    for (int64_t i = 0; i < head_dim; i += VECTOR)
        _mm256_storeu_ps(results + i, _mm256_mul_ps(_mm256_loadu_ps(results + i), kept));
}

/* Scores of all rows with a block of keys; those behind its end are not seen. */
AVX2 static void score(Part *part, int rows, const float *keys, int64_t step, int64_t count, int64_t head_dim) {
    for (int64_t k = 0; k < count; k += 4) {
        const float *four[4];
        for (int i = 0; i < 4; i++) four[i] = keys + least(k + i, count - 1) * step;
        int row = 0;
        for (; row + 2 <= rows; row += 2)
            score_tile(part->queries + row * head_dim, four, head_dim, part->scores + row * KEYS + k, 2);
        if (row < rows) score_tile(part->queries + row * head_dim, four, head_dim, part->scores + row * KEYS + k, 1);
    }
}

AVX2 void attend(void *given, size_t number) {
    const Attention *a = given;
    const int64_t head_dim = a->head_dim, group = a->heads / a->kv_heads;
    const int64_t by_tokens = (a->q_len + a->tokens_each - 1) / a->tokens_each;
    const int64_t by_heads = (group + a->heads_each - 1) / a->heads_each;
    int64_t left = (int64_t)number; /* of (batch, kv_heads, by_heads, by_tokens), with the longest texts first */
    const int64_t token = (by_tokens - 1 - left % by_tokens) * a->tokens_each;
    const int64_t head_in_group = (left /= by_tokens) % by_heads * a->heads_each;
    const int64_t shared = left / by_heads, row = shared / a->kv_heads, kv_head = shared % a->kv_heads;
    const int64_t heads = least(a->heads_each, group - head_in_group), tokens = least(a->tokens_each, a->q_len - token);
    const int64_t first_head = kv_head * group + head_in_group;
    const int64_t first = a->lengths == NULL ? first_position(a, row) + token : 0;
    const int rows = (int)(heads * tokens);
    const float *keys = a->keys.data + row * a->keys.row + kv_head * a->keys.head;
    const float *values = a->values.data + row * a->values.row + kv_head * a->values.head;
    Part part;
    for (int r = 0; r < rows; r++) {
        const int64_t t = r / heads, head = first_head + r % heads;
        const float *query = a->query + (row * a->q_len + token + t) * a->query_stride + head * head_dim;
        turn(a, query, first + t, a->scale, part.queries + r * head_dim);
        part.largest[r] = HIDDEN, part.sums[r] = 0;
    }
    memset(part.results, 0, (size_t)(rows * head_dim) * sizeof(float));
    const int64_t end = a->lengths == NULL ? first + tokens : a->lengths[row]; /* of the keys that any row sees */
    const int64_t begin = a->window > 0 && first + 1 > a->window ? (first + 1 - a->window) / KEYS * KEYS : 0;
    for (int64_t block = begin; block < end; block += KEYS) {
        const int64_t count = least(KEYS, end - block), padded = (count + VECTOR - 1) / VECTOR * VECTOR;
        score(&part, rows, keys + block * a->keys.token, a->keys.token, count, head_dim);
        for (int r = 0; r < rows; r++) {
            float *scores = part.scores + r * KEYS;
            const int64_t position = a->lengths == NULL ? first + r / heads : end - 1;
            const int64_t hidden = a->window > 0 ? position + 1 - a->window - block : 0;
            for (int64_t k = 0; k < least(hidden, count); k++) scores[k] = HIDDEN;
            for (int64_t k = position + 1 - block > 0 ? position + 1 - block : 0; k < padded; k++) scores[k] = HIDDEN;
            weigh(&part, r, padded, head_dim);
        }
        const float *of_block = values + block * a->values.token;
        int r = 0;
        for (; r + 2 <= rows; r += 2)
            add_values(part.scores + r * KEYS, of_block, a->values.token, count, head_dim, part.results + r * head_dim,
                       2);
        if (r < rows)
            add_values(part.scores + r * KEYS, of_block, a->values.token, count, head_dim, part.results + r * head_dim,
                       1);
    }
    for (int r = 0; r < rows; r++) {
        const int64_t t = r / heads, head = first_head + r % heads;
        float *y = a->y + (row * a->q_len + token + t) * a->heads * head_dim + head * head_dim;
        const float share = part.sums[r] > 0 ? 1.0f / part.sums[r] : 0; /* of a source of no tokens */
        for (int64_t i = 0; i < head_dim; i++) y[i] = part.results[r * head_dim + i] * share;
    }
}

#else

int attention_runs_here(void) { return 0; }
size_t plan_attention(Attention *attention) { return (void)attention, 0; }
void write_caches(void *attention, size_t part) { (void)attention, (void)part; }
void attend(void *attention, size_t part) { (void)attention, (void)part; }

#endif
