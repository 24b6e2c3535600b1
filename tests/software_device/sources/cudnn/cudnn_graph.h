// SPDX-License-Identifier: MIT
// What the files of cuDNN's graph API share: descriptors, operations, patterns, engines, plans.
//
// A descriptor holds what was set, and after Finalize also its content: a copy of all that it refers to. So a plan
// outlives its graph, and a destroyed descriptor matters only to those not yet finalized.
#pragma once
#include "cudnn_device.h"

// --- cudnn_graph_attributes.c: what may be set and read
enum need { OPTIONAL, REQUIRED, RESULT };
enum { ANY_OPERATION = -1 };
struct attribute {
   cudnnBackendAttributeName_t name;
   cudnnBackendAttributeType_t type;
   int least, most; // elements
   enum need need;
   int64_t low, high; // of an integer or enumerator; of a descriptor, low is its type or ANY_OPERATION
   const char *what;
};
struct part;
struct part_kind {
   cudnnBackendDescriptorType_t type;
   const char *name;
   int n;
   const struct attribute *attributes;
   st (*finalize)(struct part *part);
};
const struct part_kind *find_kind(cudnnBackendDescriptorType_t type);
int find_attribute(const struct part_kind *kind, cudnnBackendAttributeName_t name);
size_t element_bytes(cudnnBackendAttributeType_t type);
st check_elements(const struct attribute *a, int64_t n, const void *elements);

// --- cudnn_graph_operations.c: tensors, operations, and whether they fit together
struct graph_tensor {
   bool used, is_virtual;
   int64_t id, alignment;
   cudnnDataType_t type;
   int dim[4];
   unsigned layouts; // a bit for each cudnnTensorFormat_t that has these strides
};
struct pointwise {
   cudnnPointwiseMode_t mode;
   cudnnDataType_t compute;
   cudnnNanPropagation_t nan;
};
enum operation_kind { TO_Y = FORWARD, TO_X = BACKWARD_DATA, TO_W = BACKWARD_FILTER, ADD, RELU, RELU_BACKWARD, SUM };
enum { OPERANDS_OF_ONE = 2, MAX_OPERATIONS = 8 };
struct operation {
   enum operation_kind kind;
   struct graph_tensor from[OPERANDS_OF_ONE], to; // x w -> y; w dy -> dx; x dy -> dw; x bias -> y; mask dy -> dx
   struct convolution conv;
   double alpha, beta;
   cudnnDataType_t compute;
   cudnnNanPropagation_t nan;
};
st finalize_tensor(struct part *part);
st finalize_convolution(struct part *part);
st finalize_pointwise(struct part *part);
st finalize_reduction(struct part *part);
st finalize_convolution_operation(struct part *part);
st finalize_pointwise_operation(struct part *part);
st finalize_reduction_operation(struct part *part);
st finalize_graph(struct part *part);
struct array array_of(const struct graph_tensor *t, cudnnTensorFormat_t format);

// --- cudnn_graph_patterns.c: a graph as one convolution with what is fused to it, or one sum
enum place { AT_X, AT_W, AT_Y, AT_BIAS, AT_MASK, PLACES };
struct pattern {
   bool known, sum, relu; // not known: no engine takes it
   unsigned layouts;      // those that all its tensors have
   struct geometry g;
   struct graph_tensor at[PLACES]; // in memory
   struct array bias;
   double alpha, beta;
   cudnnNanPropagation_t nan;
   int n_virtual;
   int64_t virtual_ids[MAX_OPERATIONS];
};
bool is_fused(const struct pattern *p);
enum place place_of_result(const struct pattern *p);
void recognise(const struct operation *operations, int n, struct pattern *p);

// --- cudnn_graph_engines.c
enum { ENGINES = 18 };
struct engine {
   int number;
   struct pattern pattern;
};
struct offers {
   struct pattern pattern;
   int n, numbers[ENGINES];
};
st finalize_heuristic(struct part *part);
st finalize_engine(struct part *part);
st finalize_configuration(struct part *part);
bool engine_takes(const struct pattern *p, int number);
bool engine_becomes_plan(int number);
bool engine_is_random(int number);
bool engine_is_compiled(int number);
bool engine_uses_tensor_cores(int number);
size_t engine_workspace(const struct engine *e);
int engine_numerical_notes(int number, cudnnBackendNumericalNote_t *notes);
int engine_behavior_notes(int number, cudnnBackendBehaviorNote_t *notes);

// --- cudnn_graph_plans.c
struct plan {
   struct engine engine;
   bool has_handle;
   int device; // of the handle
};
st finalize_device(struct part *part);
st finalize_plan(struct part *part);

// --- cudnn_graph_run.c
st finalize_pack(struct part *part);

// --- cudnn_graph_descriptors.c
union content {
   struct graph_tensor tensor;
   struct convolution convolution;
   struct pointwise pointwise;
   cudnnDataType_t sum_compute;
   struct operation operation;
   struct pattern pattern;
   struct offers offers;
   struct engine engine;
   struct plan plan;
};
struct slot {
   int64_t n;
   void *elements; // null: not set; FLOAT is kept as DOUBLE
};
struct part {
   struct object object;
   const struct part_kind *kind;
   bool finalized;
   struct slot *slots; // in the order of the kind's attributes
   union content *content;
};
// Alive; of that kind (or ANY_OPERATION), too; and finalized, too
st check_part_alive(const void *address, const char *what);
st check_part_kind(const void *address, int type, const char *what);
st check_part(const void *address, int type, const char *what);
// The place of the attribute of that name and type; elements lie on the host
st look_up(const struct part *part, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int *place);
st check_host(const struct part *part, const struct attribute *a, const void *elements);
// What was set: the first element, or `otherwise`; all elements and their number, or null; the descriptor, or null
int64_t integer_of(const struct part *part, cudnnBackendAttributeName_t name, int64_t otherwise);
double number_of(const struct part *part, cudnnBackendAttributeName_t name, double otherwise);
const void *elements_of(const struct part *part, cudnnBackendAttributeName_t name, int64_t *n);
const struct part *part_of(const struct part *part, cudnnBackendAttributeName_t name);
