! SPDX-License-Identifier: MIT
!> Constants of cuDNN, with their C names.
!>
!> Source.  cuDNN 9 API reference. The status codes were numbered anew in cuDNN 9.0; thousands are categories.
module cnn_cuda_bindings_cudnn_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudnnStatus_t`; only the test of these numbers needs BAD_PARAM, which was 3 in cuDNN 8
   integer(c_int), parameter, public :: CUDNN_STATUS_SUCCESS = 0
   integer(c_int), parameter, public :: CUDNN_STATUS_BAD_PARAM = 2000
   integer(c_int), parameter, public :: CUDNN_STATUS_NOT_SUPPORTED = 3000
   !> `cudnnDataType_t`
   integer(c_int), parameter, public :: CUDNN_DATA_FLOAT = 0
   integer(c_int), parameter, public :: CUDNN_DATA_DOUBLE = 1
   integer(c_int), parameter, public :: CUDNN_DATA_HALF = 2
   integer(c_int), parameter, public :: CUDNN_DATA_BFLOAT16 = 9
   !> `cudnnTensorFormat_t`
   integer(c_int), parameter, public :: CUDNN_TENSOR_NCHW = 0
   !> `cudnnConvolutionMode_t`; what torch calls convolution is cross-correlation. CONVOLUTION flips the kernel: it is
   !> never used, and is here so that nobody takes it for the other
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION = 0
   integer(c_int), parameter, public :: CUDNN_CROSS_CORRELATION = 1
   !> `cudnnMathType_t`; FMA is the only one that never uses tensor cores, so never TF32
   integer(c_int), parameter, public :: CUDNN_DEFAULT_MATH = 0
   integer(c_int), parameter, public :: CUDNN_TENSOR_OP_MATH = 1
   integer(c_int), parameter, public :: CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2
   integer(c_int), parameter, public :: CUDNN_FMA_MATH = 3
   !> `cudnnDeterminism_t`
   integer(c_int), parameter, public :: CUDNN_DETERMINISTIC = 1
   !> `cudnnNanPropagation_t`
   integer(c_int), parameter, public :: CUDNN_PROPAGATE_NAN = 1
   !> `cudnnConvolutionFwdAlgo_t`; from FFT on, all are transforms
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4
   !> `cudnnConvolutionBwdDataAlgo_t`; number 0 is not deterministic, and from FFT on, all are transforms
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2
   !> `cudnnConvolutionBwdFilterAlgo_t`; numbers 0 and 3 are not deterministic; FFT, and all from WINOGRAD on, are
   !> transforms
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT = 2
   integer(c_int), parameter, public :: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4
   !> `cudnnActivationMode_t`
   integer(c_int), parameter, public :: CUDNN_ACTIVATION_RELU = 1

end module cnn_cuda_bindings_cudnn_enums
