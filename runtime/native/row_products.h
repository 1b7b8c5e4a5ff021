/* Products in int8 of rows with columns, by the instructions that the processor has. */

#ifndef EDGEFORMER_ROW_PRODUCTS_H
#define EDGEFORMER_ROW_PRODUCTS_H

#include "vectors.h"

#include <stdint.h>

enum { INPUTS = 32, ZERO_POINT = 128 };

/* y = (activations - ZERO_POINT) * codes, times both scales, + bias, or `lowest` where that is more. n is a multiple of COLUMNS, k of INPUTS. */
typedef struct {
    const uint8_t *activations; /* (rows, k) */
    const float *row_scales;    /* (rows,) */
    const int8_t *codes;        /* (n / COLUMNS, k / QUAD, COLUMNS, QUAD), from -64 to 64 */
    const int32_t *offsets;     /* (n,), ZERO_POINT times the sum of a column's codes */
    const float *scales, *bias; /* (n,) */
    float *y;                   /* (rows, n) */
    int64_t rows, n, k;
    float lowest; /* 0, or -INFINITY to leave numbers as they are */
} RowProduct;

typedef struct {
    const char *name;
    /* Codes of one row of k activations; returns the row's scale. */
    float (*quantize)(const float *x, uint8_t *codes, int64_t k);
    /* Columns from `first` to before `end`, both multiples of COLUMNS, of all rows. */
    void (*multiply)(const RowProduct *product, int64_t first, int64_t end);
} RowInstructions;

/* The fastest that this processor has and that compute right; NULL if there are none, and ONNX Runtime's own operators
   are to be used. */
const RowInstructions *row_instructions_here(void);

#endif
