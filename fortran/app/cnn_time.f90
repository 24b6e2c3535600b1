! SPDX-License-Identifier: MIT
!> `cnn_time FIXTURE STEPS [DEVICE]`: the seconds of training steps on a fixture's first batch, one in each line.
!>
!> A memory-efficient network, as a program that only trains would have it; nothing is written but the times. What
!> Python adds to a step is measured against it. Exit status: 0 done, 2 bad input or usage.
program cnn_time
   use cnn_app_main_program, only : answered, argument, end_program
   use cnn_app_readable, only : check_readable
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_io_fixture, only : fixture_type
   use cnn_io_run_steps, only : prepare
   use cnn_model_network, only : keep_needed, network_type
   implicit none

   character(len=*), parameter :: nl = new_line("a")
   character(len=*), parameter :: usage = &
      & "usage: cnn_time FIXTURE STEPS [DEVICE]"//nl//nl// &
      & "Train STEPS steps on the first batch of the exchange file FIXTURE, as a program that only trains"//nl// &
      & "would, and print the seconds of each, one in a line. Nothing is written."//nl//nl// &
      & "  DEVICE       cpu (default), cuda, ..., as of cnn_step --device"//nl// &
      & "  --version    print the version"//nl// &
      & "  --help       print this"//nl//nl// &
      & "OMP_NUM_THREADS sets the number of threads. Exit status: 0 done, 2 bad input or usage."
   type(error_type), allocatable :: error

   if (answered("cnn_time", usage)) stop
   call time_steps(error)
   call end_program("cnn_time", error)

contains

   subroutine time_steps(error)
      !> What is wrong with the command line or the fixture, or why a step failed
      type(error_type), allocatable, intent(out) :: error
      type(fixture_type) :: fixture
      class(network_type), allocatable :: network
      type(tensor_type) :: input, target
      character(len=:), allocatable :: path
      integer :: steps

      steps = 0
      path = argument(1)
      call read_number(argument(2), steps)
      if (len(path) == 0 .or. steps < 1 .or. command_argument_count() > 3) then
         call fail(error, "expected FIXTURE STEPS [DEVICE], with 1 step or more (cnn_time --help)")
         return
      end if
      call check_readable(path, error)
      if (allocated(error)) return
      call run(path, fixture, network, input, target, steps, error)
      if (allocated(network)) then
         call network%backend%release(input)
         call network%backend%release(target)
      end if
      call fixture%close()
   end subroutine time_steps

   !> Read, train, and print; what it opens and allocates is there after an error too
   subroutine run(path, fixture, network, input, target, steps, error)
      !> Name of the fixture's file
      character(len=*), intent(in) :: path
      !> The fixture, to be closed
      type(fixture_type), intent(inout) :: fixture
      !> The network, with the fixture's weights; trained
      class(network_type), allocatable, intent(out) :: network
      !> The batch, on the network's device
      type(tensor_type), intent(inout) :: input
      !> What its output should be, on the network's device
      type(tensor_type), intent(inout) :: target
      !> How many times
      integer, intent(in) :: steps
      !> Why a step failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: before, after, rate
      real(dp) :: loss
      integer :: i, rank
      call fixture%open(path, error)
      if (allocated(error)) return
      call prepare(fixture, device(), "", keep_needed, network, error)
      if (allocated(error)) return
      call fixture%read_batch(0, network, input, target, error, rank)
      if (.not. allocated(error)) call fixture%read_masks(0, network, error)
      if (allocated(error)) return
      do i = 1, steps
         call system_clock(before, rate)
         call network%step(input, target, fixture%optimizer, .true., loss, error, rank)
         if (allocated(error)) return
         call system_clock(after)
         write (*, "(es14.7)") real(after - before, dp)/real(rate, dp)
      end do
   end subroutine run

   !> The third argument, or cpu
   function device() result(name)
      character(len=:), allocatable :: name
      name = argument(3)
      if (len(name) == 0) name = "cpu"
   end function device

   !> 0 for what is no number
   subroutine read_number(text, number)
      !> A word of the command line
      character(len=*), intent(in) :: text
      !> At most 999999
      integer, intent(out) :: number
      integer :: stat
      number = 0
      if (len(text) < 1 .or. len(text) > 6 .or. verify(text, "0123456789") /= 0) return
      read (text, *, iostat=stat) number
      if (stat /= 0) number = 0
   end subroutine read_number

end program cnn_time
