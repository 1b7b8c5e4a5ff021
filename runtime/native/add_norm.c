/* A sum and its norm, as two operators of domain "edgeformer". Where this library does not run, they are the operators
   of ONNX Runtime that the functions of their names have.

       x, residual    float32 (..., width)
       weight         float32 (width,)
       bias           float32 (width,), of AddLayerNormalization alone
       y              float32 (..., width): LayerNormalization (arXiv:1607.06450) of the sum, or RMSNormalization
                      (arXiv:1910.07467), over the last axis
       total          float32 (..., width), the sum

   Attribute: epsilon, added to the variance or to the mean of the squares. */

#include "runtime.h"
#include "vectors.h"

#include <math.h>
#include <stdlib.h>

enum { X, RESIDUAL, WEIGHT, BIAS };
enum { VECTOR = 8 };     /* that width is a multiple of */
enum { ROWS_EACH = 16 }; /* that a thread computes at once */
enum { COST = 8 };       /* of an element, in multiplications of a product */

typedef struct {
    float epsilon;
} Kernel;

typedef struct {
    const float *x, *residual, *weight, *bias; /* without a bias no mean is subtracted either */
    float *y, *total;
    int64_t rows, width;
    float epsilon;
} Work;

#if defined(__x86_64__)

AVX2 static SPECIALIZED void normalize(const Work *work, int64_t row, const int centered) {
    const int64_t width = work->width;
    const float *x = work->x + row * width, *residual = work->residual + row * width;
    float *y = work->y + row * width, *total = work->total + row * width;
    __m256 sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (int64_t i = 0; i < width; i += VECTOR) {
        const __m256 both = _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(residual + i));
        _mm256_storeu_ps(total + i, both);
        if (centered) sum = _mm256_add_ps(sum, both);
    }
    const __m256 mean = _mm256_set1_ps(centered ? sum_of(sum) / (float)width : 0);
    for (int64_t i = 0; i < width; i += VECTOR) {
        const __m256 off = _mm256_sub_ps(_mm256_loadu_ps(total + i), mean);
        squares = _mm256_fmadd_ps(off, off, squares);
    }
    const __m256 factor = _mm256_set1_ps(1.0f / sqrtf(sum_of(squares) / (float)width + work->epsilon));
    for (int64_t i = 0; i < width; i += VECTOR) {
        const __m256 off = _mm256_sub_ps(_mm256_loadu_ps(total + i), mean);
        const __m256 weighted = _mm256_mul_ps(_mm256_mul_ps(off, factor), _mm256_loadu_ps(work->weight + i));
        _mm256_storeu_ps(y + i, centered ? _mm256_add_ps(weighted, _mm256_loadu_ps(work->bias + i)) : weighted);
    }
}

AVX2 static void normalize_part(void *given, size_t part) {
    const Work *work = given;
    const int64_t first = (int64_t)part * ROWS_EACH, left = work->rows - first;
    for (int64_t row = first; row < first + (left < ROWS_EACH ? left : ROWS_EACH); row++) {
        if (work->bias != NULL)
            normalize(work, row, 1);
        else
            normalize(work, row, 0);
    }
}

#else

static void normalize_part(void *work, size_t part) { (void)work, (void)part; }

#endif

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    (void)given;
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return fail(operator->name(operator), "no memory");
    Status *status = FLOAT_ATTRIBUTE(info, "epsilon", &kernel->epsilon);
    if (status != NULL) free(kernel);
    *made = status == NULL ? kernel : NULL;
    return status;
}

static void destroy(void *kernel) { free(kernel); }

static Status *output(Context *context, size_t at, const int64_t *shape, size_t rank, float **data) {
    Value *value;
    void *found;
    TRY(OUTPUT(context, at, shape, rank, &value));
    TRY(TENSOR_DATA(value, &found));
    *data = found;
    return NULL;
}

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    int64_t shape[MOST_DIMENSIONS], other[MOST_DIMENSIONS];
    size_t rank, other_rank, count;
    const Value *value;
    void *data[BIAS + 1] = {NULL};
    TRY(INPUT_COUNT_OF(context, &count));
    const char *name = count > BIAS ? "AddLayerNormalization" : "AddRMSNormalization";
    for (size_t at = 0; at < count; at++) TRY(input_data(context, at, &data[at]));
    TRY(INPUT(context, X, &value));
    TRY(shape_of(value, shape, &rank));
    TRY(INPUT(context, RESIDUAL, &value));
    TRY(shape_of(value, other, &other_rank));
    int alike = rank == other_rank && rank > 0;
    for (size_t axis = 0; alike && axis < rank; axis++) alike = shape[axis] == other[axis];
    if (!alike) return fail(name, "x and residual must have the same shape");
    TRY(INPUT(context, WEIGHT, &value));
    TRY(shape_of(value, other, &other_rank));
    const int64_t width = shape[rank - 1];
    if (other_rank != 1 || other[0] != width || width % VECTOR)
        return fail(name, "x must be as wide as the weight, and that a multiple of 8");
    Work work = {data[X], data[RESIDUAL], data[WEIGHT], data[BIAS], NULL, NULL, 1, width, kernel->epsilon};
    for (size_t axis = 0; axis + 1 < rank; axis++) work.rows *= shape[axis];
    TRY(output(context, 0, shape, rank, &work.y));
    TRY(output(context, 1, shape, rank, &work.total));
    const size_t parts = (size_t)((work.rows + ROWS_EACH - 1) / ROWS_EACH);
    return do_all(context, normalize_part, parts, &work, work.rows * width < SMALL / COST);
}

static const char *layer_name(const Operator *operator) { return (void)operator, "AddLayerNormalization"; }
static const char *rms_name(const Operator *operator) { return (void)operator, "AddRMSNormalization"; }
static size_t with_bias(const Operator *operator) { return (void)operator, BIAS + 1; }
static size_t without_bias(const Operator *operator) { return (void)operator, BIAS; }
static size_t two(const Operator *operator) { return (void)operator, 2; }

const Operator add_layer_normalization = OPERATOR(layer_name, is_float, with_bias, two, compute);

const Operator add_rms_normalization = OPERATOR(rms_name, is_float, without_bias, two, compute);
