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
typedef enum {
   CUDNN_DEFAULT_MATH = 0,
   CUDNN_TENSOR_OP_MATH = 1,
   CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
   CUDNN_FMA_MATH = 3
} cudnnMathType_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum { CUDNN_NOT_PROPAGATE_NAN = 0, CUDNN_PROPAGATE_NAN = 1 } cudnnNanPropagation_t;
typedef enum {
   CUDNN_ACTIVATION_SIGMOID = 0,
   CUDNN_ACTIVATION_RELU = 1,
   CUDNN_ACTIVATION_TANH = 2,
   CUDNN_ACTIVATION_CLIPPED_RELU = 3,
   CUDNN_ACTIVATION_ELU = 4,
   CUDNN_ACTIVATION_IDENTITY = 5,
   CUDNN_ACTIVATION_SWISH = 6
} cudnnActivationMode_t;
typedef enum {
   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
   CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2,
   CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3,
   CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4,
   CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5,
   CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6,
   CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7
} cudnnConvolutionFwdAlgo_t;
typedef enum {
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0,
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1,
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2,
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3,
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4,
   CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5
} cudnnConvolutionBwdDataAlgo_t;
typedef enum {
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT = 2,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED = 5,
   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING = 6
} cudnnConvolutionBwdFilterAlgo_t;
#define PERF(ALGO, NAME)                                                                                              \
   typedef struct {                                                                                                   \
      ALGO algo;                                                                                                      \
      cudnnStatus_t status;                                                                                           \
      float time;                                                                                                     \
      size_t memory;                                                                                                  \
      cudnnDeterminism_t determinism;                                                                                 \
      cudnnMathType_t mathType;                                                                                       \
      int reserved[3];                                                                                                \
   } NAME
PERF(cudnnConvolutionFwdAlgo_t, cudnnConvolutionFwdAlgoPerf_t);
PERF(cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t);
PERF(cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdFilterAlgoPerf_t);
#undef PERF
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
#endif

// Short names, so that the long argument lists below stay readable
typedef cudnnStatus_t st;
typedef cudnnHandle_t hd;
typedef const cudnnTensorDescriptor_t td;
typedef const cudnnFilterDescriptor_t fd;
typedef const cudnnConvolutionDescriptor_t cd;
typedef const void *in;
typedef void *out;
#include "cudnn_graph_api.h"

#pragma GCC visibility push(default)
size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
const char *cudnnGetErrorString(st status);
void cudnnGetLastErrorString(char *message, size_t size);
st cudnnCreate(cudnnHandle_t *handle);
st cudnnDestroy(hd h);
st cudnnSetStream(hd h, cudaStream_t stream);

st cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *d);
st cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d);
st cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *d);
st cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d);
st cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *d);
st cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d);
st cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *d);
st cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d);
st cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c,
                              int h, int w);
st cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c,
                              int h, int w);
st cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u, int v, int dilation_h,
                                   int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t compute);
st cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math);
st cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups);
st cudnnGetConvolution2dForwardOutputDim(cd conv, td x, fd w, int *n, int *c, int *h, int *wide);
st cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d, cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                double coef);

st cudnnGetConvolutionForwardAlgorithm_v7(hd h, td xd, fd wd, cd conv, td yd, const int requested, int *returned,
                                          cudnnConvolutionFwdAlgoPerf_t *perf);
st cudnnGetConvolutionBackwardDataAlgorithm_v7(hd h, fd wd, td dyd, cd conv, td dxd, const int requested, int *returned,
                                               cudnnConvolutionBwdDataAlgoPerf_t *perf);
st cudnnGetConvolutionBackwardFilterAlgorithm_v7(hd h, td xd, td dyd, cd conv, fd dwd, const int requested,
                                                 int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *perf);
st cudnnFindConvolutionForwardAlgorithmEx(hd h, td xd, in x, fd wd, in w, cd conv, td yd, out y, const int requested,
                                          int *returned, cudnnConvolutionFwdAlgoPerf_t *perf, out space, size_t bytes);
st cudnnFindConvolutionBackwardDataAlgorithmEx(hd h, fd wd, in w, td dyd, in dy, cd conv, td dxd, out dx,
                                               const int requested, int *returned,
                                               cudnnConvolutionBwdDataAlgoPerf_t *perf, out space, size_t bytes);
st cudnnFindConvolutionBackwardFilterAlgorithmEx(hd h, td xd, in x, td dyd, in dy, cd conv, fd dwd, out dw,
                                                 const int requested, int *returned,
                                                 cudnnConvolutionBwdFilterAlgoPerf_t *perf, out space, size_t bytes);
st cudnnGetConvolutionForwardWorkspaceSize(hd h, td xd, fd wd, cd conv, td yd, cudnnConvolutionFwdAlgo_t algo,
                                           size_t *bytes);
st cudnnGetConvolutionBackwardDataWorkspaceSize(hd h, fd wd, td dyd, cd conv, td dxd,
                                                cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes);
st cudnnGetConvolutionBackwardFilterWorkspaceSize(hd h, td xd, td dyd, cd conv, fd dwd,
                                                  cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes);
st cudnnConvolutionForward(hd h, in alpha, td xd, in x, fd wd, in w, cd conv, cudnnConvolutionFwdAlgo_t algo, out space,
                           size_t bytes, in beta, td yd, out y);
st cudnnConvolutionBackwardData(hd h, in alpha, fd wd, in w, td dyd, in dy, cd conv, cudnnConvolutionBwdDataAlgo_t algo,
                                out space, size_t bytes, in beta, td dxd, out dx);
st cudnnConvolutionBackwardFilter(hd h, in alpha, td xd, in x, td dyd, in dy, cd conv,
                                  cudnnConvolutionBwdFilterAlgo_t algo, out space, size_t bytes, in beta, fd dwd,
                                  out dw);
st cudnnConvolutionBiasActivationForward(hd h, in alpha1, td xd, in x, fd wd, in w, cd conv,
                                         cudnnConvolutionFwdAlgo_t algo, out space, size_t bytes, in alpha2, td zd,
                                         in z, td bias_d, in bias, const cudnnActivationDescriptor_t activation, td yd,
                                         out y);
st cudnnConvolutionBackwardBias(hd h, in alpha, td dyd, in dy, in beta, td dbd, out db);
st cudnnActivationForward(hd h, cudnnActivationDescriptor_t activation, in alpha, td xd, in x, in beta, td yd, out y);
st cudnnAddTensor(hd h, in alpha, td ad, in a, in beta, td c_d, out c);
#pragma GCC visibility pop
