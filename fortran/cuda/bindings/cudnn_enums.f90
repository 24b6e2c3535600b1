! SPDX-License-Identifier: MIT
!> Constants of cuDNN, with their C names.
!>
!> Source.  cuDNN 9 API reference. The status codes were numbered anew in cuDNN 9.0; thousands are categories.
module cnn_cuda_bindings_cudnn_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudnnStatus_t`
   integer(c_int), parameter, public :: CUDNN_STATUS_SUCCESS = 0
   integer(c_int), parameter, public :: CUDNN_STATUS_NOT_SUPPORTED = 3000
   !> `cudnnDataType_t`
   integer(c_int), parameter, public :: CUDNN_DATA_FLOAT = 0
   integer(c_int), parameter, public :: CUDNN_DATA_DOUBLE = 1
   integer(c_int), parameter, public :: CUDNN_DATA_HALF = 2
   integer(c_int), parameter, public :: CUDNN_DATA_BFLOAT16 = 9
   !> `cudnnConvolutionMode_t`; what torch calls convolution is cross-correlation. CUDNN_CONVOLUTION flips the kernel
   integer(c_int), parameter, public :: CUDNN_CROSS_CORRELATION = 1
   !> `cudnnNanPropagation_t`
   integer(c_int), parameter, public :: CUDNN_PROPAGATE_NAN = 1

end module cnn_cuda_bindings_cudnn_enums
