! SPDX-License-Identifier: MIT
!> The inner loops of cnn_oracle_deviation on processors with one instruction set.
module cnn_oracle_deviation_levels
   use cnn_oracle_deviation_runs_baseline, only : look_baseline => look
   use cnn_oracle_deviation_type, only : look_type
   implicit none
   private

   public :: look_of

contains

   !> That of a level of cnn_cpu_instruction_sets
   function look_of(level) result(look)
      !> 1, the only one
      integer, intent(in) :: level
      procedure(look_type), pointer :: look
      nullify (look)
      if (level >= 1) look => look_baseline
   end function look_of

end module cnn_oracle_deviation_levels
