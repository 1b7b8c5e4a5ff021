#include "runtime.h"

#include "attention.h"
#include "block_products.h"
#include "row_products.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

enum { RUNTIME_EXCEPTION = 6 };

Functions functions;

static const Operator *const operators[] = {
    &row_quantized_matmul, &row_quantized_matmul_relu, &block_quantized_matmul, &block_quantized_matmul_relu,
    &panel_matmul,         &panel_matmul_relu,         &group_query_attention,  &source_attention,
    &self_attention,       &add_layer_normalization,   &add_rms_normalization,  &swiglu,
};

Status *fail(const char *operator, const char *message) {
    char whole[256];
    snprintf(whole, sizeof whole, "%s: %s", operator, message);
    return CREATE_STATUS(RUNTIME_EXCEPTION, whole); /* which keeps a copy */
}

float lowest_of(const Operator *operator) {
    const char *name = operator->name(operator);
    const size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, "Relu") == 0 ? 0 : -INFINITY;
}

static int has_references; /* whether shapes can be read where they are, and need not be copied to the heap first */

Status *shape_of(const Value *value, int64_t dimensions[MOST_DIMENSIONS], size_t *rank) {
    if (has_references) {
        const int64_t *shape;
        int type;
        TRY(SHAPE_REFERENCE(value, &type, &shape, rank));
        if (*rank > MOST_DIMENSIONS) return fail("edgeformer", "an input has too many axes");
        if (*rank > 0) memcpy(dimensions, shape, *rank * sizeof *shape);
        return NULL;
    }
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

/* What the operators compute with here, the least where it is not the same for all; NULL if they cannot. */
EXPORTED const char *edgeformer_instructions(void) {
    const RowInstructions *rows = row_instructions_here();
    const BlockInstructions *blocks = block_instructions_here();
    if (rows == NULL || blocks == NULL || !attention_runs_here()) return NULL;
    return strcmp(rows->name, "AVX2") == 0 ? rows->name : blocks->name;
}

/* What ONNX Runtime calls for the options of a session. Without it graphs compute the functions of the operators'
 * names. */
EXPORTED Status *RegisterCustomOps(void *options, const Base *base) {
    static void *domain; /* lasts as long as the library: sessions keep pointers into it */
    if (edgeformer_instructions() == NULL) return NULL;
    int major = 0, minor = 0; /* of the version, which is that of the interface: an older one complains when asked */
    sscanf(base->version_string(), "%d.%d", &major, &minor);
    if (major < 1 || (major == 1 && minor < INTERFACE)) return NULL;
    has_references = major > 1 || minor >= WITH_REFERENCES;
    functions = base->functions(has_references ? WITH_REFERENCES : INTERFACE);
    if (functions == NULL) return NULL;
    if (domain == NULL) {
        void *made;
        TRY(CREATE_DOMAIN("edgeformer", &made));
        for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) TRY(ADD_OPERATOR(made, operators[i]));
        domain = made;
    }
    return ADD_DOMAIN(options, domain);
}
