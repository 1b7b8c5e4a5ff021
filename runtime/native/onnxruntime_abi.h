/* The part of ONNX Runtime's C interface that an operator needs, so that no header of its has to be installed.

   The interface is a table of functions that has only ever grown at its end; INTERFACE is the version of the table that
   holds all of these (onnxruntime 1.17, 2024), and later releases give it to whoever asks for it. Positions are those
   of `OrtApi`, fields those of `OrtCustomOp`, in onnxruntime_c_api.h. */

#ifndef EDGEFORMER_ONNXRUNTIME_ABI_H
#define EDGEFORMER_ONNXRUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>

#define INTERFACE 17
#define WITH_REFERENCES 24 /* the first that has SHAPE_REFERENCE */

typedef void *const *Functions;
typedef struct Status Status; /* NULL where all went well */
typedef struct Value Value;
typedef struct Context Context; /* of one call of a kernel */
typedef struct Info Info;       /* of the node that a kernel is made for */

typedef struct {
    Functions (*functions)(uint32_t version);
    const char *(*version_string)(void);
} Base;

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7 }; /* types of elements */

typedef struct Operator {
    uint32_t version;
    void *(*create)(const struct Operator *, Functions, const Info *);
    const char *(*name)(const struct Operator *);
    const char *(*provider)(const struct Operator *);
    int (*input_type)(const struct Operator *, size_t);
    size_t (*input_count)(const struct Operator *);
    int (*output_type)(const struct Operator *, size_t);
    size_t (*output_count)(const struct Operator *);
    void (*compute)(void *, Context *);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct Operator *, size_t);
    int (*output_characteristic)(const struct Operator *, size_t);
    int (*input_memory)(const struct Operator *, size_t);
    int (*variadic_input_least)(const struct Operator *);
    int (*variadic_input_alike)(const struct Operator *);
    int (*variadic_output_least)(const struct Operator *);
    int (*variadic_output_alike)(const struct Operator *);
    Status *(*create_or_fail)(const struct Operator *, Functions, const Info *, void **);
    Status *(*compute_or_fail)(void *, Context *);
    void *shapes, *first_version, *last_version, *in_place, *release_in_place, *aliases, *release_aliases;
} Operator;

#define AT(position, type) ((type)functions[position])

#define CREATE_STATUS AT(0, Status *(*)(int, const char *))
#define CREATE_DOMAIN AT(26, Status *(*)(const char *, void **))
#define ADD_OPERATOR AT(27, Status *(*)(void *, const Operator *))
#define ADD_DOMAIN AT(28, Status *(*)(void *, void *))
#define TENSOR_DATA AT(51, Status *(*)(const Value *, void **))
#define RANK AT(61, Status *(*)(const void *, size_t *))
#define DIMENSIONS AT(62, Status *(*)(const void *, int64_t *, size_t))
#define TYPE_AND_SHAPE AT(65, Status *(*)(const Value *, void **))
#define FLOAT_ATTRIBUTE AT(85, Status *(*)(const Info *, const char *, float *))
#define INTEGER_ATTRIBUTE AT(86, Status *(*)(const Info *, const char *, int64_t *))
#define INPUT_COUNT_OF AT(88, Status *(*)(const Context *, size_t *))
#define INPUT AT(90, Status *(*)(const Context *, size_t, const Value **))
#define OUTPUT AT(91, Status *(*)(Context *, size_t, const int64_t *, size_t, Value **))
#define RELEASE_TYPE_AND_SHAPE AT(99, void (*)(void *))
#define CONSTANT_INPUT AT(249, Status *(*)(const Info *, size_t, int *, const Value **))
#define SHAPE_REFERENCE AT(414, Status *(*)(const Value *, int *, const int64_t **, size_t *))
#define PARALLEL_FOR AT(274, Status *(*)(const Context *, void (*)(void *, size_t), size_t, size_t, void *))

#endif
