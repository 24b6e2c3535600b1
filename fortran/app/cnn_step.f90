! SPDX-License-Identifier: MIT
!> `cnn_step FIXTURE RESULT`: train on an exchange file, write every tensor to another.
!>
!> No Python takes part. Exit status: 0 done, 2 bad input or usage (nothing is written).
program cnn_step
   use cnn_app_command_line, only : arguments_type, read_arguments, usage
   use cnn_app_main_program, only : answered, end_program
   use cnn_app_progress, only : print_step
   use cnn_app_readable, only : check_readable
   use cnn_core_error, only : error_type
   use cnn_io_run_steps, only : check_result, run_steps
   implicit none

   type(error_type), allocatable :: error

   if (answered("cnn_step", usage)) stop
   call train(error)
   call end_program("cnn_step", error)

contains

   subroutine train(error)
      !> What is wrong with the command line or a file, or why a step failed
      type(error_type), allocatable, intent(out) :: error
      type(arguments_type) :: arguments
      call read_arguments("cnn_step", arguments, error)
      if (allocated(error)) return
      call check_result(arguments%fixture, arguments%result, error)
      if (allocated(error)) return
      call check_readable(arguments%fixture, error)
      if (allocated(error)) return
      call run_steps(arguments%fixture, arguments%result, arguments%device, arguments%precision, error, print_step)
   end subroutine train

end program cnn_step
