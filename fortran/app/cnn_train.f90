! SPDX-License-Identifier: MIT
!> `mpirun -n N cnn_train FIXTURE RESULT`: train on an exchange file with N processes, which share every batch.
!>
!> Exit status: 0 done, 2 bad input or usage (nothing is written).
program cnn_train
   use cnn_app_command_line, only : arguments_type, read_arguments, training_usage
   use cnn_app_main_program, only : answered, end_program
   use cnn_app_mpi_ranks, only : mpi_ranks_type
   use cnn_app_progress, only : print_step
   use cnn_app_readable, only : check_readable
   use cnn_core_error, only : error_type
   use cnn_io_run_steps, only : run_type, train
   implicit none

   type(mpi_ranks_type) :: ranks
   type(arguments_type) :: arguments
   type(error_type), allocatable :: error

   if (answered("cnn_train", training_usage)) stop
   call read_arguments("cnn_train", arguments, error)
   ! In a child process, which only a program has that speaks with no others yet
   if (.not. allocated(error)) call check_readable(arguments%fixture, error)
   call ranks%start()
   if (.not. allocated(error)) call train_with(ranks, arguments, error)
   if (allocated(error)) call ranks%end_all("cnn_train", error)
   call ranks%finish()
   call end_program("cnn_train", error)

contains

   subroutine train_with(ranks, arguments, error)
      !> All processes
      type(mpi_ranks_type), intent(in) :: ranks
      !> Of the command line
      type(arguments_type), intent(in) :: arguments
      !> What is wrong with a file, or why a step failed
      type(error_type), allocatable, intent(out) :: error
      type(run_type) :: run
      run%producer = "cnn_train"
      run%device = arguments%device
      run%precision = arguments%precision
      run%steps = arguments%steps
      allocate (run%ranks, source=ranks)
      run%ranks%by_image = arguments%reproducible
      if (ranks%rank == 0) then
         call train(arguments%fixture, arguments%result, run, error, print_step)
      else
         call train(arguments%fixture, arguments%result, run, error)
      end if
   end subroutine train_with

end program cnn_train
