// SPDX-License-Identifier: MIT
// The attributes of every descriptor of the graph API: type, number and range of their elements.
//
// What cuDNN would fill in silently (data types, modes, paddings, names) must be set here.
#include <limits.h>
#include "cudnn_graph.h"

#define INTEGERS(NAME, N, NEED, LOW, HIGH, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_INT64, N, N, NEED, LOW, HIGH, WHAT}
#define ENUM(NAME, TYPE, NEED, HIGH, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_##TYPE, 1, 1, NEED, 0, HIGH, WHAT}
#define DATA_TYPE(NAME, NEED, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_DATA_TYPE, 1, 1, NEED, 0, 0, WHAT}
#define FACTOR(NAME, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_FLOAT, 1, 1, OPTIONAL, 0, 0, WHAT}
#define HANDLE(NAME) {CUDNN_ATTR_##NAME, CUDNN_TYPE_HANDLE, 1, 1, OPTIONAL, 0, 0, "handle"}
#define TEXT(NAME, NEED, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_CHAR, 1, 1 << 20, NEED, 0, 0, WHAT}
#define RESULTS(NAME, TYPE, LOW, WHAT) {CUDNN_ATTR_##NAME, CUDNN_TYPE_##TYPE, 0, ENGINES, RESULT, LOW, 0, WHAT}
#define PART(NAME, NEED, KIND, WHAT)                                                                                  \
   {CUDNN_ATTR_##NAME, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, NEED, CUDNN_BACKEND_##KIND##_DESCRIPTOR, 0, WHAT}

static const struct attribute tensor[] = {
   DATA_TYPE(TENSOR_DATA_TYPE, REQUIRED, "data type"),
   INTEGERS(TENSOR_DIMENSIONS, 4, REQUIRED, 1, INT_MAX, "dimensions"),
   INTEGERS(TENSOR_STRIDES, 4, REQUIRED, 1, INT64_MAX, "strides"),
   INTEGERS(TENSOR_BYTE_ALIGNMENT, 1, REQUIRED, 1, 1024, "byte alignment"),
   INTEGERS(TENSOR_UNIQUE_ID, 1, REQUIRED, INT64_MIN, INT64_MAX, "unique id"),
   ENUM(TENSOR_IS_VIRTUAL, BOOLEAN, OPTIONAL, 1, "is virtual"),
};
static const struct attribute convolution[] = {
   DATA_TYPE(CONVOLUTION_COMP_TYPE, REQUIRED, "compute type"),
   ENUM(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, REQUIRED, CUDNN_CROSS_CORRELATION, "mode"),
   INTEGERS(CONVOLUTION_SPATIAL_DIMS, 1, REQUIRED, 1, 3, "spatial dimensions"),
   INTEGERS(CONVOLUTION_DILATIONS, 2, REQUIRED, 1, INT_MAX, "dilations"),
   INTEGERS(CONVOLUTION_FILTER_STRIDES, 2, REQUIRED, 1, INT_MAX, "filter strides"),
   INTEGERS(CONVOLUTION_PRE_PADDINGS, 2, REQUIRED, 0, INT_MAX, "paddings before"),
   INTEGERS(CONVOLUTION_POST_PADDINGS, 2, REQUIRED, 0, INT_MAX, "paddings behind"),
};
static const struct attribute pointwise[] = {
   ENUM(POINTWISE_MODE, POINTWISE_MODE, REQUIRED, 1000, "mode"),
   DATA_TYPE(POINTWISE_MATH_PREC, REQUIRED, "compute type"),
   ENUM(POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, OPTIONAL, CUDNN_PROPAGATE_NAN, "NaN option"),
};
static const struct attribute reduction[] = {
   ENUM(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, REQUIRED, CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS, "operator"),
   DATA_TYPE(REDUCTION_COMP_TYPE, REQUIRED, "compute type"),
};
static const struct attribute forward[] = {
   PART(OPERATION_CONVOLUTION_FORWARD_CONV_DESC, REQUIRED, CONVOLUTION, "convolution"),
   PART(OPERATION_CONVOLUTION_FORWARD_X, REQUIRED, TENSOR, "x"),
   PART(OPERATION_CONVOLUTION_FORWARD_W, REQUIRED, TENSOR, "w"),
   PART(OPERATION_CONVOLUTION_FORWARD_Y, REQUIRED, TENSOR, "y"),
   FACTOR(OPERATION_CONVOLUTION_FORWARD_ALPHA, "alpha"),
   FACTOR(OPERATION_CONVOLUTION_FORWARD_BETA, "beta"),
};
static const struct attribute backward_data[] = {
   PART(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, REQUIRED, CONVOLUTION, "convolution"),
   PART(OPERATION_CONVOLUTION_BWD_DATA_W, REQUIRED, TENSOR, "w"),
   PART(OPERATION_CONVOLUTION_BWD_DATA_DY, REQUIRED, TENSOR, "dy"),
   PART(OPERATION_CONVOLUTION_BWD_DATA_DX, REQUIRED, TENSOR, "dx"),
   FACTOR(OPERATION_CONVOLUTION_BWD_DATA_ALPHA, "alpha"),
   FACTOR(OPERATION_CONVOLUTION_BWD_DATA_BETA, "beta"),
};
static const struct attribute backward_filter[] = {
   PART(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, REQUIRED, CONVOLUTION, "convolution"),
   PART(OPERATION_CONVOLUTION_BWD_FILTER_X, REQUIRED, TENSOR, "x"),
   PART(OPERATION_CONVOLUTION_BWD_FILTER_DY, REQUIRED, TENSOR, "dy"),
   PART(OPERATION_CONVOLUTION_BWD_FILTER_DW, REQUIRED, TENSOR, "dw"),
   FACTOR(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, "alpha"),
   FACTOR(OPERATION_CONVOLUTION_BWD_FILTER_BETA, "beta"),
};
static const struct attribute pointwise_operation[] = {
   PART(OPERATION_POINTWISE_PW_DESCRIPTOR, REQUIRED, POINTWISE, "pointwise descriptor"),
   PART(OPERATION_POINTWISE_XDESC, REQUIRED, TENSOR, "x"),
   PART(OPERATION_POINTWISE_BDESC, OPTIONAL, TENSOR, "b"),
   PART(OPERATION_POINTWISE_YDESC, OPTIONAL, TENSOR, "y"),
   PART(OPERATION_POINTWISE_DYDESC, OPTIONAL, TENSOR, "dy"),
   PART(OPERATION_POINTWISE_DXDESC, OPTIONAL, TENSOR, "dx"),
};
static const struct attribute reduction_operation[] = {
   PART(OPERATION_REDUCTION_DESC, REQUIRED, REDUCTION, "reduction descriptor"),
   PART(OPERATION_REDUCTION_XDESC, REQUIRED, TENSOR, "x"),
   PART(OPERATION_REDUCTION_YDESC, REQUIRED, TENSOR, "y"),
};
static const struct attribute graph[] = {
   {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, MAX_OPERATIONS, REQUIRED, ANY_OPERATION, 0,
    "operations"},
   HANDLE(OPERATIONGRAPH_HANDLE),
};
static const struct attribute heuristic[] = {
   PART(ENGINEHEUR_OPERATION_GRAPH, REQUIRED, OPERATIONGRAPH, "operation graph"),
   ENUM(ENGINEHEUR_MODE, HEUR_MODE, REQUIRED, CUDNN_HEUR_MODE_A, "mode"),
   PART(ENGINEHEUR_DEVICEPROP, OPTIONAL, DEVICEPROP, "device properties"),
   RESULTS(ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "results"),
};
static const struct attribute configuration[] = {
   PART(ENGINECFG_ENGINE, REQUIRED, ENGINE, "engine"),
};
static const struct attribute engine[] = {
   PART(ENGINE_OPERATION_GRAPH, REQUIRED, OPERATIONGRAPH, "operation graph"),
   INTEGERS(ENGINE_GLOBAL_INDEX, 1, REQUIRED, 0, INT_MAX, "global index"),
   RESULTS(ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, 0, "numerical notes"),
   RESULTS(ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, 0, "behavior notes"),
};
static const struct attribute plan[] = {
   HANDLE(EXECUTION_PLAN_HANDLE),
   PART(EXECUTION_PLAN_DEVICEPROP, OPTIONAL, DEVICEPROP, "device properties"),
   PART(EXECUTION_PLAN_ENGINE_CONFIG, REQUIRED, ENGINECFG, "engine configuration"),
   INTEGERS(EXECUTION_PLAN_WORKSPACE_SIZE, 1, RESULT, 0, 0, "workspace size"),
};
static const struct attribute pack[] = {
   {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64, REQUIRED, INT64_MIN, INT64_MAX, "unique ids"},
   {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64, REQUIRED, 0, 0, "data pointers"},
   {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, REQUIRED, 0, 0, "workspace"},
};
static const struct attribute device[] = {
   TEXT(DEVICEPROP_JSON_REPRESENTATION, REQUIRED, "JSON representation"),
};

#define KIND(TYPE, NAME, LIST, FINALIZE)                                                                              \
   {CUDNN_BACKEND_##TYPE##_DESCRIPTOR, NAME, sizeof(LIST) / sizeof *(LIST), LIST, FINALIZE}
static const struct part_kind kinds[] = {
   KIND(TENSOR, "tensor", tensor, finalize_tensor),
   KIND(CONVOLUTION, "convolution", convolution, finalize_convolution),
   KIND(POINTWISE, "pointwise descriptor", pointwise, finalize_pointwise),
   KIND(REDUCTION, "reduction descriptor", reduction, finalize_reduction),
   KIND(OPERATION_CONVOLUTION_FORWARD, "forward convolution", forward, finalize_convolution_operation),
   KIND(OPERATION_CONVOLUTION_BACKWARD_DATA, "data gradient", backward_data, finalize_convolution_operation),
   KIND(OPERATION_CONVOLUTION_BACKWARD_FILTER, "filter gradient", backward_filter, finalize_convolution_operation),
   KIND(OPERATION_POINTWISE, "pointwise operation", pointwise_operation, finalize_pointwise_operation),
   KIND(OPERATION_REDUCTION, "reduction", reduction_operation, finalize_reduction_operation),
   KIND(OPERATIONGRAPH, "operation graph", graph, finalize_graph),
   KIND(ENGINEHEUR, "heuristic", heuristic, finalize_heuristic),
   KIND(ENGINECFG, "engine configuration", configuration, finalize_configuration),
   KIND(ENGINE, "engine", engine, finalize_engine),
   KIND(EXECUTION_PLAN, "execution plan", plan, finalize_plan),
   KIND(VARIANT_PACK, "variant pack", pack, finalize_pack),
   KIND(DEVICEPROP, "device properties", device, finalize_device),
};

const struct part_kind *find_kind(cudnnBackendDescriptorType_t type)
{
   for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
      if (kinds[i].type == type) return &kinds[i];
   return NULL;
}

int find_attribute(const struct part_kind *kind, cudnnBackendAttributeName_t name)
{
   for (int i = 0; i < kind->n; i++)
      if (kind->attributes[i].name == name) return i;
   return -1;
}

size_t element_bytes(cudnnBackendAttributeType_t type)
{
   switch (type) {
   case CUDNN_TYPE_BOOLEAN:
   case CUDNN_TYPE_CHAR: return 1;
   case CUDNN_TYPE_INT64:
   case CUDNN_TYPE_DOUBLE:
   case CUDNN_TYPE_VOID_PTR:
   case CUDNN_TYPE_HANDLE:
   case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
   default: return 4; // enumerators and FLOAT
   }
}

static st check_range(const struct attribute *a, int64_t value)
{
   if (a->type == CUDNN_TYPE_DATA_TYPE && !type_bytes((cudnnDataType_t)value))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: data type %lld", a->what, (long long)value);
   if (a->type != CUDNN_TYPE_DATA_TYPE && (value < a->low || value > a->high))
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: found %lld, expected %lld to %lld", a->what, (long long)value,
                    (long long)a->low, (long long)a->high);
   return CUDNN_STATUS_SUCCESS;
}

st check_elements(const struct attribute *a, int64_t n, const void *elements)
{
   for (int64_t i = 0; i < n; i++)
      switch (a->type) {
      case CUDNN_TYPE_BACKEND_DESCRIPTOR: TRY(check_part(((void *const *)elements)[i], (int)a->low, a->what)); break;
      case CUDNN_TYPE_HANDLE: TRY(check_handle(((const cudnnHandle_t *)elements)[i], a->what)); break;
      case CUDNN_TYPE_INT64: TRY(check_range(a, ((const int64_t *)elements)[i])); break;
      case CUDNN_TYPE_BOOLEAN: TRY(check_range(a, ((const unsigned char *)elements)[i])); break;
      case CUDNN_TYPE_FLOAT:
      case CUDNN_TYPE_CHAR:
      case CUDNN_TYPE_VOID_PTR: break;
      default: TRY(check_range(a, ((const int *)elements)[i]));
      }
   return CUDNN_STATUS_SUCCESS;
}
