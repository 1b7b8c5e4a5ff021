/* PanelMatMul of domain "edgeformer", and PanelMatMulRelu, whose result has zeros for what is below: a product in float32.
   Where this library does not run, it is the MatMul that the function of its name has.

       x         float32 (..., k)
       weight    float32 (n / 64, k, 64), constant: of the weight (k, n), 64 columns after one another, the order in which
                 they are read
       bias      float32 (n,)
       y         float32 (..., n) */

#include "runtime.h"
#include "vectors.h"

#include <stdlib.h>
#include <string.h>

#define NAME "PanelMatMul"

enum { X, WEIGHT, BIAS, INPUT_COUNT };
enum { PANEL = 64 };
enum { ROWS_EACH = 48 };    /* of a part */
enum { INPUTS_EACH = 256 }; /* that are multiplied before the next: so many of a panel stay in the second cache */

typedef struct {
    int64_t n, k;
    float lowest;
} Kernel;

typedef struct {
    const float *x, *weight, *bias;
    float *y;
    int64_t rows, n, k, row_parts;
    float lowest;
} Work;

#if defined(__x86_64__)

#include "form_avx2.h"

#include "matrices_form.h"
#include "panel_form.h"

#include "form_end.h"

#include "form_avx512.h"

#include "matrices_form.h"
#include "panel_form.h"

static void multiply_part(void *work, size_t part) {
    (has_avx512() ? multiply_panel_avx512 : multiply_panel_avx2)(work, (int64_t)part);
}

#else

static void multiply_part(void *work, size_t part) { (void)work, (void)part; }

#endif

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    int is_constant;
    const Value *value;
    (void)given;
    TRY(CONSTANT_INPUT(info, WEIGHT, &is_constant, &value));
    if (!is_constant) return fail(NAME, "weight must be constant");
    TRY(shape_of(value, shape, &rank));
    if (rank != 3 || shape[2] != PANEL)
        return fail(NAME,
                    "weight must have the shape (n / 64, k, 64); optimize the bundle again if another version made "
                    "it");
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return fail(NAME, "no memory");
    kernel->n = shape[0] * PANEL, kernel->k = shape[1], kernel->lowest = lowest_of(operator);
    *made = kernel;
    return NULL;
}

static void destroy(void *kernel) { free(kernel); }

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    const Value *value;
    Value *y;
    void *data[INPUT_COUNT], *result;
    for (size_t at = 0; at < INPUT_COUNT; at++) TRY(input_data(context, at, &data[at]));
    TRY(INPUT(context, X, &value));
    TRY(shape_of(value, shape, &rank));
    if (rank < 1 || shape[rank - 1] != kernel->k) return fail(NAME, "x is not as wide as the weight");
    Work work = {.x = data[X],
                 .weight = data[WEIGHT],
                 .bias = data[BIAS],
                 .rows = 1,
                 .n = kernel->n,
                 .k = kernel->k,
                 .lowest = kernel->lowest};
    for (size_t axis = 0; axis + 1 < rank; axis++) work.rows *= shape[axis];
    shape[rank - 1] = kernel->n;
    TRY(OUTPUT(context, 0, shape, rank, &y));
    TRY(TENSOR_DATA(y, &result));
    work.y = result;
    work.row_parts = (work.rows + ROWS_EACH - 1) / ROWS_EACH;
    const size_t parts = (size_t)(work.row_parts * (work.n / PANEL));
    return do_all(context, multiply_part, parts, &work, work.rows * work.n <= SMALL / work.k);
}

static const char *name(const Operator *operator) { return (void)operator, NAME; }
static const char *name_with_relu(const Operator *operator) { return (void)operator, NAME "Relu"; }
static size_t input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }

const Operator panel_matmul = OPERATOR(name, is_float, input_count, one, compute);

const Operator panel_matmul_relu = OPERATOR(name_with_relu, is_float, input_count, one, compute);
