! SPDX-License-Identifier: MIT
!> `cnn_step FIXTURE RESULT`: train on an exchange file, write every tensor to another.
!>
!> No Python takes part. Exit status: 0 done, 2 bad input or usage (nothing is written).
program cnn_step
   use, intrinsic :: iso_c_binding, only : c_int
   use, intrinsic :: iso_fortran_env, only : error_unit
   use cnn_command_line, only : arguments_type, read_arguments, usage
   use cnn_devices, only : close_cuda_devices
   use cnn_error, only : error_type
   use cnn_progress, only : print_step
   use cnn_readable, only : check_readable
   use cnn_run_steps, only : run_steps
   use cnn_version, only : version
   implicit none

   interface
      !> C <stdlib.h>; `stop 2` would print a line of its own
      subroutine c_exit(status) bind(C, name="exit")
         import :: c_int
         implicit none
         integer(c_int), value :: status
      end subroutine c_exit
   end interface

   type(arguments_type) :: arguments
   type(error_type), allocatable :: error, ignored

   call read_arguments(arguments, error)
   if (.not. allocated(error)) then
      if (arguments%help) then
         write (*, "(a)") usage
         stop
      else if (arguments%show_version) then
         write (*, "(a)") "cnn_step "//version
         stop
      end if
      call check_readable(arguments%fixture, error)
      if (.not. allocated(error)) call run_steps(arguments%fixture, arguments%result, arguments%device, &
         & arguments%precision, error, print_step)
      ! The result is written: what a device does not take back goes with the process
      call close_cuda_devices(ignored)
   end if
   if (allocated(error)) then
      write (error_unit, "(a)") "cnn_step: "//error%message
      call c_exit(2_c_int)
   end if

end program cnn_step
