! SPDX-License-Identifier: MIT
!> Loops over tensors in host memory, for float64. The bodies are shared with the other precision.
module cnn_operations_loops_f64
   use, intrinsic :: ieee_arithmetic, only : ieee_is_nan
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use cnn_core_kinds, only : dp, i8, wp => dp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   public :: accumulate_loop, add_loops, sum_loops
   public :: copy_loop, from_channels, to_channels
   public :: dropout_loop
   public :: leaky_backward_loop, leaky_loop, sigmoid_backward_loop, sigmoid_loop, tanh_backward_loop, tanh_loop
   public :: max_backward_loops, max_loops, mean_backward_loops, mean_loops
   public :: normalize_backward_loops, normalize_loops, statistics_loops
   public :: absolute_loop, add_bias_loops, cross_entropy_loops
   public :: resample_backward_loops, resample_loops, softmax_backward_loops, softmax_loops

contains
   include "broadcast.inc"
   include "blocks.inc"
   include "pointwise.inc"
   include "windows.inc"
   include "resample.inc"
   include "normalization.inc"
   include "channels.inc"
   include "losses.inc"
end module cnn_operations_loops_f64
