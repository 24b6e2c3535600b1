! SPDX-License-Identifier: MIT
!> The data gradient before a ReLU, with channels last: in one plan with the ReLU's mask, or in two steps.
!>
!> One plan.  cuDNN compiles it when it is made, so it is there with compile=yes only; our kernel sums the bias
!>            gradient.
!> Two steps. The plain data gradient, and our kernel, which applies the mask and sums the bias gradient.
!> Choice.    With algorithm=measured whichever is faster, timed once on the tensors of the step; else one plan,
!>            where it is offered.
module cnn_cuda_operations_masked
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_plans, only : find_plan
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_nhwc, only : bias_gradient_nhwc, relu_backward_nhwc
   use cnn_cuda_operations_nhwc_plans, only : has_plan, run
   use cnn_cuda_plans_request, only : conv_request_type
   implicit none
   private

   public :: backward_relu

   !> Runs that are timed together, after one that is not
   integer, parameter :: runs = 5

   !> What is to be done
   type :: work_type
      !> The data gradient alone, and with the mask
      type(conv_request_type) :: plain, masked
      type(tensor_type) :: w, dy, a, dx, db
   end type work_type

contains

   !> dx from w and dy, 0 where `a`, which a ReLU gave, is not positive; and db = sums of dx when it is not empty
   subroutine backward_relu(device, name, request, w, dy, a, dx, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> The plain data gradient
      type(conv_request_type), intent(in) :: request
      !> Filter, *device*
      type(tensor_type), intent(in) :: w
      !> Gradient of the convolution's result, NHWC, *device*
      type(tensor_type), intent(in) :: dy
      !> Result of the ReLU, which the convolution took, NHWC, *device*
      type(tensor_type), intent(in) :: a
      !> Gradient of the ReLU's input, NHWC, *device*
      type(tensor_type), intent(in) :: dx
      !> Bias gradient (c, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      logical :: in_one, refused

      work = work_type(request, request, w, dy, a, dx, db)
      work%masked%mask = .true.
      in_one = has_plan(device, name, work%masked, error)
      if (allocated(error)) return
      if (in_one .and. name%measured) call choose_faster(device, name, work, in_one, error)
      if (allocated(error)) return
      refused = .not. in_one
      if (in_one) call in_one_plan(device, name, work, error, refused)
      if (allocated(error)) return
      if (refused) call in_two_steps(device, name, work, error)
   end subroutine backward_relu

   subroutine in_one_plan(device, name, work, error, refused)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be done
      type(work_type), intent(in) :: work
      type(error_type), allocatable, intent(out) :: error
      !> Not done: cuDNN does not support it after all
      logical, intent(out) :: refused
      call run(device, name, work%masked, [work%dx%address, work%w%address, work%dy%address, work%a%address], error, &
         & refused)
      if (allocated(error) .or. refused) return
      if (work%db%is_allocated()) call bias_gradient_nhwc(device, work%dx, work%db, error)
   end subroutine in_one_plan

   subroutine in_two_steps(device, name, work, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be done
      type(work_type), intent(in) :: work
      type(error_type), allocatable, intent(out) :: error
      call run(device, name, work%plain, [work%dx%address, work%w%address, work%dy%address], error)
      if (allocated(error)) return
      call relu_backward_nhwc(device, work%a, work%dx, work%dx, work%db, error)
   end subroutine in_two_steps

   !> Whether one plan is faster: both are timed, once for each shape, and the slower one is not taken any more.
   !> Waits for the device. The results are overwritten by the step itself, where what failed here is an error
   subroutine choose_faster(device, name, work, in_one, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be done
      type(work_type), intent(in) :: work
      !> Whether one plan is faster, or was found so before
      logical, intent(out) :: in_one
      !> An error of the search for the plan
      type(error_type), allocatable, intent(out) :: error
      integer :: i

      in_one = .true.
      call find_plan(device, name, work%masked, i, error)
      if (allocated(error)) return
      if (device%plans(i)%is_timed) return
      in_one = ticks_of(device, name, work, .true.) <= ticks_of(device, name, work, .false.)
      device%plans(i)%is_timed = .true.
      device%plans(i)%may_fuse = in_one
   end subroutine choose_faster

   !> Of the system clock, for `runs` runs of one of them; the largest number when it cannot be run
   integer(i8) function ticks_of(device, name, work, in_one) result(ticks)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be done
      type(work_type), intent(in) :: work
      !> Which of them is timed
      logical, intent(in) :: in_one
      type(error_type), allocatable :: failure
      integer(i8) :: start, finish
      integer(c_int) :: status
      integer :: i
      logical :: refused

      ticks = huge(ticks)
      refused = .false.
      start = 0_i8
      do i = 0, runs
         if (in_one) then
            call in_one_plan(device, name, work, failure, refused)
         else
            call in_two_steps(device, name, work, failure)
         end if
         ! The first run loads and compiles; behind the last one the time is up
         if ((i == 0 .or. i == runs) .and. .not. (allocated(failure) .or. refused)) call device%synchronize(failure)
         if (allocated(failure) .or. refused) then
            ! Else the next of the thread to ask would take it for its own
            status = device%rt%get_last_error()
            return
         end if
         if (i == 0) call system_clock(start)
      end do
      call system_clock(finish)
      ticks = finish - start
   end function ticks_of

end module cnn_cuda_operations_masked
