/* GroupQueryAttention of domain "edgeformer": causal self-attention over caches that new tokens are written to, as the
   operator of that name in "com.microsoft" has it, which computes it where this library does not.

       query                   float32 (batch, q_len, heads * head_dim), or with key and value behind it, which are
                               then left out
       key, value              float32 (batch, q_len, kv_heads * head_dim)
       past_key, past_value    float32 (batch, kv_heads, capacity, head_dim)
       last                    int32 (batch,), the position of each row's last token
       total                   int32 (1,), tokens of the longest row, the new ones among them
       cosines, sines          float32 (positions, head_dim / 2), where do_rotary is 1
       y                       float32 (batch, q_len, heads * head_dim)
       present_key, present_value   the caches; in the same memory where the caller binds them so

   Attributes: num_heads, kv_num_heads, scale (0 for 1 / sqrt(head_dim)), local_window_size (-1 for none), do_rotary,
   rotary_interleaved. */

#include "attention.h"
#include "runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME "GroupQueryAttention"

enum { QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LAST, TOTAL, COSINES, SINES, INPUT_COUNT };

typedef struct {
    int64_t heads, kv_heads, window, do_rotary, interleaved;
    float scale;
} Kernel;

static Status *create(const Operator *operator, Functions given, const Info *info, void **made) {
    (void)operator, (void)given;
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) return fail(NAME, "no memory");
    Status *status = INTEGER_ATTRIBUTE(info, "num_heads", &kernel->heads);
    if (status == NULL) status = INTEGER_ATTRIBUTE(info, "kv_num_heads", &kernel->kv_heads);
    if (status == NULL) status = INTEGER_ATTRIBUTE(info, "local_window_size", &kernel->window);
    if (status == NULL) status = INTEGER_ATTRIBUTE(info, "do_rotary", &kernel->do_rotary);
    if (status == NULL) status = INTEGER_ATTRIBUTE(info, "rotary_interleaved", &kernel->interleaved);
    if (status == NULL) status = FLOAT_ATTRIBUTE(info, "scale", &kernel->scale);
    if (status == NULL && (kernel->heads < 1 || kernel->kv_heads < 1 || kernel->heads % kernel->kv_heads))
        status = fail(NAME, "num_heads must be a multiple of kv_num_heads");
    if (status != NULL) free(kernel);
    *made = status == NULL ? kernel : NULL;
    return status;
}

static void destroy(void *kernel) { free(kernel); }

/* A cache to write to: the caller's own, or a copy where another is to hold what comes out. */
static Status *present(Context *context, size_t at, const int64_t shape[4], const float *past, float **cache) {
    Value *value;
    void *data;
    TRY(OUTPUT(context, at, shape, 4, &value));
    TRY(TENSOR_DATA(value, &data));
    *cache = data;
    if (*cache != past) memcpy(*cache, past, (size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * sizeof(float));
    return NULL;
}

static Status *compute(void *given, Context *context) {
    const Kernel *kernel = given;
    int64_t shape[MOST_DIMENSIONS], cache_shape[MOST_DIMENSIONS];
    size_t rank;
    const Value *value;
    Value *y;
    void *data[INPUT_COUNT];
    for (size_t at = 0; at < INPUT_COUNT; at++) TRY(input_data(context, at, &data[at]));
    TRY(INPUT(context, PAST_KEY, &value));
    TRY(shape_of(value, cache_shape, &rank));
    TRY(INPUT(context, QUERY, &value));
    size_t query_rank;
    TRY(shape_of(value, shape, &query_rank));
    const int64_t heads = kernel->heads, kv_heads = kernel->kv_heads, head_dim = rank == 4 ? cache_shape[3] : 0;
    const int is_packed = data[KEY] == NULL;
    if (query_rank != 3 || rank != 4 || cache_shape[0] != shape[0] || cache_shape[1] != kv_heads)
        return fail(NAME, "query must be (batch, q_len, width) and caches (batch, kv_heads, capacity, head_dim)");
    if (head_dim < HEAD_STEP || head_dim > MOST_HEAD_DIM || head_dim % HEAD_STEP)
        return fail(NAME, "head_dim must be a multiple of 8, up to 256");
    if (shape[2] != (heads + (is_packed ? 2 * kv_heads : 0)) * head_dim)
        return fail(NAME, "query is not as wide as its heads");
    if (!is_packed && data[VALUE] == NULL) return fail(NAME, "value is missing");
    Attention a = {.query = data[QUERY],
                   .key = data[KEY],
                   .value = data[VALUE],
                   .last = data[LAST],
                   .batch = shape[0],
                   .q_len = shape[1],
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = head_dim,
                   .capacity = cache_shape[2],
                   .window = kernel->window,
                   .interleaved = kernel->interleaved != 0};
    const int64_t width = kv_heads * head_dim, total = *(const int32_t *)data[TOTAL];
    a.query_stride = shape[2], a.key_stride = a.value_stride = is_packed ? shape[2] : width;
    if (is_packed) a.key = a.query + heads * head_dim, a.value = a.key + width;
    a.scale = kernel->scale != 0 ? kernel->scale : 1.0f / sqrtf((float)head_dim);
    a.is_first = total == a.q_len;
    if (total > a.capacity) return fail(NAME, "a row has more tokens than its cache has room for");
    for (int64_t row = 0; row < a.batch; row++)
        if (!a.is_first && (a.last[row] + 1 < a.q_len || a.last[row] >= a.capacity))
            return fail(NAME, "a row's last position is outside its cache");
    if (kernel->do_rotary) {
        if (data[COSINES] == NULL || data[SINES] == NULL) return fail(NAME, "cosines and sines are missing");
        int64_t table[MOST_DIMENSIONS], positions = a.is_first ? a.q_len : 0;
        for (size_t at = COSINES; at <= SINES; at++) {
            TRY(INPUT(context, at, &value));
            TRY(shape_of(value, table, &rank));
            for (int64_t row = 0; row < a.batch; row++)
                if (!a.is_first && a.last[row] + 1 > positions) positions = a.last[row] + 1;
            if (rank != 2 || table[0] < positions || table[1] != head_dim / 2)
                return fail(NAME, "cosines and sines must be (positions, head_dim / 2), for all positions");
        }
        a.cosines = data[COSINES], a.sines = data[SINES];
    }
    shape[2] = heads * head_dim;
    TRY(OUTPUT(context, 0, shape, 3, &y));
    void *result;
    TRY(TENSOR_DATA(y, &result));
    a.y = result;
    a.keys.token = head_dim, a.keys.head = a.capacity * head_dim, a.keys.row = kv_heads * a.keys.head;
    a.values = a.keys;
    TRY(present(context, 1, cache_shape, data[PAST_KEY], &a.keys.data));
    TRY(present(context, 2, cache_shape, data[PAST_VALUE], &a.values.data));
    if (a.batch * a.q_len == 0) return NULL;
    const size_t parts = plan_attention(&a);
    const int64_t multiplications = 2 * a.batch * heads * head_dim * a.q_len * (a.is_first ? (total + 1) / 2 : total);
    const int is_small = multiplications < SMALL;
    TRY(do_all(context, write_caches, (size_t)(a.batch * kv_heads), &a, is_small || a.q_len == 1));
    return do_all(context, attend, parts, &a, is_small);
}

static const char *name(const Operator *operator) { return (void)operator, NAME; }
static int input_type(const Operator *operator, size_t at) {
    return (void)operator, at == LAST || at == TOTAL ? INT32 : FLOAT;
}
static size_t input_count(const Operator *operator) { return (void)operator, INPUT_COUNT; }
static size_t output_count(const Operator *operator) { return (void)operator, 3; }
static int is_optional(const Operator *operator, size_t at) {
    return (void)operator, at == KEY || at == VALUE || at == COSINES || at == SINES;
}

const Operator group_query_attention = {
    ANSWERS,
    .name = name,
    .input_type = input_type,
    .input_count = input_count,
    .output_count = output_count,
    .input_characteristic = is_optional,
    .create_or_fail = create,
    .compute_or_fail = compute,
    .destroy = destroy,
};
