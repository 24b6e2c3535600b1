! SPDX-License-Identifier: MIT
!> The kernels of processors with one instruction set, as the compiler's own options choose it.
module cnn_cpu_kernels_levels
   use cnn_cpu_kernels_all_f32_baseline, only : f32_baseline => kernels
   use cnn_cpu_kernels_all_f64_baseline, only : f64_baseline => kernels
   use cnn_cpu_kernels_table, only : kernels_type
   implicit none
   private

   public :: kernels_of

   !> Only the baseline
   integer, parameter, public :: compiled_levels = 1

contains

   !> For float32 and for float64, whatever the level
   subroutine kernels_of(level, single, double)
      !> Number of the instruction set, from 1
      integer, intent(in) :: level
      !> Kernels for float32
      type(kernels_type), intent(out) :: single
      !> Kernels for float64
      type(kernels_type), intent(out) :: double
      if (level < 1) return
      single = f32_baseline()
      double = f64_baseline()
   end subroutine kernels_of

end module cnn_cpu_kernels_levels
