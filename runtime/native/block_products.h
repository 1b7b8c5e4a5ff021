/* Products with weights of 4 bits in blocks, by the instructions that the processor has. Activations are rounded to 8
   bits on the way, each chunk of a row by its own largest value. */

#ifndef EDGEFORMER_BLOCK_PRODUCTS_H
#define EDGEFORMER_BLOCK_PRODUCTS_H

#include <stdint.h>

enum { CHUNK = 64, HALF_CHUNK = CHUNK / 2, TOGETHER = 4, MIDDLE = 8 };

/* y = activations * (codes - MIDDLE), times both scales, + bias. n is a multiple of TOGETHER, k of CHUNK and block. */
typedef struct {
    const int8_t *activations;      /* (rows, k), in each chunk the even ones before the odd ones */
    const float *activation_scales; /* (rows, k / CHUNK) */
    const float *offsets;           /* (rows, k / block, block at most CHUNK), what MIDDLE adds to the sum of so many */
    const uint8_t *codes; /* (n / TOGETHER, k / CHUNK, TOGETHER, HALF_CHUNK), two codes a byte, the even one low */
    const float *scales;  /* (n / TOGETHER, k / block, TOGETHER) */
    const float *bias;    /* (n,) */
    float *y;             /* (rows, n) */
    int64_t rows, n, k, block;
} BlockProduct;

typedef struct {
    /* One row: k codes, k / CHUNK scales, and offsets for blocks of so many inputs. */
    void (*quantize)(const float *x, int8_t *codes, float *scales, float *offsets, int64_t k, int64_t block);
    /* Columns from `first` to before `end`, both multiples of TOGETHER, of all rows. */
    void (*multiply)(const BlockProduct *product, int64_t first, int64_t end);
} BlockInstructions;

/* The fastest that this processor has and that compute right; NULL if there are none. */
const BlockInstructions *block_instructions_here(void);

#endif
