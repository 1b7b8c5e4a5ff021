/* What a search takes of logits. They run where `edgeformer_instructions` names any. */

#ifndef EDGEFORMER_CHOOSING_H
#define EDGEFORMER_CHOOSING_H

#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* The first of the likeliest tokens of each row, (rows,), and its log-probability. Rows of n logits begin `step` floats
   after one another. */
EXPORTED void edgeformer_choose(const float *logits, int64_t rows, int64_t step, int64_t n, int64_t *tokens,
                                float *log_probs);

/* The best continuations of each source, of whose running texts there are `each`, (sources, count), best first: the sum
   of a text's score and a token's log-probability, and text * n + token. -INFINITY where there are fewer. */
EXPORTED void edgeformer_best(const float *logits, int64_t sources, int64_t each, int64_t step, int64_t n,
                              const float *scores, int64_t count, float *totals, int64_t *places);

#endif
