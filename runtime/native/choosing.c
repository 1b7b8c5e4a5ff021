/* What a search takes of logits: the likeliest token of a row, or the best continuations of some. Called by Python. */

#include "choosing.h"

#include "vectors.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)

#include "form_avx2.h"

#include "exponential_form.h"

enum { STEP = VECTOR, PART = 1024 };

/* The largest number, and where it stands first. */
AVX2 static float first_largest(const float *x, int64_t n, int64_t *at) {
    __m256 most = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) most = _mm256_max_ps(most, _mm256_loadu_ps(x + i));
    float largest = largest_of(most);
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    *at = 0;
    while (*at + 1 < n && x[*at] != largest) ++*at;
    return largest;
}

/* The logarithm of the sum of exponentials: of parts whose sums are short, so that little is lost of each. */
AVX2 static float log_sum_exp(const float *x, int64_t n, float largest) {
    const __m256 offset = _mm256_set1_ps(largest);
    double total = 0;
    for (int64_t part = 0; part < n; part += PART) {
        const int64_t end = part + PART < n ? part + PART : n;
        __m256 sums = _mm256_setzero_ps();
        int64_t i = part;
        for (; i + STEP <= end; i += STEP)
            sums = _mm256_add_ps(sums, exponential_avx2(_mm256_sub_ps(_mm256_loadu_ps(x + i), offset)));
        if (i < end) {
            float rest[STEP];
            for (int j = 0; j < STEP; j++) rest[j] = i + j < end ? x[i + j] : -INFINITY;
            sums = _mm256_add_ps(sums, exponential_avx2(_mm256_sub_ps(_mm256_loadu_ps(rest), offset)));
        }
        total += sum_of(sums);
    }
    return (float)log(total) + largest;
}

AVX2 void edgeformer_choose(const float *logits, int64_t rows, int64_t step, int64_t n, int64_t *tokens,
                            float *log_probs) {
    for (int64_t row = 0; row < rows; row++, logits += step) {
        const float largest = first_largest(logits, n, tokens + row);
        log_probs[row] = largest - log_sum_exp(logits, n, largest);
    }
}

/* Puts what is better than the last of `count` where it belongs; of equals the earlier comes first. */
static void insert(float total, int64_t place, int64_t count, float *totals, int64_t *places) {
    int64_t at = count - 1;
    for (; at > 0 && totals[at - 1] < total; at--) totals[at] = totals[at - 1], places[at] = places[at - 1];
    totals[at] = total, places[at] = place;
}

AVX2 void edgeformer_best(const float *logits, int64_t sources, int64_t each, int64_t step, int64_t n,
                          const float *scores, int64_t count, float *totals, int64_t *places) {
    for (int64_t source = 0; source < sources; source++, totals += count, places += count) {
        for (int64_t i = 0; i < count; i++) totals[i] = -INFINITY, places[i] = 0;
        for (int64_t row = 0; row < each; row++, logits += step, scores++) {
            int64_t at;
            const float largest = first_largest(logits, n, &at);
            const float offset = *scores - log_sum_exp(logits, n, largest);
            const __m256 offsets = _mm256_set1_ps(offset);
            int64_t i = 0;
            for (; i + STEP <= n; i += STEP) {
                const __m256 each_total = _mm256_add_ps(_mm256_loadu_ps(logits + i), offsets);
                const __m256 better = _mm256_cmp_ps(each_total, _mm256_set1_ps(totals[count - 1]), _CMP_GT_OQ);
                if (_mm256_movemask_ps(better) == 0) continue;
                for (int64_t j = i; j < i + STEP; j++)
                    if (logits[j] + offset > totals[count - 1])
                        insert(logits[j] + offset, row * n + j, count, totals, places);
            }
            for (; i < n; i++)
                if (logits[i] + offset > totals[count - 1])
                    insert(logits[i] + offset, row * n + i, count, totals, places);
        }
    }
}

#else

void edgeformer_choose(const float *logits, int64_t rows, int64_t step, int64_t n, int64_t *tokens, float *log_probs) {
    (void)logits, (void)rows, (void)step, (void)n, (void)tokens, (void)log_probs;
}

void edgeformer_best(const float *logits, int64_t sources, int64_t each, int64_t step, int64_t n, const float *scores,
                     int64_t count, float *totals, int64_t *places) {
    (void)logits, (void)sources, (void)each, (void)step, (void)n;
    (void)scores, (void)count, (void)totals, (void)places;
}

#endif
