/* BlockQuantizedMatMul of domain "edgeformer", and BlockQuantizedMatMulRelu, whose result has zeros for what is below: a product with weights of 4 or 8 bits in blocks, activations rounded to 8
   bits in chunks of 64 on the way. Where this library does not run, it is the MatMulNBits that the function of its name
   has.

       x       float32 (..., k)
       codes   uint8, constant: of the weight (n, k), sixteen columns of the product with some of their inputs after one
               another: (n / 16, k / 4, 16, 4) of 8 bits, where 128 stands for 0; (n / 16, k / 8, 16, 4) of 4 bits, two
               to a byte, the first low, where 8 stands for 0
       scales  float32 (n / 16, k / block, 16), of the blocks
       bias    float32 (n,)
       y       float32 (..., n)

   Attribute: bits. */

#include "block_products.h"
#include "rows.h"

#include <stdlib.h>

#define NAME "BlockQuantizedMatMul"
#define WITH_RELU NAME "Relu"

enum { X, CODES, SCALES, BIAS, INPUT_COUNT };

/* One node's sizes. */
typedef struct {
    const BlockInstructions *instructions;
    int64_t n, k, block, bits;
    float lowest;
} Kernel;

typedef struct {
    Rows rows;
    const Kernel *kernel;
    BlockProduct product;
    int8_t *activations;
    float *scales;
    int32_t *offsets;
} Work;

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    int64_t codes[MOST_DIMENSIONS], scales[MOST_DIMENSIONS], bits;
    size_t rank, scales_rank;
    int is_constant, scales_are;
    const Value *value, *of_blocks;
    (void)given;
    TRY(CONSTANT_INPUT(info, CODES, &is_constant, &value));
    TRY(CONSTANT_INPUT(info, SCALES, &scales_are, &of_blocks));
    if (!is_constant || !scales_are) return fail(NAME, "codes and scales must be constant");
    TRY(shape_of(value, codes, &rank));
    TRY(shape_of(of_blocks, scales, &scales_rank));
    TRY(INTEGER_ATTRIBUTE(info, "bits", &bits));
    if (bits != 4 && bits != 8) return fail(NAME, "bits must be 4 or 8");
    const int64_t n = codes[0] * COLUMNS, k = codes[1] * QUAD * 8 / bits;
    if (rank != 4 || k % CHUNK || codes[2] != COLUMNS || codes[3] != QUAD)
        return fail(NAME,
                    "codes must have the shape (n / 16, k / 4, 16, 4), or of 4 bits (n / 16, k / 8, 16, 4), and k "
                    "be a multiple of 64; optimize the bundle again if another version made it");
    if (scales_rank != 3 || scales[0] != codes[0] || scales[1] < 1 || scales[2] != COLUMNS)
        return fail(NAME, "scales must have the shape (n / 16, k / block, 16)");
    const int64_t block = k / scales[1];
    if (block * scales[1] != k || (block != HALF_CHUNK && block % CHUNK))
        return fail(NAME, "blocks must be 32 inputs, or a multiple of 64");
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return fail(NAME, "no memory");
    *kernel = (Kernel){block_instructions_here(), n, k, block, bits, lowest_of(operator)};
    *made = kernel;
    return NULL;
}

static void destroy(void *kernel) { free(kernel); }

static int64_t offsets_each(const Kernel *kernel) { return kernel->k / (kernel->block < CHUNK ? HALF_CHUNK : CHUNK); }

static void place(Rows *rows, void *memory, int64_t count) {
    Work *work = (Work *)rows;
    work->scales = memory;
    work->offsets = (int32_t *)(work->scales + count * (rows->k / CHUNK));
    work->activations = (int8_t *)(work->offsets + count * offsets_each(work->kernel));
    work->product.activations = work->activations;
    work->product.activation_scales = work->scales, work->product.offsets = work->offsets;
}

static void quantize(Rows *rows, int64_t row, const float *x) {
    const Work *work = (const Work *)rows;
    const Kernel *kernel = work->kernel;
    kernel->instructions->quantize(x, work->activations + row * rows->k, work->scales + row * (rows->k / CHUNK),
                                   work->offsets + row * offsets_each(kernel), rows->k, kernel->block, kernel->bits);
}

static void multiply(Rows *rows, int64_t first, int64_t end) {
    const Work *work = (const Work *)rows;
    BlockProduct product = work->product;
    product.rows = rows->held, product.y = rows->y;
    work->kernel->instructions->multiply(&product, first, end);
}

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    void *codes, *scales, *bias;
    TRY(input_data(context, CODES, &codes));
    TRY(input_data(context, SCALES, &scales));
    TRY(input_data(context, BIAS, &bias));
    const size_t floats = (size_t)(kernel->k / CHUNK + offsets_each(kernel));
    Work work = {
        .rows = {.name = NAME,
                 .n = kernel->n,
                 .k = kernel->k,
                 .together = COLUMNS * GROUPS,
                 .column_bytes = (size_t)(kernel->k * kernel->bits / 8),
                 .row_bytes = (size_t)kernel->k + floats * sizeof(float),
                 .place = place,
                 .quantize = quantize,
                 .multiply = multiply},
        .kernel = kernel,
        .product = {.codes = codes,
                    .scales = scales,
                    .bias = bias,
                    .n = kernel->n,
                    .k = kernel->k,
                    .block = kernel->block,
                    .bits = kernel->bits,
                    .lowest = kernel->lowest},
    };
    return multiply_rows(context, &work.rows);
}

static const char *name(const Operator *operator) { return (void)operator, NAME; }
static const char *name_with_relu(const Operator *operator) { return (void)operator, WITH_RELU; }
static int input_type(const Operator *operator, size_t at) { return (void)operator, at == CODES ? UINT8 : FLOAT; }
static size_t input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }

const Operator block_quantized_matmul = OPERATOR(name, input_type, input_count, one, compute);

const Operator block_quantized_matmul_relu = OPERATOR(name_with_relu, input_type, input_count, one, compute);
