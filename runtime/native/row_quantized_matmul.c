/* RowQuantizedMatMul of domain "edgeformer", and RowQuantizedMatMulRelu, whose result has zeros for what is below: a product in int8 whose activations are quantized row by row, as one
   operator of ONNX Runtime.

       x       float32 (..., k)
       codes   int8 (n / 16, k / 4, 16, 4), constant: of the weight (n, k), sixteen columns of the product with four of
               their inputs after one another, the order in which they are read
       scales  float32 (n,), of the columns
       bias    float32 (n,)
       y       float32 (..., n)

   Each bit of y is what the function of this name in the graph gives, made of ONNX Runtime's own operators, which runs
   where this library does not: sums are whole numbers, and the rest is computed in the same order. */

#include "row_products.h"
#include "rows.h"

#include <stdlib.h>

#define NAME "RowQuantizedMatMul"
#define WITH_RELU NAME "Relu"

enum { X, CODES, SCALES, BIAS, INPUT_COUNT };

/* One node's constants. */
typedef struct {
    const RowInstructions *instructions;
    int64_t n, k;
    float lowest;
    int32_t offsets[]; /* (n,) */
} Kernel;

typedef struct {
    Rows rows;
    const RowInstructions *instructions;
    RowProduct product;
    uint8_t *activations;
    float *row_scales;
} Work;

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    int is_constant;
    const Value *value;
    void *data;
    (void)given;
    TRY(CONSTANT_INPUT(info, CODES, &is_constant, &value));
    if (!is_constant) return fail(NAME, "codes must be constant");
    TRY(shape_of(value, shape, &rank));
    if (rank != 4 || shape[1] * QUAD % INPUTS || shape[2] != COLUMNS || shape[3] != QUAD)
        return fail(NAME, "codes must have the shape (n / 16, k / 4, 16, 4), and k be a multiple of 32; optimize the "
                          "bundle again if another version made it");
    TRY(TENSOR_DATA(value, &data));
    const int64_t n = shape[0] * COLUMNS, quads = shape[1];
    Kernel *kernel = calloc(1, sizeof *kernel + (size_t)n * sizeof kernel->offsets[0]);
    if (kernel == NULL) return fail(NAME, "no memory");
    kernel->instructions = row_instructions_here();
    kernel->n = n, kernel->k = quads * QUAD, kernel->lowest = lowest_of(operator);
    const int8_t *codes = data;
    for (int64_t first = 0; first < n; first += COLUMNS)
        for (int64_t quad = 0; quad < quads; quad++)
            for (int64_t column = first; column < first + COLUMNS; column++)
                for (int i = 0; i < QUAD; i++) kernel->offsets[column] += ZERO_POINT * *codes++;
    *made = kernel;
    return NULL;
}

static void destroy(void *kernel) { free(kernel); }

static void place(Rows *rows, void *memory, int64_t count) {
    Work *work = (Work *)rows;
    work->row_scales = memory;
    work->activations = (uint8_t *)(work->row_scales + count);
    work->product.row_scales = work->row_scales, work->product.activations = work->activations;
}

static void quantize(Rows *rows, int64_t row, const float *x) {
    Work *work = (Work *)rows;
    work->row_scales[row] = work->instructions->quantize(x, work->activations + row * rows->k, rows->k);
}

static void multiply(Rows *rows, int64_t first, int64_t end) {
    const Work *work = (const Work *)rows;
    RowProduct product = work->product;
    product.rows = rows->held, product.y = rows->y;
    work->instructions->multiply(&product, first, end);
}

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    void *codes, *scales, *bias;
    TRY(input_data(context, CODES, &codes));
    TRY(input_data(context, SCALES, &scales));
    TRY(input_data(context, BIAS, &bias));
    Work work = {
        .rows = {.name = NAME,
                 .n = kernel->n,
                 .k = kernel->k,
                 .together = COLUMNS * GROUPS,
                 .column_bytes = (size_t)kernel->k,
                 .row_bytes = (size_t)kernel->k + sizeof(float),
                 .place = place,
                 .quantize = quantize,
                 .multiply = multiply},
        .instructions = kernel->instructions,
        .product = {.codes = codes,
                    .scales = scales,
                    .bias = bias,
                    .offsets = kernel->offsets,
                    .n = kernel->n,
                    .k = kernel->k,
                    .lowest = kernel->lowest},
    };
    return multiply_rows(context, &work.rows);
}

static const char *name(const Operator *operator) { return (void)operator, NAME; }
static const char *name_with_relu(const Operator *operator) { return (void)operator, WITH_RELU; }
static int input_type(const Operator *operator, size_t at) { return (void)operator, at == CODES ? INT8 : FLOAT; }
static size_t input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }

const Operator row_quantized_matmul = OPERATOR(name, input_type, input_count, one, compute);

const Operator row_quantized_matmul_relu = OPERATOR(name_with_relu, input_type, input_count, one, compute);
