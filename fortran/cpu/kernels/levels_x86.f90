! SPDX-License-Identifier: MIT
!> The kernels of each instruction set of x86-64.
module cnn_cpu_kernels_levels
   use cnn_cpu_kernels_all_f32_avx2, only : f32_avx2 => kernels
   use cnn_cpu_kernels_all_f32_avx512, only : f32_avx512 => kernels
   use cnn_cpu_kernels_all_f32_baseline, only : f32_baseline => kernels
   use cnn_cpu_kernels_all_f64_avx2, only : f64_avx2 => kernels
   use cnn_cpu_kernels_all_f64_avx512, only : f64_avx512 => kernels
   use cnn_cpu_kernels_all_f64_baseline, only : f64_baseline => kernels
   use cnn_cpu_kernels_table, only : kernels_type
   implicit none
   private

   public :: kernels_of

   !> Levels are numbered from 1: baseline, avx2, avx512
   integer, parameter, public :: compiled_levels = 3

contains

   !> For float32 and for float64
   subroutine kernels_of(level, single, double)
      !> Number of the instruction set, from 1
      integer, intent(in) :: level
      !> Kernels for float32
      type(kernels_type), intent(out) :: single
      !> Kernels for float64
      type(kernels_type), intent(out) :: double
      select case (level)
       case (3)
         single = f32_avx512()
         double = f64_avx512()
       case (2)
         single = f32_avx2()
         double = f64_avx2()
       case default
         single = f32_baseline()
         double = f64_baseline()
      end select
   end subroutine kernels_of

end module cnn_cpu_kernels_levels
