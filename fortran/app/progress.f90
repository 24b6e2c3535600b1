! SPDX-License-Identifier: MIT
!> One line a step on standard output.
module cnn_app_progress
   use, intrinsic :: iso_fortran_env, only : output_unit
   use cnn_core_kinds, only : dp
   implicit none
   private

   public :: print_step

contains

   subroutine print_step(step, steps, loss)
      !> Which one has been taken, from 0
      integer, intent(in) :: step
      !> How many there are
      integer, intent(in) :: steps
      !> Loss of this step
      real(dp), intent(in) :: loss
      write (output_unit, "(a, i0, a, i0, a, es14.7)") "step ", step, " of 0..", steps - 1, "   loss ", loss
      flush (output_unit)
   end subroutine print_step

end module cnn_app_progress
