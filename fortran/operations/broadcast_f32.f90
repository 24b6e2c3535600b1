! SPDX-License-Identifier: MIT
!> Sums of broadcast tensors, for float32. The bodies are shared with the other precision.
module cnn_operations_broadcast_f32
   use cnn_core_kinds, only : dp, i8, wp => sp
   implicit none
   private

   public :: accumulate_loop, add_loops, sum_loops

contains
   include "broadcast.inc"
end module cnn_operations_broadcast_f32
