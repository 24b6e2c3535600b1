// SPDX-License-Identifier: MIT
// Tensors and operations of the graph API: what Finalize makes of them, and whether they fit together.
#include <string.h>
#include "cudnn_graph.h"

// Along an extent of 1 nothing is ever stepped, so its stride says nothing
static bool has_strides(const int64_t dim[4], const int64_t stride[4], const int64_t expected[4])
{
   for (int i = 0; i < 4; i++)
      if (dim[i] != 1 && stride[i] != expected[i]) return false;
   return true;
}

st finalize_tensor(struct part *part)
{
   struct graph_tensor *t = &part->content->tensor;
   const int64_t *dim = elements_of(part, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL);
   const int64_t *stride = elements_of(part, CUDNN_ATTR_TENSOR_STRIDES, NULL);
   double elements = 1;
   for (int i = 0; i < 4; i++) {
      t->dim[i] = (int)dim[i];
      elements *= (double)dim[i];
   }
   if (elements > 0x1p40) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "tensor: more than 2**40 elements");
   t->used = true;
   t->is_virtual = integer_of(part, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
   t->id = integer_of(part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
   t->type = (cudnnDataType_t)integer_of(part, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
   t->alignment = integer_of(part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
   if (t->alignment & (t->alignment - 1))
      return refuse(CUDNN_STATUS_BAD_PARAM, "tensor: byte alignment %lld is no power of 2", (long long)t->alignment);
   int64_t c = dim[1], h = dim[2], w = dim[3];
   if (has_strides(dim, stride, (int64_t[]){c * h * w, h * w, w, 1})) t->layouts |= 1u << CUDNN_TENSOR_NCHW;
   if (has_strides(dim, stride, (int64_t[]){c * h * w, 1, w * c, c})) t->layouts |= 1u << CUDNN_TENSOR_NHWC;
   return CUDNN_STATUS_SUCCESS;
}

st finalize_convolution(struct part *part)
{
   struct convolution *conv = &part->content->convolution;
   if (integer_of(part, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) != 2)
      return refuse(CUDNN_STATUS_BAD_PARAM, "convolution: spatial dimensions and those of its attributes differ");
   const int64_t *pad = elements_of(part, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, NULL);
   const int64_t *behind = elements_of(part, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, NULL);
   const int64_t *stride = elements_of(part, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, NULL);
   const int64_t *dilation = elements_of(part, CUDNN_ATTR_CONVOLUTION_DILATIONS, NULL);
   for (int i = 0; i < 2; i++) {
      if (pad[i] != behind[i])
         return refuse(CUDNN_STATUS_NOT_SUPPORTED, "convolution: paddings before and behind differ");
      conv->pad[i] = (int)pad[i];
      conv->stride[i] = (int)stride[i];
      conv->dilation[i] = (int)dilation[i];
   }
   conv->groups = 1;
   conv->mode = (cudnnConvolutionMode_t)integer_of(part, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0);
   conv->compute = (cudnnDataType_t)integer_of(part, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0);
   return CUDNN_STATUS_SUCCESS;
}

st finalize_pointwise(struct part *part)
{
   struct pointwise *p = &part->content->pointwise;
   p->mode = (cudnnPointwiseMode_t)integer_of(part, CUDNN_ATTR_POINTWISE_MODE, 0);
   p->compute = (cudnnDataType_t)integer_of(part, CUDNN_ATTR_POINTWISE_MATH_PREC, 0);
   p->nan = (cudnnNanPropagation_t)integer_of(part, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN);
   if (p->mode == CUDNN_POINTWISE_ADD || p->mode == CUDNN_POINTWISE_RELU_FWD || p->mode == CUDNN_POINTWISE_RELU_BWD)
      return CUDNN_STATUS_SUCCESS;
   return refuse(CUDNN_STATUS_NOT_SUPPORTED, "pointwise mode %d is not in this device", (int)p->mode);
}

st finalize_reduction(struct part *part)
{
   int64_t operator = integer_of(part, CUDNN_ATTR_REDUCTION_OPERATOR, 0);
   if (operator != CUDNN_REDUCE_TENSOR_ADD)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "reduction operator %lld is not in this device", (long long)operator);
   part->content->sum_compute = (cudnnDataType_t)integer_of(part, CUDNN_ATTR_REDUCTION_COMP_TYPE, 0);
   return CUDNN_STATUS_SUCCESS;
}

static struct graph_tensor tensor_of(const struct part *part, cudnnBackendAttributeName_t name)
{
   const struct part *tensor = part_of(part, name);
   return tensor ? tensor->content->tensor : (struct graph_tensor){0};
}

struct array array_of(const struct graph_tensor *t, cudnnTensorFormat_t format)
{
   struct array a = {.set = true, .format = format, .type = t->type};
   memcpy(a.dim, t->dim, sizeof a.dim);
   return a;
}

static st check_convolution_shapes(struct operation *o)
{
   const struct graph_tensor *x = o->kind == TO_X ? &o->to : &o->from[0];
   const struct graph_tensor *w = o->kind == TO_X ? &o->from[0] : o->kind == TO_W ? &o->to : &o->from[1];
   const struct graph_tensor *y = o->kind == TO_Y ? &o->to : &o->from[1];
   if (x->dim[1] % w->dim[1])
      return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "%d channels, filter of %d", x->dim[1], w->dim[1]);
   o->conv.groups = x->dim[1] / w->dim[1];
   int dim[4];
   struct array x_array = array_of(x, CUDNN_TENSOR_NCHW), w_array = array_of(w, CUDNN_TENSOR_NCHW);
   TRY(output_shape(&o->conv, &x_array, &w_array, dim));
   if (memcmp(dim, y->dim, sizeof dim))
      return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "output is %d %d %d %d, its tensor says %d %d %d %d", dim[0],
                    dim[1], dim[2], dim[3], y->dim[0], y->dim[1], y->dim[2], y->dim[3]);
   return CUDNN_STATUS_SUCCESS;
}

st finalize_convolution_operation(struct part *part)
{
   struct operation *o = &part->content->operation;
#define TAKE(KIND, DIRECTION, FROM0, FROM1, TO)                                                                       \
   o->kind = KIND;                                                                                                    \
   o->conv = part_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_CONV_DESC)->content->convolution;           \
   o->from[0] = tensor_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_##FROM0);                              \
   o->from[1] = tensor_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_##FROM1);                              \
   o->to = tensor_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_##TO);                                      \
   o->alpha = number_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_ALPHA, 1);                               \
   o->beta = number_of(part, CUDNN_ATTR_OPERATION_CONVOLUTION_##DIRECTION##_BETA, 0)
   if (part->kind->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
      TAKE(TO_Y, FORWARD, X, W, Y);
   } else if (part->kind->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
      TAKE(TO_X, BWD_DATA, W, DY, DX);
   } else {
      TAKE(TO_W, BWD_FILTER, X, DY, DW);
   }
#undef TAKE
   o->compute = o->conv.compute;
   if (o->to.is_virtual && o->beta != 0)
      return refuse(CUDNN_STATUS_BAD_PARAM, "beta %g, but a virtual tensor has no old value", o->beta);
   return check_convolution_shapes(o);
}

// A dimension of `a` is that of `b`, or 1
static bool broadcasts(const struct graph_tensor *a, const struct graph_tensor *b)
{
   for (int i = 0; i < 4; i++)
      if (a->dim[i] != 1 && a->dim[i] != b->dim[i]) return false;
   return true;
}

st finalize_pointwise_operation(struct part *part)
{
   struct operation *o = &part->content->operation;
   const struct pointwise *p = &part_of(part, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->content->pointwise;
   struct graph_tensor b = tensor_of(part, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
   struct graph_tensor y = tensor_of(part, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
   struct graph_tensor dy = tensor_of(part, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
   struct graph_tensor dx = tensor_of(part, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
   bool backward = p->mode == CUDNN_POINTWISE_RELU_BWD;
   o->kind = backward ? RELU_BACKWARD : p->mode == CUDNN_POINTWISE_ADD ? ADD : RELU;
   if (b.used != (o->kind == ADD) || y.used == backward || dy.used != backward || dx.used != backward)
      return refuse(CUDNN_STATUS_BAD_PARAM, "pointwise operation: found %s%s%s%s, which is not what mode %d is of",
                    b.used ? "b " : "", y.used ? "y " : "", dy.used ? "dy " : "", dx.used ? "dx" : "", (int)p->mode);
   o->from[0] = tensor_of(part, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
   o->from[1] = backward ? dy : b;
   o->to = backward ? dx : y;
   o->compute = p->compute;
   o->nan = p->nan;
   bool fits = !memcmp(o->from[0].dim, o->to.dim, sizeof o->to.dim) &&
               (o->kind != ADD || broadcasts(&b, &o->to)) &&
               (!backward || !memcmp(dy.dim, dx.dim, sizeof dx.dim));
   return fits ? CUDNN_STATUS_SUCCESS
               : refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "pointwise operation: dimensions of its tensors differ");
}

st finalize_reduction_operation(struct part *part)
{
   struct operation *o = &part->content->operation;
   o->kind = SUM;
   o->from[0] = tensor_of(part, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
   o->to = tensor_of(part, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
   o->compute = part_of(part, CUDNN_ATTR_OPERATION_REDUCTION_DESC)->content->sum_compute;
   if (!broadcasts(&o->to, &o->from[0]))
      return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "reduction: a dimension of y is neither 1 nor that of x");
   return CUDNN_STATUS_SUCCESS;
}
