/* Attention of tokens over a cache or over a source, in float32, block by block of its keys: no matrix of scores is kept
   ("FlashAttention", arXiv:2205.14135, "Online normalizer calculation for softmax", arXiv:1805.02867). */

#ifndef EDGEFORMER_ATTENTION_H
#define EDGEFORMER_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_HEAD_DIM = 256, HEAD_STEP = 8 };

/* Keys or values: those of a row's head follow `token` floats after one another. */
typedef struct {
    float *data;
    int64_t row, head, token;
} Heads;

/* Heads are groups of heads / kv_heads that share keys and values. A row is one text of the batch. */
typedef struct {
    const float *query, *key, *value;               /* of the first new token */
    int64_t query_stride, key_stride, value_stride; /* floats from a token to the next; rows follow one another */
    Heads keys, values;  /* what tokens attend to: caches of `capacity` tokens, written at the new ones, or a source */
    const int32_t *last; /* (batch,), the position of each row's last token */
    const int32_t *lengths;       /* (batch,), where tokens attend to all of a source; NULL for caches */
    const float *cosines, *sines; /* (positions, head_dim / 2), or NULL: what turns query and key */
    float *y;                     /* (batch, q_len, heads * head_dim) */
    int64_t batch, q_len, heads, kv_heads, head_dim, capacity;
    int64_t window;  /* how many tokens a token sees, itself among them; below 1 for all */
    int is_first;    /* caches are empty: rows begin at 0, whatever their lengths */
    int interleaved; /* pairs that are turned are neighbours, and not half a head apart */
    float scale;
    int64_t heads_each, tokens_each; /* of a part of the work, set by `plan_attention`, as is */
    int is_wide;                     /* whether registers have sixteen numbers */
} Attention;

int attention_runs_here(void);

/* Chooses the parts; returns how many `attend` has. `write_caches`, which has batch * kv_heads, comes before. */
size_t plan_attention(Attention *attention);
void write_caches(void *attention, size_t part);
void attend(void *attention, size_t part);

#endif
