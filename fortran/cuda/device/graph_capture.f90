! SPDX-License-Identifier: MIT
!> Work of a CUDA device that is captured once and then queued in one call: a CUDA graph.
!>
!>     call graph%start(device, error)
!>     ... what is queued now does not run
!>     call graph%stop(device, error)
!>     call graph%replay(device, error)
!>
!> Addresses are part of a graph: who gives one of its tensors back drops it first. The device's own memory may
!> grow, and so move, in between; `is_current` is false then.
!> Stream.  It is captured on the device's own stream, because the default stream cannot be; and runs on any.
!> Source.  CUDA programming guide, CUDA graphs, stream capture.
module cnn_cuda_device_graph_capture
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_long_long, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_cudart_enums, only : cudaStreamCaptureModeThreadLocal
   use cnn_cuda_device_type, only : cuda_device_type
   implicit none
   private

   type, public :: captured_graph_type
      private
      type(c_ptr) :: executable = c_null_ptr
      !> The caller's stream, during the capture
      type(c_ptr) :: before = c_null_ptr
      !> Of the device's own memory, as it was
      integer :: moves = 0
   contains
      procedure :: start
      procedure :: stop => end_capture
      procedure :: replay
      procedure :: is_current
      procedure :: drop
   end type captured_graph_type

contains

   !> Work queued from now on is captured; after no error, `stop` follows in any case
   subroutine start(self, device, error)
      class(captured_graph_type), intent(inout) :: self
      !> An entered device; on its own stream during the capture
      type(cuda_device_type), intent(inout) :: device
      !> The capture did not begin; the stream is what it was
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: ignored
      call self%drop(device)
      self%before = device%stream
      self%moves = device%buffers%moves
      call device%on_stream(device%own_stream, error)
      if (allocated(error)) return
      ! Of this thread alone: others, PyTorch's perhaps, may allocate meanwhile
      call device%check(device%rt%stream_begin_capture(device%stream, cudaStreamCaptureModeThreadLocal), &
         & "capture of a step (cudaStreamBeginCapture)", error)
      if (allocated(error)) call device%on_stream(self%before, ignored)
   end subroutine start

   !> Make what was queued ready to run; after an error there is nothing
   subroutine end_capture(self, device, error)
      class(captured_graph_type), intent(inout) :: self
      !> On the caller's stream again
      type(cuda_device_type), intent(inout) :: device
      !> Something was queued that cannot be captured, or the device is out of memory
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: failure
      type(c_ptr) :: graph
      integer(c_int) :: ignored

      call device%check(device%rt%stream_end_capture(device%stream, graph), &
         & "capture of a step (cudaStreamEndCapture)", error)
      call device%on_stream(self%before, failure)
      if (allocated(error)) return
      if (.not. allocated(failure)) call device%check(device%rt%graph_instantiate(self%executable, graph, &
         & 0_c_long_long), "a captured step (cudaGraphInstantiate)", failure)
      if (allocated(failure)) self%executable = c_null_ptr
      ! A description in host memory: that destroying it failed concerns nobody
      ignored = device%rt%graph_destroy(graph)
      if (allocated(failure)) call move_alloc(failure, error)
   end subroutine end_capture

   !> Queue all of it on the present stream
   subroutine replay(self, device, error)
      class(captured_graph_type), intent(in) :: self
      !> An entered device, on whose present stream it is queued
      type(cuda_device_type), intent(inout) :: device
      !> An error of cudaGraphLaunch
      type(error_type), allocatable, intent(out) :: error
      call device%check(device%rt%graph_launch(self%executable, device%stream), "a captured step (cudaGraphLaunch)", &
         & error)
   end subroutine replay

   !> Whether there is a graph, and the device's memory is where it was
   pure logical function is_current(self, device)
      class(captured_graph_type), intent(in) :: self
      !> The one it was made on
      type(cuda_device_type), intent(in) :: device
      is_current = c_associated(self%executable) .and. self%moves == device%buffers%moves
   end function is_current

   !> Forget it; what is queued of it runs to its end
   subroutine drop(self, device)
      class(captured_graph_type), intent(inout) :: self
      !> The one it was made on
      type(cuda_device_type), intent(in) :: device
      integer(c_int) :: ignored
      if (.not. c_associated(self%executable)) return
      ignored = device%rt%graph_exec_destroy(self%executable)
      if (ignored /= 0) ignored = device%rt%get_last_error()
      self%executable = c_null_ptr
   end subroutine drop

end module cnn_cuda_device_graph_capture
