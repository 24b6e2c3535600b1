! SPDX-License-Identifier: MIT
!> Loops over tensors in host memory, for float64. The bodies are shared with the other precision.
module cnn_operations_loops_f64
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use cnn_core_kinds, only : dp, i8, wp => dp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   public :: run_loss, run_primitive

contains
   include "formulas.inc"
   include "primitives.inc"
   include "broadcast.inc"
   include "blocks.inc"
   include "pointwise.inc"
   include "windows.inc"
   include "resample.inc"
   include "normalization.inc"
   include "channels.inc"
   include "losses.inc"
end module cnn_operations_loops_f64
