! SPDX-License-Identifier: MIT
!> The loops over host tensors of each instruction set of x86-64.
module cnn_operations_loops
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_float64
   use cnn_cpu_instruction_sets, only : choose_level
   use cnn_operations_loops_f32_avx2, only : f32_avx2 => loops
   use cnn_operations_loops_f32_avx512, only : f32_avx512 => loops
   use cnn_operations_loops_f32_baseline, only : f32_baseline => loops
   use cnn_operations_loops_f64_avx2, only : f64_avx2 => loops
   use cnn_operations_loops_f64_avx512, only : f64_avx512 => loops
   use cnn_operations_loops_f64_baseline, only : f64_baseline => loops
   use cnn_operations_loops_table, only : loops_type
   implicit none
   private

   public :: loops_of

contains

   !> For an element type, and the instruction set that the kernels of the CPU use
   type(loops_type) function loops_of(dtype)
      !> float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      type(error_type), allocatable :: error
      integer :: level
      ! A level that is not there is refused when a device is opened
      call choose_level(level, error)
      if (allocated(error)) level = 1
      select case (level + merge(10, 0, dtype == dtype_float64))
       case (3)
         loops_of = f32_avx512()
       case (2)
         loops_of = f32_avx2()
       case (13)
         loops_of = f64_avx512()
       case (12)
         loops_of = f64_avx2()
       case (11)
         loops_of = f64_baseline()
       case default
         loops_of = f32_baseline()
      end select
   end function loops_of

end module cnn_operations_loops
