/* Products with weights of 4 or 8 bits in blocks, by the instructions that the processor has. Activations are rounded to 8
   bits on the way, each chunk of a row by its own largest value. */

#ifndef EDGEFORMER_BLOCK_PRODUCTS_H
#define EDGEFORMER_BLOCK_PRODUCTS_H

#include "vectors.h"

#include <stdint.h>

enum { CHUNK = 64, HALF_CHUNK = CHUNK / 2, OCTET = 2 * QUAD };

/* y = activations * (codes - middle), times both scales, + bias, or `lowest` where that is more. n is a multiple of COLUMNS, k of CHUNK and block. */
typedef struct {
    const int8_t *activations;      /* (rows, k); for 4 bits, of each octet the even ones before the odd ones */
    const float *activation_scales; /* (rows, k / CHUNK) */
    const int32_t *offsets; /* (rows, k / block, block at most CHUNK): the sum of so many activations, times -middle */
    const uint8_t
        *codes; /* (n / COLUMNS, k / QUAD, COLUMNS, QUAD), or of 4 bits (n / COLUMNS, k / OCTET, COLUMNS, QUAD),
                               two a byte, the even one low; `middle` of them, 8 or 128, stands for 0 */
    const float *scales; /* (n / COLUMNS, k / block, COLUMNS) */
    const float *bias;   /* (n,) */
    float *y;            /* (rows, n) */
    int64_t rows, n, k, block, bits;
    float lowest; /* 0, or -INFINITY to leave numbers as they are */
} BlockProduct;

typedef struct {
    const char *name;
    /* One row: k codes, k / CHUNK scales, and offsets for blocks of so many inputs. */
    void (*quantize)(const float *x, int8_t *codes, float *scales, int32_t *offsets, int64_t k, int64_t block,
                     int64_t bits);
    /* Columns from `first` to before `end`, both multiples of COLUMNS, of all rows. */
    void (*multiply)(const BlockProduct *product, int64_t first, int64_t end);
} BlockInstructions;

/* The fastest that this processor has and that compute right; NULL if there are none. */
const BlockInstructions *block_instructions_here(void);

#endif
