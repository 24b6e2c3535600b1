! SPDX-License-Identifier: MIT
!> Our element types as cuDNN's, and the type that it sums in.
module cnn_cuda_bindings_cudnn_types
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_kinds, only : dtype_bfloat16, dtype_float16, dtype_float64
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF
   implicit none
   private

   public :: compute_type, cudnn_dtype

contains

   !> `cudnnDataType_t` of one of our types
   pure integer(c_int) function cudnn_dtype(dtype)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      select case (dtype)
       case (dtype_float64)
         cudnn_dtype = CUDNN_DATA_DOUBLE
       case (dtype_float16)
         cudnn_dtype = CUDNN_DATA_HALF
       case (dtype_bfloat16)
         cudnn_dtype = CUDNN_DATA_BFLOAT16
       case default
         cudnn_dtype = CUDNN_DATA_FLOAT
      end select
   end function cudnn_dtype

   !> Sums are float32, or float64 for tensors of float64
   pure integer(c_int) function compute_type(dtype)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      compute_type = CUDNN_DATA_FLOAT
      if (dtype == dtype_float64) compute_type = CUDNN_DATA_DOUBLE
   end function compute_type

end module cnn_cuda_bindings_cudnn_types
