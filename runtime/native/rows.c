#include "rows.h"

#include <stdlib.h>

enum { ROWS_AT_ONCE = 64 << 10 };     /* bytes that stay in the second cache while all columns go by */
enum { CODES_AT_ONCE = 16 << 10 };    /* bytes that stay in the first while those rows go by */
enum { ROWS_EACH = 16 };              /* that a thread quantizes at once */
enum { FEW_ROWS = 4, FEW_PARTS = 8 }; /* so few read codes once or twice: then parts are large */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void quantize_part(void *given, size_t part) {
    Rows *rows = given;
    const int64_t first = (int64_t)part * ROWS_EACH, end = least(first + ROWS_EACH, rows->held);
    for (int64_t row = first; row < end; row++) rows->quantize(rows, row, rows->x + row * rows->k);
}

static void multiply_part(void *given, size_t part) {
    Rows *rows = given;
    const int64_t first = (int64_t)part * rows->columns_each;
    rows->multiply(rows, first, least(first + rows->columns_each, rows->n));
}

static Status *multiply_held(Context *context, Rows *rows) {
    const int is_small = rows->held * rows->n <= SMALL / rows->k;
    const int64_t quantized = (rows->held + ROWS_EACH - 1) / ROWS_EACH;
    const int64_t multiplied = (rows->n + rows->columns_each - 1) / rows->columns_each;
    TRY(do_all(context, quantize_part, (size_t)quantized, rows, is_small));
    return do_all(context, multiply_part, (size_t)multiplied, rows, is_small);
}

Status *multiply_rows(Context *context, Rows *rows) {
    int64_t shape[MOST_DIMENSIONS], count = 1;
    size_t rank;
    const Value *x;
    Value *y;
    void *data;
    TRY(INPUT(context, 0, &x));
    TRY(shape_of(x, shape, &rank));
    if (rank < 1 || shape[rank - 1] != rows->k) return fail(rows->name, "x is not as wide as codes");
    for (size_t axis = 0; axis + 1 < rank; axis++) count *= shape[axis];
    shape[rank - 1] = rows->n;
    TRY(OUTPUT(context, 0, shape, rank, &y));
    if (count == 0) return NULL;
    TRY(TENSOR_DATA(x, &data));
    rows->x = data;
    TRY(TENSOR_DATA(y, &data));
    rows->y = data;
    const int64_t columns = CODES_AT_ONCE / (int64_t)rows->column_bytes / rows->together * rows->together;
    rows->columns_each = columns < rows->together ? rows->together : columns;
    const int64_t large = (rows->n / FEW_PARTS + rows->together) / rows->together * rows->together;
    if (count <= FEW_ROWS && rows->columns_each < large) rows->columns_each = large;
    const int64_t most = least(count, ROWS_AT_ONCE / (int64_t)rows->row_bytes + 1);
    void *memory = malloc((size_t)most * rows->row_bytes);
    if (memory == NULL) return fail(rows->name, "no memory for activations");
    rows->place(rows, memory, most);
    Status *status = NULL;
    for (int64_t done = 0; done < count && status == NULL; done += most) {
        rows->held = least(most, count - done);
        status = multiply_held(context, rows);
        rows->x += most * rows->k, rows->y += most * rows->n;
    }
    free(memory);
    return status;
}
