! SPDX-License-Identifier: MIT
!> A CUDA device as the calling thread's current one, for a while.
!>
!>     call context%enter(rt, ordinal, error)
!>     ... calls of CUDA and cuDNN
!>     call context%leave(error)                  ! in any case
!>
!> Where the caller's current device is this one, cudaSetDevice makes its context current to the thread: cudaGetDevice
!> alone does not, and what loads kernels by the driver, as cuDNN does, would find none in a thread that has not used
!> CUDA. Where it is another one, our context goes on top of the thread's stack of contexts, and comes off again: to set
!> the device and set it back would make a context, and take memory, on a GPU that perhaps nobody uses.
!> Source.  CUDA Driver API reference, context and primary context management; runtime API reference, cudaSetDevice, and
!>          interactions with the driver API.
module cnn_cuda_device_context
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_driver, only : cuda_driver_type
   implicit none
   private

   type, public :: cuda_context_type
      private
      type(cuda_driver_type) :: driver
      !> The driver's number for the device, and its context when it was needed
      integer(c_int) :: device = 0
      type(c_ptr) :: primary = c_null_ptr
      logical :: is_pushed = .false.
   contains
      procedure :: enter
      procedure :: leave
      procedure :: close
      procedure, private :: push, retain
   end type cuda_context_type

contains

   !> After an error the thread's current device is as it was
   subroutine enter(self, rt, ordinal, error)
      class(cuda_context_type), intent(inout) :: self
      !> The CUDA runtime, open
      type(cudart_type), intent(in) :: rt
      !> Which device, from 0
      integer, intent(in) :: ordinal
      !> No such device, or no driver
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: before
      self%is_pushed = .false.
      call rt%check(rt%get_device(before), named(ordinal)//"cudaGetDevice", error)
      if (allocated(error)) return
      if (before == ordinal) then
         call rt%check(rt%set_device(int(ordinal, c_int)), named(ordinal)//"cudaSetDevice", error)
      else
         call self%push(ordinal, error)
      end if
   end subroutine enter

   !> The thread's current device is what it was before `enter`; an error that is there already stays
   subroutine leave(self, ordinal, error)
      class(cuda_context_type), intent(inout) :: self
      !> Which device, from 0
      integer, intent(in) :: ordinal
      type(error_type), allocatable, intent(inout) :: error
      type(error_type), allocatable :: failure
      type(c_ptr) :: ignored
      if (.not. self%is_pushed) return
      self%is_pushed = .false.
      call self%driver%check(self%driver%ctx_pop_current(ignored), named(ordinal)//"cuCtxPopCurrent", failure)
      if (allocated(failure) .and. .not. allocated(error)) call move_alloc(failure, error)
   end subroutine leave

   !> Give the context back, outside of `enter` and `leave`; a failure has nobody to hear it
   subroutine close(self)
      class(cuda_context_type), intent(inout) :: self
      integer(c_int) :: ignored
      if (c_associated(self%primary)) ignored = self%driver%device_primary_ctx_release(self%device)
      self%primary = c_null_ptr
   end subroutine close

   subroutine push(self, ordinal, error)
      class(cuda_context_type), intent(inout) :: self
      !> Which device, from 0
      integer, intent(in) :: ordinal
      !> An error of the driver
      type(error_type), allocatable, intent(out) :: error
      if (.not. c_associated(self%primary)) call self%retain(ordinal, error)
      if (allocated(error)) return
      call self%driver%check(self%driver%ctx_push_current(self%primary), named(ordinal)//"cuCtxPushCurrent", error)
      self%is_pushed = .not. allocated(error)
   end subroutine push

   !> The context, once for all times
   subroutine retain(self, ordinal, error)
      class(cuda_context_type), intent(inout) :: self
      !> Which device, from 0
      integer, intent(in) :: ordinal
      !> No driver, or no context on the device
      type(error_type), allocatable, intent(out) :: error
      call self%driver%load(error)
      if (allocated(error)) return
      call self%driver%check(self%driver%init(0_c_int), named(ordinal)//"cuInit", error)
      if (allocated(error)) return
      call self%driver%check(self%driver%device_get(self%device, int(ordinal, c_int)), &
         & named(ordinal)//"cuDeviceGet", error)
      if (allocated(error)) return
      call self%driver%check(self%driver%device_primary_ctx_retain(self%primary, self%device), &
         & named(ordinal)//"cuDevicePrimaryCtxRetain", error)
      if (allocated(error)) self%primary = c_null_ptr
   end subroutine retain

   pure function named(ordinal) result(text)
      !> Which device, from 0
      integer, intent(in) :: ordinal
      character(len=:), allocatable :: text
      text = "cuda:"//to_text(ordinal)//": "
   end function named

end module cnn_cuda_device_context
