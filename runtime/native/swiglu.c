/* SwiGLU of domain "edgeformer" (arXiv:2002.05202): a half of its input gates the other. Where this library does not run,
   it is the operators of ONNX Runtime that the function of its name has.

       packed    float32 (..., 2 * width), the gate and what it gates
       y         float32 (..., width), gate * sigmoid(gate) times the other half */

#include "runtime.h"
#include "vectors.h"

#include <stddef.h>

#define NAME "SwiGLU"

enum { STEP = 8 };      /* that width is a multiple of */
enum { ROWS_EACH = 4 }; /* that a thread computes at once */
enum { COST = 16 };     /* of an element, in multiplications of a product */

typedef struct {
    const float *packed;
    float *y;
    int64_t rows, width;
} Work;

#if defined(__x86_64__)

#include "form_avx2.h"

#include "exponential_form.h"
#include "swiglu_form.h"

#include "form_end.h"

#include "form_avx512.h"

#include "exponential_form.h"
#include "swiglu_form.h"

static void gate_part(void *given, size_t part) {
    const Work *work = given;
    const int64_t first = (int64_t)part * ROWS_EACH, left = work->rows - first;
    for (int64_t row = first; row < first + (left < ROWS_EACH ? left : ROWS_EACH); row++) {
        const float *gate = work->packed + row * 2 * work->width;
        if (has_avx512() && work->width % 16 == 0)
            gate_row_avx512(gate, gate + work->width, work->width, work->y + row * work->width);
        else
            gate_row_avx2(gate, gate + work->width, work->width, work->y + row * work->width);
    }
}

#else

static void gate_part(void *work, size_t part) { (void)work, (void)part; }

#endif

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    static int nothing;
    (void)operator, (void)given, (void)info;
    *made = &nothing;
    return NULL;
}

static void destroy(void *kernel) { (void)kernel; }

static Status *compute(void *given, Context *context) {
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    const Value *value;
    Value *y;
    void *data;
    (void)given;
    TRY(INPUT(context, 0, &value));
    TRY(shape_of(value, shape, &rank));
    if (rank < 1 || shape[rank - 1] % (2 * STEP)) return fail(NAME, "packed must be as wide as a multiple of 16");
    Work work = {.rows = 1, .width = shape[rank - 1] / 2};
    for (size_t axis = 0; axis + 1 < rank; axis++) work.rows *= shape[axis];
    shape[rank - 1] = work.width;
    TRY(TENSOR_DATA(value, &data));
    work.packed = data;
    TRY(OUTPUT(context, 0, shape, rank, &y));
    TRY(TENSOR_DATA(y, &data));
    work.y = data;
    const size_t parts = (size_t)((work.rows + ROWS_EACH - 1) / ROWS_EACH);
    return do_all(context, gate_part, parts, &work, work.rows * work.width < SMALL / COST);
}

static const char *name(const Operator *operator) { return (void)operator, NAME; }

const Operator swiglu = OPERATOR(name, is_float, one, one, compute);
