! SPDX-License-Identifier: MIT
!> The convolution as plain loops, for float32. The bodies are shared with the other precision.
module cnn_naive_f32
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, wp => sp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   public :: naive_forward, naive_backward_data, naive_backward_filter

contains
   include "convolution.inc"
end module cnn_naive_f32
