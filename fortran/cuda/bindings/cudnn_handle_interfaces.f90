! SPDX-License-Identifier: MIT
!> The handle of cuDNN, versions and errors, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  cuDNN 9 API reference.
module cnn_cuda_bindings_cudnn_handle_interfaces
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_ptr, c_size_t
   implicit none
   private

   public :: cudnnGetVersion, cudnnGetCudartVersion, cudnnGetErrorString, cudnnGetLastErrorString, cudnnCreate, &
      & cudnnDestroy, cudnnSetStream

   abstract interface
      !> 91900 for cuDNN 9.19.0
      function cudnnGetVersion() result(version) bind(C)
         import :: c_size_t
         implicit none
         integer(c_size_t) :: version
      end function cudnnGetVersion
      !> The CUDA runtime that this cuDNN was built with
      function cudnnGetCudartVersion() result(version) bind(C)
         import :: c_size_t
         implicit none
         integer(c_size_t) :: version
      end function cudnnGetCudartVersion
      !> The name of a status
      function cudnnGetErrorString(status) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `cudnnStatus_t`
         integer(c_int), value :: status
         type(c_ptr) :: text
      end function cudnnGetErrorString
      !> Why the last call of this thread failed, in words
      subroutine cudnnGetLastErrorString(message, max_size) bind(C)
         import :: c_char, c_size_t
         implicit none
         !> Room in `message`, the NUL at the end included
         integer(c_size_t), value :: max_size
         !> Ends in a NUL
         character(kind=c_char), intent(out) :: message(max_size)
      end subroutine cudnnGetLastErrorString
      !> A handle for the current device, where it takes memory; it is slow, and the caller frees it by cudnnDestroy
      function cudnnCreate(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new handle
         type(c_ptr), intent(out) :: handle
         integer(c_int) :: status
      end function cudnnCreate
      !> Waits for the whole device before it frees the handle
      function cudnnDestroy(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Not used any more
         type(c_ptr), value :: handle
         integer(c_int) :: status
      end function cudnnDestroy
      !> The handle queues its work on this stream from now on; null is the default stream
      function cudnnSetStream(handle, stream_id) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The one whose work it is
         type(c_ptr), value :: handle
         !> A stream of the handle's device, or null
         type(c_ptr), value :: stream_id
         integer(c_int) :: status
      end function cudnnSetStream
   end interface

end module cnn_cuda_bindings_cudnn_handle_interfaces
