! SPDX-License-Identifier: MIT
!> The inner loops of cnn_oracle_deviation for each instruction set of x86-64.
module cnn_oracle_deviation_levels
   use cnn_oracle_deviation_runs_avx2, only : look_avx2 => look
   use cnn_oracle_deviation_runs_avx512, only : look_avx512 => look
   use cnn_oracle_deviation_runs_baseline, only : look_baseline => look
   use cnn_oracle_deviation_type, only : look_type
   implicit none
   private

   public :: look_of

contains

   !> That of a level of cnn_cpu_instruction_sets
   function look_of(level) result(look)
      !> 1 for any x86-64, 2 for AVX2, 3 for AVX-512
      integer, intent(in) :: level
      procedure(look_type), pointer :: look
      select case (level)
       case (3)
         look => look_avx512
       case (2)
         look => look_avx2
       case default
         look => look_baseline
      end select
   end function look_of

end module cnn_oracle_deviation_levels
