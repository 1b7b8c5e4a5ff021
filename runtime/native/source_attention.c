/* Attention over all of a source, in float32, as two operators of domain "edgeformer". Where this library does not run,
   they are the MultiHeadAttention that the functions of their names have.

   SourceAttention: of tokens over the keys and values of a source, which consecutive rows may share.

       query           float32 (rows, q_len, heads * head_dim)
       key, value      float32 (sources, heads, source_len, head_dim), rows being a multiple of sources
       lengths         int32 (sources,), of the sources
       source_shape    int64 (3,), of the query by sources, and
       row_shape       int64 (3,), of y: for the function
       y               float32 (rows, q_len, heads * head_dim)

   SelfAttention: of a source over itself.

       packed          float32 (batch, source_len, 3 * heads * head_dim), query, key and value
       lengths         int32 (batch,)
       y               float32 (batch, source_len, heads * head_dim)

   Attributes: num_heads, scale (0 for 1 / sqrt(head_dim)). */

#include "attention.h"
#include "runtime.h"

#include <math.h>
#include <stdlib.h>

enum { QUERY, KEY, VALUE, LENGTHS, SOURCE_SHAPE, ROW_SHAPE, INPUT_COUNT };
enum { PACKED, PACKED_LENGTHS, PACKED_COUNT };

static const char *const over_source = "SourceAttention", *const over_itself = "SelfAttention";

typedef struct {
    int64_t heads;
    float scale;
} Kernel;

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    (void)given;
    const char *name = operator->name(operator);
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return fail(name, "no memory");
    Status *status = INTEGER_ATTRIBUTE(info, "num_heads", &kernel->heads);
    if (status == NULL) status = FLOAT_ATTRIBUTE(info, "scale", &kernel->scale);
    if (status == NULL && kernel->heads < 1) status = fail(name, "num_heads must be at least 1");
    if (status != NULL) free(kernel);
    *made = status == NULL ? kernel : NULL;
    return status;
}

static void destroy(void *kernel) { free(kernel); }

/* The rest, once it is known where queries, keys and values are; y has the shape of the query. */
static Status *attend_to_all(Context *context, const char *name, const Kernel *kernel, Attention *a, int64_t source_len,
                             const int64_t shape[3], size_t lengths_at) {
    void *data;
    Value *y;
    if (a->head_dim < HEAD_STEP || a->head_dim > MOST_HEAD_DIM || a->head_dim % HEAD_STEP)
        return fail(name, "head_dim must be a multiple of 8, up to 256");
    TRY(input_data(context, lengths_at, &data));
    a->lengths = data, a->heads = a->kv_heads = kernel->heads;
    a->scale = kernel->scale != 0 ? kernel->scale : 1.0f / sqrtf((float)a->head_dim);
    TRY(OUTPUT(context, 0, shape, 3, &y));
    TRY(TENSOR_DATA(y, &data));
    a->y = data;
    if (a->batch * a->q_len == 0) return NULL;
    for (int64_t row = 0; row < a->batch; row++)
        if (a->lengths[row] < 0 || a->lengths[row] > source_len) return fail(name, "a source is longer than its keys");
    const size_t parts = plan_attention(a);
    const int is_small = 2 * a->batch * a->q_len * a->heads * a->head_dim * source_len < SMALL;
    return do_all(context, attend, parts, a, is_small);
}

static Status *compute_over_source(void *given, Context *context) {
    const Kernel *kernel = given;
    int64_t shape[MOST_DIMENSIONS], sources[MOST_DIMENSIONS];
    size_t rank, source_rank;
    const Value *value;
    void *data[LENGTHS];
    for (size_t at = 0; at < LENGTHS; at++) TRY(input_data(context, at, &data[at]));
    TRY(INPUT(context, QUERY, &value));
    TRY(shape_of(value, shape, &rank));
    TRY(INPUT(context, KEY, &value));
    TRY(shape_of(value, sources, &source_rank));
    if (rank != 3 || source_rank != 4 || sources[1] != kernel->heads || shape[2] != sources[1] * sources[3])
        return fail(over_source, "query must be (rows, q_len, width), and keys (sources, heads, source_len, head_dim)");
    if (sources[0] == 0 ? shape[0] != 0 : shape[0] % sources[0] != 0)
        return fail(over_source, "there must be as many rows for each source");
    Attention a = {.query = data[QUERY], .query_stride = shape[2], .batch = sources[0], .head_dim = sources[3]};
    a.q_len = sources[0] > 0 ? shape[0] / sources[0] * shape[1] : 0;
    a.keys.token = sources[3], a.keys.head = sources[2] * sources[3], a.keys.row = sources[1] * a.keys.head;
    a.values = a.keys;
    a.keys.data = data[KEY], a.values.data = data[VALUE];
    return attend_to_all(context, over_source, kernel, &a, sources[2], shape, LENGTHS);
}

static Status *compute_over_itself(void *given, Context *context) {
    const Kernel *kernel = given;
    int64_t shape[MOST_DIMENSIONS];
    size_t rank;
    const Value *value;
    void *data;
    TRY(INPUT(context, PACKED, &value));
    TRY(shape_of(value, shape, &rank));
    if (rank != 3 || shape[2] % (3 * kernel->heads))
        return fail(over_itself, "packed must be (batch, source_len, 3 * heads * head_dim)");
    TRY(TENSOR_DATA(value, &data));
    const int64_t width = shape[2] / 3, head_dim = width / kernel->heads;
    Attention a = {.query = data, .query_stride = shape[2], .batch = shape[0], .q_len = shape[1], .head_dim = head_dim};
    a.keys = (Heads){(float *)data + width, shape[1] * shape[2], head_dim, shape[2]};
    a.values = a.keys;
    a.values.data += width;
    shape[2] = width;
    return attend_to_all(context, over_itself, kernel, &a, shape[1], shape, PACKED_LENGTHS);
}

static const char *source_name(const Operator *operator) { return (void)operator, over_source; }
static const char *self_name(const Operator *operator) { return (void)operator, over_itself; }
static size_t source_input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }
static size_t self_input_count(const Operator *operator) { return (void)operator, PACKED_COUNT; }
static int source_input_type(const Operator *operator, size_t at) {
    return (void)operator, at < LENGTHS ? FLOAT : at == LENGTHS ? INT32 : INT64;
}
static int self_input_type(const Operator *operator, size_t at) { return (void)operator, at == PACKED ? FLOAT : INT32; }

const Operator source_attention =
    OPERATOR(source_name, source_input_type, source_input_count, one, compute_over_source);

const Operator self_attention = OPERATOR(self_name, self_input_type, self_input_count, one, compute_over_itself);
