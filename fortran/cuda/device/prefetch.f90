! SPDX-License-Identifier: MIT
!> Batches on their way to a CUDA device while it works: copied on a stream of their own, from pinned memory.
!>
!>     call feeder%copy(device, hosts, tensors, error)   ! the host memory is free on return
!>     call feeder%await(device, error)                  ! work queued from now on finds the tensors filled
!>     call feeder%release(device, error)                ! ... and has had them: the next copy may begin behind it
!>
!> The host waits in `copy` only, for the copy before, and when a batch is larger than any before.
!> Source.  CUDA programming guide, streams and events; runtime API reference.
module cnn_cuda_device_prefetch
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : address_after, aligned, shape_text, tensor_type
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart_enums, only : cudaEventDisableTiming, cudaMemcpyHostToDevice, cudaStreamNonBlocking
   use cnn_cuda_device_memory, only : c_memcpy
   use cnn_cuda_device_type, only : cuda_device_type
   implicit none
   private

   type, public :: feeder_type
      private
      type(c_ptr) :: stream = c_null_ptr
      !> Recorded when the tensors are filled, and when nobody needs them any more; and whether they ever were
      type(c_ptr) :: filled = c_null_ptr, free = c_null_ptr
      logical :: was_filled = .false., was_freed = .false.
      type(c_ptr) :: pinned = c_null_ptr
      integer(c_size_t) :: pinned_bytes = 0
   contains
      procedure :: copy
      procedure :: await
      procedure :: release
      procedure :: close
      procedure, private :: open, grow
   end type feeder_type

contains

   !> Start to fill the tensors, whose memory is the caller's, from host memory
   subroutine copy(self, device, hosts, tensors, error)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(inout) :: device
      !> Addresses of the tensors' elements, *host*, pinned or not
      type(c_ptr), intent(in) :: hosts(:)
      !> Where they go, *device*
      type(tensor_type), intent(in) :: tensors(:)
      !> No pinned memory, or an error of CUDA; no copy is on its way then
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: ignored

      call queue_copies(self, device, hosts, tensors, error)
      self%was_filled = .not. allocated(error)
      ! The next copy would not know what is still on its way
      if (allocated(error) .and. c_associated(self%stream)) ignored = device%rt%stream_synchronize(self%stream)
   end subroutine copy

   !> Behind the copies before, and what is at work on their tensors
   subroutine queue_copies(self, device, hosts, tensors, error)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(inout) :: device
      !> Addresses of the tensors' elements, *host*, pinned or not
      type(c_ptr), intent(in) :: hosts(:)
      !> Where they go, *device*
      type(tensor_type), intent(in) :: tensors(:)
      !> No pinned memory, or an error of CUDA; some of the copies may be on their way
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: place
      integer :: i

      call self%open(device, error)
      if (allocated(error)) return
      if (self%was_filled) call device%check(device%rt%event_synchronize(self%filled), "cudaEventSynchronize", error)
      if (allocated(error)) return
      call self%grow(device, sum([(aligned(tensors(i)%bytes()), i=1, size(tensors))]), error)
      if (allocated(error)) return
      if (self%was_freed) call device%check(device%rt%stream_wait_event(self%stream, self%free, 0_c_int), &
         & "cudaStreamWaitEvent", error)
      if (allocated(error)) return
      place = self%pinned
      do i = 1, size(tensors)
         call c_memcpy(place, hosts(i), int(tensors(i)%bytes(), c_size_t))
         call device%check(device%rt%memcpy_async(tensors(i)%address, place, int(tensors(i)%bytes(), c_size_t), &
            & cudaMemcpyHostToDevice, self%stream), "copy to a tensor "//shape_text(tensors(i)%extent), error)
         if (allocated(error)) return
         place = address_after(place, aligned(tensors(i)%bytes()))
      end do
      call device%check(device%rt%event_record(self%filled, self%stream), "cudaEventRecord", error)
   end subroutine queue_copies

   !> What is queued on the device from now on comes after the last `copy`
   subroutine await(self, device, error)
      class(feeder_type), intent(in) :: self
      !> An entered device, whose present stream waits
      type(cuda_device_type), intent(in) :: device
      type(error_type), allocatable, intent(out) :: error
      call device%check(device%rt%stream_wait_event(device%stream, self%filled, 0_c_int), "cudaStreamWaitEvent", error)
   end subroutine await

   !> The next `copy` comes after what is queued on the device by now
   subroutine release(self, device, error)
      class(feeder_type), intent(inout) :: self
      !> An entered device, whose present stream the next copy waits for
      type(cuda_device_type), intent(in) :: device
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: ignored
      call device%check(device%rt%event_record(self%free, device%stream), "cudaEventRecord", error)
      self%was_freed = self%was_freed .or. .not. allocated(error)
      ! The next copy would not know what still reads the batch
      if (allocated(error)) ignored = device%rt%stream_synchronize(device%stream)
   end subroutine release

   !> A stream and events, the first time
   subroutine open(self, device, error)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(in) :: device
      !> No stream or event
      type(error_type), allocatable, intent(out) :: error
      if (c_associated(self%free)) return
      if (.not. c_associated(self%stream)) call made(device%rt%stream_create_with_flags(self%stream, &
         & cudaStreamNonBlocking), self%stream, "a stream")
      if (allocated(error)) return
      if (.not. c_associated(self%filled)) call made(device%rt%event_create_with_flags(self%filled, &
         & cudaEventDisableTiming), self%filled, "an event")
      if (allocated(error)) return
      call made(device%rt%event_create_with_flags(self%free, cudaEventDisableTiming), self%free, "an event")

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
         call device%check(status, "making "//what, error)
      end subroutine made

   end subroutine open

   !> Pinned memory for a batch, of which nothing is being copied now
   subroutine grow(self, device, bytes, error)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(inout) :: device
      !> Bytes of a batch, each tensor aligned
      integer(i8), intent(in) :: bytes
      !> No pinned memory
      type(error_type), allocatable, intent(out) :: error
      if (bytes <= self%pinned_bytes) return
      call free_pinned(self, device)
      call device%check(device%rt%malloc_host(self%pinned, int(bytes, c_size_t)), "no pinned memory for a batch of "// &
         & to_text(bytes)//" bytes (cudaMallocHost)", error)
      if (allocated(error)) then
         self%pinned = c_null_ptr
      else
         self%pinned_bytes = int(bytes, c_size_t)
         device%live = device%live + 1
      end if
   end subroutine grow

   subroutine free_pinned(self, device)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(inout) :: device
      integer(c_int) :: ignored
      self%pinned_bytes = 0
      if (.not. c_associated(self%pinned)) return
      if (device%rt%free_host(self%pinned) == 0) then
         device%live = device%live - 1
      else
         ignored = device%rt%get_last_error()
      end if
      self%pinned = c_null_ptr
   end subroutine free_pinned

   !> Give all back; failures have nobody to hear them
   subroutine close(self, device)
      class(feeder_type), intent(inout) :: self
      type(cuda_device_type), intent(inout) :: device
      integer(c_int) :: status
      status = 0
      if (c_associated(self%stream)) status = device%rt%stream_synchronize(self%stream)
      if (status /= 0) status = device%rt%get_last_error()
      call free_pinned(self, device)
      if (c_associated(self%filled)) status = device%rt%event_destroy(self%filled)
      if (c_associated(self%free)) status = device%rt%event_destroy(self%free)
      if (c_associated(self%stream)) status = device%rt%stream_destroy(self%stream)
      if (status /= 0) status = device%rt%get_last_error()
      self%was_filled = .false.
      self%was_freed = .false.
      self%filled = c_null_ptr
      self%free = c_null_ptr
      self%stream = c_null_ptr
   end subroutine close

end module cnn_cuda_device_prefetch
