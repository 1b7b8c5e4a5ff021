/* Products of rows that are quantized on the way: what the operators for them share. */

#ifndef EDGEFORMER_ROWS_H
#define EDGEFORMER_ROWS_H

#include "runtime.h"

/* The work of one call; an operator's own begins with it. */
typedef struct Rows {
    const char *name;                                         /* of the operator, for messages */
    int64_t n, k, together;                                   /* columns are computed so many at once */
    size_t column_bytes, row_bytes;                           /* of a column's codes, and of a row that is quantized */
    void (*place)(struct Rows *, void *memory, int64_t rows); /* where so many rows are quantized to */
    void (*quantize)(struct Rows *, int64_t row, const float *x); /* of those that are held */
    void (*multiply)(struct Rows *, int64_t first, int64_t end);  /* columns of those that are held */
    const float *x;                                               /* of the rows that are held, as is y */
    float *y;
    int64_t held, columns_each;
} Rows;

/* Reads input 0, (..., k), and writes output 0, (..., n). */
Status *multiply_rows(Context *context, Rows *rows);

#endif
