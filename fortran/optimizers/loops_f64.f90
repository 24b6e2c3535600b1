! SPDX-License-Identifier: MIT
!> Steps on vectors in host memory, for float64. The bodies are shared with the other precision.
module cnn_optimizers_loops_f64
   use cnn_core_kinds, only : dp, i8, wp => dp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   public :: adam_loop

contains
   include "adam_formula.inc"
   include "adam.inc"
end module cnn_optimizers_loops_f64
