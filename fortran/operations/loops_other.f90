! SPDX-License-Identifier: MIT
!> The loops over host tensors where there is one instruction set: that of the build.
module cnn_operations_loops
   use cnn_core_kinds, only : dtype_float64
   use cnn_operations_loops_f32_baseline, only : f32 => loops
   use cnn_operations_loops_f64_baseline, only : f64 => loops
   use cnn_operations_loops_table, only : loops_type
   implicit none
   private

   public :: loops_of

contains

   !> For an element type
   type(loops_type) function loops_of(dtype)
      !> float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      if (dtype == dtype_float64) then
         loops_of = f64()
      else
         loops_of = f32()
      end if
   end function loops_of

end module cnn_operations_loops
