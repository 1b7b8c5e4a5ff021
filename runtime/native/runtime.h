/* What the operators here share: ONNX Runtime's functions, and what they ask of a call. */

#ifndef EDGEFORMER_RUNTIME_H
#define EDGEFORMER_RUNTIME_H

#include "onnxruntime_abi.h"

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status *const failed = (call);                                                                                 \
        if (failed != NULL) return failed;                                                                             \
    } while (0)

enum { MOST_DIMENSIONS = 8 };
enum { SMALL = 1 << 19 }; /* multiplications that one thread has done before another is awake */

extern Functions functions;
extern const Operator row_quantized_matmul, row_quantized_matmul_relu, block_quantized_matmul,
    block_quantized_matmul_relu, panel_matmul, panel_matmul_relu, group_query_attention, source_attention,
    self_attention, add_layer_normalization, add_rms_normalization, swiglu;

Status *fail(const char *operator, const char * message);
Status *shape_of(const Value *value, int64_t dimensions[MOST_DIMENSIONS], size_t *rank);

/* What results are raised to: 0 where an operator's name ends in Relu, and else -INFINITY, which changes none. */
float lowest_of(const Operator *operator);

/* An input's data, NULL where it was left out. */
Status *input_data(const Context *context, size_t at, void **data);

/* Does all parts, on several threads unless there is too little to do. */
Status *do_all(Context *context, void (*do_part)(void *, size_t), size_t parts, void *work, int is_small);

/* What every operator answers ONNX Runtime alike. */
const char *on_cpu(const Operator *operator);
int is_required(const Operator *operator, size_t at);
int usual_memory(const Operator *operator, size_t at);
int not_variadic(const Operator *operator);
int is_float(const Operator *operator, size_t at);
size_t one(const Operator *operator);

#define ANSWERS                                                                                                        \
    .version = INTERFACE, .provider = on_cpu, .input_memory = usual_memory, .output_type = is_float,                   \
    .output_characteristic = is_required, .variadic_input_least = not_variadic, .variadic_input_alike = not_variadic,  \
    .variadic_output_least = not_variadic, .variadic_output_alike = not_variadic

/* An operator whose inputs must all be there; its kernel is what the file's `create` makes. */
#define OPERATOR(its_name, its_input_type, its_input_count, its_output_count, its_compute)                             \
    {ANSWERS,                                                                                                          \
     .name = its_name,                                                                                                 \
     .input_type = its_input_type,                                                                                     \
     .input_count = its_input_count,                                                                                   \
     .output_count = its_output_count,                                                                                 \
     .input_characteristic = is_required,                                                                              \
     .create_or_fail = create,                                                                                         \
     .compute_or_fail = its_compute,                                                                                   \
     .destroy = destroy}

#endif
