// SPDX-License-Identifier: MIT
// cuDNN's descriptors, with the checks that every operation begins with.
#include <string.h>
#include "cudnn_device.h"

#define DESCRIPTOR(NAME, KIND)                                                                                        \
   st cudnnCreate##NAME(cudnn##NAME##_t *d)                                                                           \
   {                                                                                                                  \
      CUDNN_CALL;                                                                                                     \
      if (!d) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, #NAME " == nullptr");                                \
      *d = object_new(KIND, sizeof **d);                                                                              \
      return CUDNN_STATUS_SUCCESS;                                                                                    \
   }                                                                                                                  \
   st cudnnDestroy##NAME(cudnn##NAME##_t d)                                                                           \
   {                                                                                                                  \
      CALL;                                                                                                           \
      if (!object_alive(d, KIND, "cudnnDestroy" #NAME)) return CUDNN_STATUS_BAD_PARAM;                                \
      object_end(d);                                                                                                  \
      return (st)call.planted;                                                                                        \
   }
DESCRIPTOR(TensorDescriptor, A_TENSOR)
DESCRIPTOR(FilterDescriptor, A_FILTER)
DESCRIPTOR(ConvolutionDescriptor, A_CONVOLUTION)
DESCRIPTOR(ActivationDescriptor, AN_ACTIVATION)

size_t type_bytes(cudnnDataType_t type)
{
   switch (type) {
   case CUDNN_DATA_FLOAT: return 4;
   case CUDNN_DATA_DOUBLE: return 8;
   case CUDNN_DATA_HALF:
   case CUDNN_DATA_BFLOAT16: return 2;
   default: return 0;
   }
}

size_t array_elements(const struct array *a)
{
   return (size_t)a->dim[0] * (size_t)a->dim[1] * (size_t)a->dim[2] * (size_t)a->dim[3];
}

size_t array_bytes(const struct array *a)
{
   return array_elements(a) * type_bytes(a->type);
}

bool same_shape(const struct array *a, const struct array *b)
{
   return a->type == b->type && a->format == b->format && !memcmp(a->dim, b->dim, sizeof a->dim);
}

static st set_array(struct array *a, cudnnDataType_t type, cudnnTensorFormat_t format, int n, int c, int h, int w,
                    const char *what)
{
   if (!type_bytes(type)) return refuse(CUDNN_STATUS_BAD_PARAM, "%s: data type %d", what, (int)type);
   if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)
      return refuse(format == CUDNN_TENSOR_NCHW_VECT_C ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_BAD_PARAM,
                    "%s: format %d", what, (int)format);
   if (n < 1 || c < 1 || h < 1 || w < 1)
      return refuse(CUDNN_STATUS_BAD_PARAM, "%s: dimensions %d %d %d %d, all must be positive", what, n, c, h, w);
   *a = (struct array){true, format, type, {n, c, h, w}};
   if (array_elements(a) >= (size_t)1 << 31) // cuDNN's old interface counts elements in 32 bits
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: 2**31 elements or more", what);
   return CUDNN_STATUS_SUCCESS;
}

st cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c,
                              int h, int w)
{
   CUDNN_CALL;
   if (!object_alive(d, A_TENSOR, "cudnnSetTensor4dDescriptor")) return CUDNN_STATUS_BAD_PARAM;
   return set_array(&d->array, type, format, n, c, h, w, "cudnnSetTensor4dDescriptor");
}

st cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c,
                              int h, int w)
{
   CUDNN_CALL;
   if (!object_alive(d, A_FILTER, "cudnnSetFilter4dDescriptor")) return CUDNN_STATUS_BAD_PARAM;
   return set_array(&d->array, type, format, k, c, h, w, "cudnnSetFilter4dDescriptor");
}

st cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u, int v, int dilation_h,
                                   int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t compute)
{
   CUDNN_CALL;
   if (!object_alive(d, A_CONVOLUTION, "cudnnSetConvolution2dDescriptor")) return CUDNN_STATUS_BAD_PARAM;
   if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1)
      return refuse(CUDNN_STATUS_BAD_PARAM, "pads %d %d, strides %d %d, dilations %d %d", pad_h, pad_w, u, v,
                    dilation_h, dilation_w);
   if (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION)
      return refuse(CUDNN_STATUS_BAD_PARAM, "mode %d", (int)mode);
   if (!type_bytes(compute)) return refuse(CUDNN_STATUS_BAD_PARAM, "compute type %d", (int)compute);
   d->convolution = (struct convolution){true, {pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}, 1, mode, compute,
                                         CUDNN_DEFAULT_MATH};
   return CUDNN_STATUS_SUCCESS;
}

st cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math)
{
   CUDNN_CALL;
   TRY(check_convolution(d)); // setting the geometry afterwards would forget it
   if ((unsigned)math > CUDNN_FMA_MATH) return refuse(CUDNN_STATUS_BAD_PARAM, "math type %d", (int)math);
   d->convolution.math = math;
   return CUDNN_STATUS_SUCCESS;
}

st cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups)
{
   CUDNN_CALL;
   TRY(check_convolution(d));
   if (groups < 1) return refuse(CUDNN_STATUS_BAD_PARAM, "group count %d", groups);
   d->convolution.groups = groups;
   return CUDNN_STATUS_SUCCESS;
}

st cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d, cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                double coef)
{
   CUDNN_CALL;
   if (!object_alive(d, AN_ACTIVATION, "cudnnSetActivationDescriptor")) return CUDNN_STATUS_BAD_PARAM;
   if ((unsigned)mode > CUDNN_ACTIVATION_SWISH || (unsigned)nan > CUDNN_PROPAGATE_NAN)
      return refuse(CUDNN_STATUS_BAD_PARAM, "activation mode %d, nan option %d", (int)mode, (int)nan);
   d->activation = (struct activation){true, mode, nan, coef};
   return CUDNN_STATUS_SUCCESS;
}

static st unset(const char *what)
{
   return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "%s: the descriptor was created but never set", what);
}

st check_tensor(td d, const char *what)
{
   if (!object_alive(d, A_TENSOR, what)) return CUDNN_STATUS_BAD_PARAM;
   return d->array.set ? CUDNN_STATUS_SUCCESS : unset(what);
}

st check_filter(fd d, const char *what)
{
   if (!object_alive(d, A_FILTER, what)) return CUDNN_STATUS_BAD_PARAM;
   return d->array.set ? CUDNN_STATUS_SUCCESS : unset(what);
}

st check_convolution(cd d)
{
   if (!object_alive(d, A_CONVOLUTION, "convolution descriptor")) return CUDNN_STATUS_BAD_PARAM;
   return d->convolution.set ? CUDNN_STATUS_SUCCESS : unset("convolution descriptor");
}

st check_activation(const cudnnActivationDescriptor_t d)
{
   if (!object_alive(d, AN_ACTIVATION, "activation descriptor")) return CUDNN_STATUS_BAD_PARAM;
   return d->activation.set ? CUDNN_STATUS_SUCCESS : unset("activation descriptor");
}

st check_data(const struct array *a, const void *address, const char *what)
{
   if (!address) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s == nullptr", what);
   if ((uintptr_t)address % 16) {
      complain("%s: %p is not a multiple of 16", what, address);
      return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
   }
   return device_range(address, array_bytes(a), current_device, what) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// Scaling factors lie on the host: float64 for float64 data, else float32
st read_scalar(const void *address, cudnnDataType_t type, const char *what, double *value)
{
   if (!address) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s == nullptr", what);
   if (is_device_memory(address)) {
      complain("%s: a scaling factor lies on the host, found device memory", what);
      return CUDNN_STATUS_BAD_PARAM;
   }
   if (type == CUDNN_DATA_DOUBLE) {
      memcpy(value, address, sizeof *value);
   } else {
      float single;
      memcpy(&single, address, sizeof single);
      *value = (double)single;
   }
   return CUDNN_STATUS_SUCCESS;
}

st check_apart(const char *what, const void *y, size_t y_bytes, const void *x, size_t x_bytes)
{
   if (!overlap(y, y_bytes, x, x_bytes)) return CUDNN_STATUS_SUCCESS;
   complain("%s: the result overlaps an operand", what);
   return CUDNN_STATUS_BAD_PARAM;
}

// What is written lies apart from everything else
st check_all_apart(const char *what, const struct range *ranges, int n)
{
   for (int i = 0; i < n; i++)
      for (int j = 0; j < i; j++)
         if (ranges[i].write || ranges[j].write)
            TRY(check_apart(what, ranges[i].address, ranges[i].bytes, ranges[j].address, ranges[j].bytes));
   return CUDNN_STATUS_SUCCESS;
}
