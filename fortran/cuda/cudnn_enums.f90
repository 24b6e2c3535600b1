! SPDX-License-Identifier: MIT
!> Constants of cuDNN, with their C names.
!>
!> Source.  cuDNN 9 API reference. The status codes were numbered anew in cuDNN 9.0; thousands are categories.
module cnn_cudnn_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudnnStatus_t`
   integer(c_int), parameter, public :: CUDNN_STATUS_SUCCESS = 0
   integer(c_int), parameter, public :: CUDNN_STATUS_NOT_INITIALIZED = 1001
   integer(c_int), parameter, public :: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH = 1002
   integer(c_int), parameter, public :: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED = 1008
   integer(c_int), parameter, public :: CUDNN_STATUS_BAD_PARAM = 2000
   integer(c_int), parameter, public :: CUDNN_STATUS_NOT_SUPPORTED = 3000
   integer(c_int), parameter, public :: CUDNN_STATUS_INTERNAL_ERROR = 4000
   integer(c_int), parameter, public :: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
   integer(c_int), parameter, public :: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
   integer(c_int), parameter, public :: CUDNN_STATUS_EXECUTION_FAILED = 5000
   !> `cudnnDataType_t`
   integer(c_int), parameter, public :: CUDNN_DATA_FLOAT = 0
   integer(c_int), parameter, public :: CUDNN_DATA_DOUBLE = 1
   integer(c_int), parameter, public :: CUDNN_DATA_HALF = 2
   integer(c_int), parameter, public :: CUDNN_DATA_BFLOAT16 = 9
   !> `cudnnTensorFormat_t`
   integer(c_int), parameter, public :: CUDNN_TENSOR_NCHW = 0
   integer(c_int), parameter, public :: CUDNN_TENSOR_NHWC = 1
   !> `cudnnConvolutionMode_t`; what torch calls convolution is cross-correlation
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION = 0
   integer(c_int), parameter, public :: CUDNN_CROSS_CORRELATION = 1
   !> `cudnnMathType_t`; FMA is the only one that never uses tensor cores, so never TF32
   integer(c_int), parameter, public :: CUDNN_DEFAULT_MATH = 0
   integer(c_int), parameter, public :: CUDNN_TENSOR_OP_MATH = 1
   integer(c_int), parameter, public :: CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2
   integer(c_int), parameter, public :: CUDNN_FMA_MATH = 3
   !> `cudnnDeterminism_t`
   integer(c_int), parameter, public :: CUDNN_NON_DETERMINISTIC = 0
   integer(c_int), parameter, public :: CUDNN_DETERMINISTIC = 1
   !> `cudnnNanPropagation_t`
   integer(c_int), parameter, public :: CUDNN_NOT_PROPAGATE_NAN = 0
   integer(c_int), parameter, public :: CUDNN_PROPAGATE_NAN = 1
   !> `cudnnConvolutionFwdAlgo_t`
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8
   !> `cudnnConvolutionBwdDataAlgo_t`; number 0 is not deterministic
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6
   !> `cudnnConvolutionBwdFilterAlgo_t`; numbers 0 and 3 are not deterministic
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT = 2
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED = 5
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING = 6
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7
   !> `cudnnActivationMode_t`
   integer(c_int), parameter, public :: CUDNN_ACTIVATION_SIGMOID = 0
   integer(c_int), parameter, public :: CUDNN_ACTIVATION_RELU = 1
   integer(c_int), parameter, public :: CUDNN_ACTIVATION_TANH = 2
   integer(c_int), parameter, public :: CUDNN_ACTIVATION_IDENTITY = 5
   !> `cudnnOpTensorOp_t`
   integer(c_int), parameter, public :: CUDNN_OP_TENSOR_ADD = 0
   integer(c_int), parameter, public :: CUDNN_OP_TENSOR_MUL = 1

end module cnn_cudnn_enums
