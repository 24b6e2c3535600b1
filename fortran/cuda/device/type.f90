! SPDX-License-Identifier: MIT
!> A CUDA device: its libraries' handles, its stream, its buffers; the convolutions it knows.
!>
!> Streams.  Work is queued on `stream`: the device's own one, or one that the caller gave with `use_stream`. Work
!>           on a new stream waits, on the device, for what was queued before. The host waits in `synchronize` only, and
!>           in cnn_cuda_device_prefetch.
!>           A caller's stream may be gone when it is not the present one any more: it is not touched then.
!> Current device.  Between `enter` and `leave` this device is the calling thread's, whichever thread that is; before
!>                  and after, the caller's.
!> Source.   CUDA runtime API and cuDNN 9 API reference.
module cnn_cuda_device_type
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_cudart_enums, only : cudaDevAttrMultiProcessorCount, cudaEventDisableTiming, &
      & cudaStreamNonBlocking
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_device_buffers, only : buffers_type
   use cnn_cuda_device_context, only : cuda_context_type
   use cnn_cuda_device_kernels, only : kernels_type
   use cnn_cuda_plans_graph_plan, only : conv_plan_type, free_graph_plan
   implicit none
   private

   type, public :: cuda_device_type
      integer :: ordinal = 0
      !> Multiprocessors
      integer(c_int) :: processors = 1
      type(cudart_type), pointer :: rt => null()
      type(cudnn_type), pointer :: dnn => null()
      type(kernels_type) :: kernels
      !> Where work is queued now
      type(c_ptr) :: stream = c_null_ptr
      type(c_ptr) :: dnn_handle = c_null_ptr
      !> The convolutions of the process so far, the first `plan_count` of them
      type(conv_plan_type), allocatable :: plans(:)
      integer :: plan_count = 0
      !> Tensors alive
      integer :: live = 0
      type(buffers_type) :: buffers
      type(c_ptr) :: own_stream = c_null_ptr
      type(c_ptr), private :: last_work = c_null_ptr
      !> Our place in the thread, and whether we are in it
      type(cuda_context_type), private :: context
      logical, private :: inside = .false.
   contains
      procedure :: enter
      procedure :: leave
      procedure :: leave_idle
      procedure :: use_stream
      procedure :: synchronize
      procedure :: reserve
      procedure :: reserve_scratch
      procedure :: staging_ready
      procedure :: check
      procedure :: open, close
      procedure :: live_allocations
      procedure :: on_stream
      procedure, private :: finish
   end type cuda_device_type

contains

   !> After an error, `close` gives back what was made
   subroutine open(self, ordinal, rt, dnn, error)
      class(cuda_device_type), intent(inout) :: self
      !> Which device, from 0
      integer, intent(in) :: ordinal
      !> The CUDA runtime, open; must live as long
      type(cudart_type), intent(inout), target :: rt
      !> cuDNN, open; must live as long
      type(cudnn_type), intent(inout), target :: dnn
      !> No such device, no memory on it, or a library that fails
      type(error_type), allocatable, intent(out) :: error

      self%ordinal = ordinal
      self%rt => rt
      self%dnn => dnn
      call self%enter(error)
      if (allocated(error)) return
      call make_parts(self, error)
      call self%leave(error)
   end subroutine open

   !> Stream, event, cuDNN's handle, kernels and buffers
   subroutine make_parts(self, error)
      class(cuda_device_type), intent(inout) :: self
      !> No memory on the device, or a library that fails
      type(error_type), allocatable, intent(out) :: error

      call self%check(self%rt%device_get_attribute(self%processors, cudaDevAttrMultiProcessorCount, &
         & int(self%ordinal, c_int)), "counting multiprocessors", error)
      if (allocated(error)) return
      call made(self%rt%stream_create_with_flags(self%own_stream, cudaStreamNonBlocking), self%own_stream, "a stream")
      if (allocated(error)) return
      self%stream = self%own_stream
      call made(self%rt%event_create_with_flags(self%last_work, cudaEventDisableTiming), self%last_work, "an event")
      if (allocated(error)) return
      call self%dnn%check(self%dnn%create(self%dnn_handle), "cudnnCreate", error)
      if (allocated(error)) then
         self%dnn_handle = c_null_ptr
         return
      end if
      call self%dnn%check(self%dnn%set_stream(self%dnn_handle, self%stream), "cudnnSetStream", error)
      if (allocated(error)) return
      call self%kernels%load(error)
      if (allocated(error)) return
      call self%buffers%open(self%rt, error)

   contains

      !> What a failed call has written is nothing to give back
      subroutine made(status, object, what)
         !> Status of the call that made it
         integer(c_int), intent(in) :: status
         !> What it gave; null where it failed
         type(c_ptr), intent(inout) :: object
         !> For the message
         character(len=*), intent(in) :: what
         if (status /= 0) object = c_null_ptr
         call self%check(status, "making "//what, error)
      end subroutine made

   end subroutine make_parts

   !> What was made is given back, in the opposite order; failures here have nobody to hear them
   subroutine close(self)
      class(cuda_device_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      integer(c_int) :: status
      integer :: i
      if (.not. associated(self%rt)) return
      status = 0
      call self%enter(ignored)
      call self%finish()
      do i = 1, self%plan_count
         call free_graph_plan(self%dnn, self%plans(i)%graph)
      end do
      self%plan_count = 0
      call self%kernels%unload()
      call self%buffers%close(self%rt)
      if (c_associated(self%dnn_handle)) status = self%dnn%destroy(self%dnn_handle)
      if (c_associated(self%last_work)) status = self%rt%event_destroy(self%last_work)
      if (c_associated(self%own_stream)) status = self%rt%stream_destroy(self%own_stream)
      ! Else the next of the thread to ask would take it for its own
      if (status /= 0) status = self%rt%get_last_error()
      self%stream = c_null_ptr
      self%own_stream = c_null_ptr
      self%last_work = c_null_ptr
      self%dnn_handle = c_null_ptr
      call self%leave_idle(ignored)
      call self%context%close()
   end subroutine close

   !> Wait for all work without touching a caller's stream, which may be gone
   subroutine finish(self)
      class(cuda_device_type), intent(inout) :: self
      integer(c_int) :: status
      if (.not. c_associated(self%own_stream)) return
      status = 0
      if (.not. same(self%stream, self%own_stream)) then
         status = self%rt%stream_wait_event(self%own_stream, self%last_work, 0_c_int)
         self%stream = self%own_stream
      end if
      if (status == 0) status = self%rt%stream_synchronize(self%own_stream)
      if (status /= 0) status = self%rt%get_last_error()
   end subroutine finish

   !> Tensors, workspace and buffers, on the device and pinned
   pure integer function live_allocations(self)
      class(cuda_device_type), intent(in) :: self
      live_allocations = self%live + self%buffers%live
   end function live_allocations

   !> Make this the thread's device; before any other call
   subroutine enter(self, error)
      class(cuda_device_type), intent(inout) :: self
      !> The thread's device is what it was
      type(error_type), allocatable, intent(out) :: error
      call self%context%enter(self%rt, self%ordinal, error)
      self%inside = .not. allocated(error)
   end subroutine enter

   !> Give the thread its device back; an error that is there already stays
   subroutine leave(self, error)
      class(cuda_device_type), intent(inout) :: self
      type(error_type), allocatable, intent(inout) :: error
      type(error_type), allocatable :: failure
      ! A caller's stream may be gone when the next one comes: what was queued on it is marked now, and what was
      ! queued before an error as well
      if (self%inside .and. .not. same(self%stream, self%own_stream)) then
        call self%check(self%rt%event_record(self%last_work, self%stream), "cudaEventRecord", failure)
      end if
      if (allocated(failure) .and. .not. allocated(error)) call move_alloc(failure, error)
      call self%leave_idle(error)
   end subroutine leave

   !> `leave` where nothing was queued
   subroutine leave_idle(self, error)
      class(cuda_device_type), intent(inout) :: self
      type(error_type), allocatable, intent(inout) :: error
      self%inside = .false.
      call self%context%leave(self%ordinal, error)
   end subroutine leave_idle

   !> Queue work on this stream from now on; `own` for the device's own one
   subroutine use_stream(self, stream, own, error)
      class(cuda_device_type), intent(inout) :: self
      !> A `cudaStream_t` of this device; null is the default stream
      type(c_ptr), intent(in) :: stream
      !> Then `stream` is not looked at
      logical, intent(in) :: own
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: next
      next = stream
      if (own) next = self%own_stream
      ! A caller's stream may be a new one at the address of one that is gone
      if (same(next, self%stream) .and. same(next, self%own_stream)) return
      call self%enter(error)
      if (allocated(error)) then
         call self%leave_idle(error)
         return
      end if
      call move_to(self, next, error)
      call self%leave(error)
   end subroutine use_stream

   !> Work goes on in a stream that waits for what is queued in the present one
   subroutine move_to(self, next, error)
      class(cuda_device_type), intent(inout) :: self
      !> A `cudaStream_t` of this device
      type(c_ptr), intent(in) :: next
      type(error_type), allocatable, intent(out) :: error
      if (same(self%stream, self%own_stream)) then
        call self%check(self%rt%event_record(self%last_work, self%stream), "cudaEventRecord", error)
      end if
      if (allocated(error)) return
      call self%check(self%rt%stream_wait_event(next, self%last_work, 0_c_int), "cudaStreamWaitEvent", error)
      if (allocated(error)) return
      call self%on_stream(next, error)
   end subroutine move_to

   !> cuDNN too, or neither
   subroutine on_stream(self, stream, error)
      class(cuda_device_type), intent(inout) :: self
      !> A `cudaStream_t` of this device
      type(c_ptr), intent(in) :: stream
      type(error_type), allocatable, intent(out) :: error
      if (same(stream, self%stream)) return
      call self%dnn%check(self%dnn%set_stream(self%dnn_handle, stream), "cudnnSetStream", error)
      if (allocated(error)) return
      self%stream = stream
   end subroutine on_stream

   !> Wait for all that is queued
   subroutine synchronize(self, error)
      class(cuda_device_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%check(self%rt%stream_synchronize(self%stream), "cudaStreamSynchronize", error)
      if (allocated(error)) return
      self%buffers%staging_busy = .false.
   end subroutine synchronize

   !> The pinned buffer, free for a new use
   subroutine staging_ready(self, error)
      class(cuda_device_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      if (.not. self%buffers%staging_busy) return
      call self%synchronize(error)
   end subroutine staging_ready

   !> At least `bytes` bytes of device memory that nobody needs after the calls queued next
   subroutine reserve(self, bytes, address, error)
      class(cuda_device_type), intent(inout) :: self
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Where they start, *device*
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call self%buffers%reserve(self%rt, bytes, address, error)
   end subroutine reserve

   !> The same once more, for what one convolution hands to the next: `reserve` leaves it alone
   subroutine reserve_scratch(self, bytes, address, error)
      class(cuda_device_type), intent(inout) :: self
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Where they start, *device*
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call self%buffers%reserve_scratch(self%rt, bytes, address, error)
   end subroutine reserve_scratch

   !> A CUDA status as an error that names the device
   subroutine check(self, status, what, error)
      class(cuda_device_type), intent(in) :: self
      !> A `cudaError_t`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      !> Names the device, the call and the status
      type(error_type), allocatable, intent(out) :: error
      call self%rt%check(status, "cuda:"//to_text(self%ordinal)//": "//what, error)
   end subroutine check

   pure logical function same(a, b)
      !> An address or a stream
      type(c_ptr), intent(in) :: a
      !> Another; two nulls are the same
      type(c_ptr), intent(in) :: b
      same = c_associated(a, b) .or. .not. (c_associated(a) .or. c_associated(b))
   end function same

end module cnn_cuda_device_type
