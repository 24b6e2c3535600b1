// SPDX-License-Identifier: MIT
// The part of the cuDNN 9 interface that the project uses: own declarations.
//
// As in cuda_api.h, -DREAL_HEADERS lets the compiler compare them with NVIDIA's. Facts: cuDNN 9 API reference.
#pragma once
#include "cuda_api.h"

#ifdef REAL_HEADERS
#include <cudnn.h>
#else
typedef enum {
   CUDNN_STATUS_SUCCESS = 0,
   CUDNN_STATUS_NOT_INITIALIZED = 1001,
   CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH = 1002,
   CUDNN_STATUS_BAD_PARAM = 2000,
   CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
   CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER = 2003,
   CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED = 2004,
   CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND = 2005,
   CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 2006,
   CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH = 2007,
   CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH = 2008,
   CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE = 2010,
   CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE = 2012,
   CUDNN_STATUS_NOT_SUPPORTED = 3000,
   CUDNN_STATUS_NOT_SUPPORTED_SHAPE = 3002,
   CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE = 3003,
   CUDNN_STATUS_NOT_SUPPORTED_LAYOUT = 3004,
   CUDNN_STATUS_INTERNAL_ERROR = 4000,
   CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED = 4001,
   CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
   CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004,
   CUDNN_STATUS_EXECUTION_FAILED = 5000,
   CUDNN_STATUS_EXECUTION_FAILED_CUDART = 5003
} cudnnStatus_t;
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE = 1, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 }
   cudnnDataType_t;
typedef enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1, CUDNN_TENSOR_NCHW_VECT_C = 2 } cudnnTensorFormat_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum { CUDNN_NOT_PROPAGATE_NAN = 0, CUDNN_PROPAGATE_NAN = 1 } cudnnNanPropagation_t;
typedef struct cudnnContext *cudnnHandle_t;
#endif

// Short names
typedef cudnnStatus_t st;
typedef cudnnHandle_t hd;
#include "cudnn_graph_api.h"

#pragma GCC visibility push(default)
size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
const char *cudnnGetErrorString(st status);
void cudnnGetLastErrorString(char *message, size_t size);
st cudnnCreate(cudnnHandle_t *handle);
st cudnnDestroy(hd h);
st cudnnSetStream(hd h, cudaStream_t stream);
#pragma GCC visibility pop
