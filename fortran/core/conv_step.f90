! SPDX-License-Identifier: MIT
!> One convolution of a fused sequence, of which each takes the output of the one before: what devices are asked for.
module cnn_core_conv_step
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   !> y = conv(x, w) + bias, then ReLU with `relu`, a leaky one with a slope; dw and db are the gradients with respect
   !> to w and bias, which may be empty
   type, public :: conv_step_type
      type(conv_type) :: conv
      logical :: relu = .false.
      !> Factor of negative results in place of 0: only a single step in host memory has one
      real(dp) :: slope = 0.0_dp
      !> Of the first step: whether the gradient of conv's result is needed afterwards
      logical :: keeps_gradient = .false.
      !> Of the first step: whether what lies between the steps is in a form of the device's own
      logical :: opaque = .false.
      type(tensor_type) :: x, w, bias = tensor_type(), y, dw = tensor_type(), db = tensor_type()
   end type conv_step_type

end module cnn_core_conv_step
