! SPDX-License-Identifier: MIT
!> The factors alpha and beta of cuDNN's calls, which takes them by address: 1 and 0.
!>
!> cuDNN reads float32 for tensors of float32, float16 and bfloat16, and float64 for those of float64. The numbers are
!> those of the module and never written, so that no call can find what another one left.
!>
!> Source.  cuDNN 9 API reference: scaling parameters.
module cnn_cuda_bindings_cudnn_factors
   use, intrinsic :: iso_c_binding, only : c_double, c_float, c_loc, c_ptr
   use cnn_core_kinds, only : dtype_float64
   implicit none
   private

   public :: one, zero

   real(c_float), target :: one_f32 = 1.0_c_float, zero_f32 = 0.0_c_float
   real(c_double), target :: one_f64 = 1.0_c_double, zero_f64 = 0.0_c_double

contains

   !> Address of 1 in the type that cuDNN wants for tensors of this element type
   type(c_ptr) function one(dtype)
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      one = c_loc(one_f32)
      if (dtype == dtype_float64) one = c_loc(one_f64)
   end function one

   type(c_ptr) function zero(dtype)
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      zero = c_loc(zero_f32)
      if (dtype == dtype_float64) zero = c_loc(zero_f64)
   end function zero

end module cnn_cuda_bindings_cudnn_factors
