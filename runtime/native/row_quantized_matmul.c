/* RowQuantizedMatMul of domain "edgeformer": a product in int8 whose activations are quantized row by row, as one
   operator of ONNX Runtime.

       x       float32 (..., k)
       codes   int8 (n / 4, k / 32, 4, 32), constant: of the weight (n, k), four columns of the product with 32 of their
               inputs after one another, the order in which they are read
       scales  float32 (n,), of the columns
       bias    float32 (n,)
       y       float32 (..., n)

   Each bit of y is what the function of this name in the graph gives, made of ONNX Runtime's own operators, which runs
   where this library does not: sums are whole numbers, and the rest is computed in the same order. */

#include "products.h"
#include "runtime.h"

#include <stdlib.h>

enum { X, CODES, SCALES, BIAS, INPUT_COUNT };
enum { ACTIVATIONS_AT_ONCE = 64 << 10 }; /* bytes that stay in the second cache while all columns go by */
enum { CODES_AT_ONCE = 16 << 10 };       /* bytes that stay in the first while those rows go by */
enum { ROWS_EACH = 16 };                 /* that a thread quantizes at once */

/* One node's constants. */
typedef struct {
    const Instructions *instructions;
    int64_t n, k;
    int32_t offsets[]; /* (n,) */
} Kernel;

typedef struct {
    const Instructions *instructions;
    Product product;
    const float *x;
    uint8_t *activations;
    float *row_scales;
    int64_t columns_each;
} Work;

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    int is_constant;
    const Value *value;
    void *data;
    (void)operator, (void)given;
    TRY(CONSTANT_INPUT(info, CODES, &is_constant, &value));
    if (!is_constant) return fail("RowQuantizedMatMul: codes must be constant");
    TRY(shape_of(value, shape, &rank));
    if (rank != 4 || shape[2] != COLUMNS || shape[3] != INPUTS)
        return fail("RowQuantizedMatMul: codes must have the shape (n / 4, k / 32, 4, 32)");
    TRY(TENSOR_DATA(value, &data));
    const int64_t n = shape[0] * COLUMNS, groups = shape[1];
    Kernel *kernel = calloc(1, sizeof *kernel + (size_t)n * sizeof kernel->offsets[0]);
    if (kernel == NULL) return fail("RowQuantizedMatMul: no memory");
    kernel->instructions = instructions_here();
    kernel->n = n, kernel->k = groups * INPUTS;
    const int8_t *codes = data;
    for (int64_t column = 0; column < n; column += COLUMNS)
        for (int64_t group = 0; group < groups; group++)
            for (int64_t c = column; c < column + COLUMNS; c++, codes += INPUTS) {
                int32_t sum = 0;
                for (int i = 0; i < INPUTS; i++) sum += codes[i];
                kernel->offsets[c] += ZERO_POINT * sum;
            }
    *made = kernel;
    return NULL;
}

static void destroy(void *kernel) { free(kernel); }

static void quantize_rows(void *given, size_t part) {
    const Work *work = given;
    const int64_t k = work->product.k, first = (int64_t)part * ROWS_EACH;
    const int64_t end = first + ROWS_EACH < work->product.rows ? first + ROWS_EACH : work->product.rows;
    for (int64_t row = first; row < end; row++)
        work->row_scales[row] = work->instructions->quantize(work->x + row * k, work->activations + row * k, k);
}

static void multiply_columns(void *given, size_t part) {
    const Work *work = given;
    const int64_t first = (int64_t)part * work->columns_each, end = first + work->columns_each;
    work->instructions->multiply(&work->product, first, end < work->product.n ? end : work->product.n);
}

static Status *multiply(Context *context, Work *work) {
    const Product *product = &work->product;
    const int is_small = product->rows * product->n <= SMALL / product->k;
    const int64_t rows_parts = (product->rows + ROWS_EACH - 1) / ROWS_EACH;
    const int64_t column_parts = (product->n + work->columns_each - 1) / work->columns_each;
    TRY(do_all(context, quantize_rows, (size_t)rows_parts, work, is_small));
    return do_all(context, multiply_columns, (size_t)column_parts, work, is_small);
}

static Status *input(const Context *context, size_t at, const void **data) {
    const Value *value;
    void *found;
    TRY(INPUT(context, at, &value));
    TRY(TENSOR_DATA(value, &found));
    *data = found;
    return NULL;
}

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    const int64_t n = kernel->n, k = kernel->k;
    int64_t shape[MOST_DIMENSIONS], rows = 1;
    size_t rank;
    const Value *x;
    Value *y;
    const void *codes, *scales, *bias;
    void *data;
    TRY(INPUT(context, X, &x));
    TRY(shape_of(x, shape, &rank));
    if (rank < 1 || shape[rank - 1] != k) return fail("RowQuantizedMatMul: x is not as wide as codes");
    for (size_t axis = 0; axis + 1 < rank; axis++) rows *= shape[axis];
    shape[rank - 1] = n;
    TRY(OUTPUT(context, 0, shape, rank, &y));
    if (rows == 0) return NULL;
    TRY(input(context, CODES, &codes));
    TRY(input(context, SCALES, &scales));
    TRY(input(context, BIAS, &bias));
    Work work = {.instructions = kernel->instructions, .product = {.codes = codes, .scales = scales, .bias = bias, .offsets = kernel->offsets, .n = n, .k = k}};
    TRY(TENSOR_DATA(x, &data));
    work.x = data;
    TRY(TENSOR_DATA(y, &data));
    work.product.y = data;
    const int64_t columns = CODES_AT_ONCE / k / COLUMNS * COLUMNS, rows_at_once = ACTIVATIONS_AT_ONCE / k + 1;
    work.columns_each = columns < COLUMNS ? COLUMNS : columns;
    const int64_t held = rows < rows_at_once ? rows : rows_at_once;
    work.row_scales = malloc((size_t)held * sizeof(float) + (size_t)(held * k));
    if (work.row_scales == NULL) return fail("RowQuantizedMatMul: no memory for activations");
    work.activations = (uint8_t *)(work.row_scales + held);
    work.product.activations = work.activations, work.product.row_scales = work.row_scales;
    Status *status = NULL;
    for (int64_t done = 0; done < rows && status == NULL; done += held) {
        work.product.rows = held < rows - done ? held : rows - done;
        status = multiply(context, &work);
        work.x += held * k, work.product.y += held * n;
    }
    free(work.row_scales);
    return status;
}

static const char *name(const Operator *operator) { return (void)operator, "RowQuantizedMatMul"; }
static int input_type(const Operator *operator, size_t at) { return (void)operator, at == CODES ? INT8 : FLOAT; }
static size_t input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }
static int output_type(const Operator *operator, size_t at) { return (void)operator, (void)at, FLOAT; }
static size_t output_count(const Operator *operator) { return (void)operator, 1; }

const Operator row_quantized_matmul = {
    ANSWERS,
    .name = name,
    .input_type = input_type,
    .input_count = input_count,
    .output_type = output_type,
    .output_count = output_count,
    .input_characteristic = is_required,
    .create_or_fail = create,
    .compute_or_fail = compute,
    .destroy = destroy,
};
