#include "runtime.h"

#include "attention.h"
#include "block_products.h"
#include "row_products.h"

#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

enum { RUNTIME_EXCEPTION = 6 };

Functions functions;

Status *fail(const char *operator, const char *message) {
    char whole[256];
    snprintf(whole, sizeof whole, "%s: %s", operator, message);
    return CREATE_STATUS(RUNTIME_EXCEPTION, whole); /* which keeps a copy */
}

Status *shape_of(const Value *value, int64_t dimensions[MOST_DIMENSIONS], size_t *rank) {
    void *info;
    TRY(TYPE_AND_SHAPE(value, &info));
    Status *status = RANK(info, rank);
    if (status == NULL && *rank > MOST_DIMENSIONS) status = fail("edgeformer", "an input has too many axes");
    if (status == NULL) status = DIMENSIONS(info, dimensions, *rank);
    RELEASE_TYPE_AND_SHAPE(info);
    return status;
}

Status *input_data(const Context *context, size_t at, void **data) {
    const Value *value = NULL;
    size_t count;
    *data = NULL;
    TRY(INPUT_COUNT_OF(context, &count));
    if (at < count) TRY(INPUT(context, at, &value));
    return value == NULL ? NULL : TENSOR_DATA(value, data);
}

Status *do_all(Context *context, void (*do_part)(void *, size_t), size_t parts, void *work, int is_small) {
    if (!is_small && parts > 1) return PARALLEL_FOR(context, do_part, parts, 0, work);
    for (size_t part = 0; part < parts; part++) do_part(work, part);
    return NULL;
}

const char *on_cpu(const Operator *operator) { return (void)operator, "CPUExecutionProvider"; }
int is_required(const Operator *operator, size_t at) { return (void)operator, (void)at, 0; }
int usual_memory(const Operator *operator, size_t at) { return (void)operator, (void)at, 0; }
int not_variadic(const Operator *operator) { return (void)operator, 1; }
int is_float(const Operator *operator, size_t at) { return (void)operator, (void)at, FLOAT; }
size_t one(const Operator *operator) { return (void)operator, 1; }

/* What the operators compute with here; NULL if they cannot. */
EXPORTED const char *edgeformer_instructions(void) {
    const RowInstructions *rows = row_instructions_here();
    return rows != NULL && block_instructions_here() != NULL && attention_runs_here() ? rows->name : NULL;
}

/* What ONNX Runtime calls for the options of a session. Without it graphs compute the functions of the operators'
 * names. */
EXPORTED Status *RegisterCustomOps(void *options, const Base *base) {
    static void *domain; /* lasts as long as the library: sessions keep pointers into it */
    if (edgeformer_instructions() == NULL) return NULL;
    functions = base->functions(INTERFACE);
    if (functions == NULL) return NULL; /* an ONNX Runtime older than the interface */
    if (domain == NULL) {
        void *made;
        TRY(CREATE_DOMAIN("edgeformer", &made));
        TRY(ADD_OPERATOR(made, &row_quantized_matmul));
        TRY(ADD_OPERATOR(made, &block_quantized_matmul));
        TRY(ADD_OPERATOR(made, &group_query_attention));
        domain = made;
    }
    return ADD_DOMAIN(options, domain);
}
