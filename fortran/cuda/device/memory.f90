! SPDX-License-Identifier: MIT
!> Device tensors that own their memory, and copies between host and device through a pinned buffer.
!>
!> Copies from and to pageable memory would not be asynchronous, and slower: they go through the buffer piece by
!> piece. `copy_in` returns when the host memory is free to change, `copy_out` when it is filled; the last piece of a
!> `copy_in` may still be on its way.
!>
!> Source.  CUDA runtime API reference: memory management.
module cnn_cuda_device_memory
   use, intrinsic :: iso_c_binding, only : &
      & c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_name
   use cnn_core_tensor, only : address_after, shape_text, tensor_type
   use cnn_cuda_bindings_cudart_enums, only : cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice
   use cnn_cuda_device_type, only : cuda_device_type
   implicit none
   private

   public :: allocate_tensor, c_memcpy, clear_tensor, copy_device, copy_from_host, copy_to_host, free_tensor

   interface
      !> C <string.h>; the returned address is `to` and not needed, so it is called as a subroutine
      subroutine c_memcpy(to, from, bytes) bind(C, name="memcpy")
         import :: c_ptr, c_size_t
         implicit none
         !> The first byte written, *host*
         type(c_ptr), value :: to
         !> The first byte read, *host*; the two do not overlap
         type(c_ptr), value :: from
         !> How many are copied
         integer(c_size_t), value :: bytes
      end subroutine c_memcpy
   end interface

contains

   !> Memory of its own for `tensor`, whose dtype and extent are set; its values are undefined
   subroutine allocate_tensor(device, tensor, error)
      type(cuda_device_type), intent(inout) :: device
      !> Dtype and extents are read, the address is set, *device*
      type(tensor_type), intent(inout) :: tensor
      !> The device has not that much memory
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: address
      tensor%address = c_null_ptr
      call device%check(device%rt%malloc(address, int(tensor%bytes(), c_size_t)), "no memory for a "// &
         & dtype_name(tensor%dtype)//" tensor "//shape_text(tensor%extent)//" (cudaMalloc)", error)
      if (allocated(error)) return
      tensor%address = address
      device%live = device%live + 1
   end subroutine allocate_tensor

   !> Give the memory back, after all work that is queued; nothing happens for an empty tensor
   subroutine free_tensor(device, tensor, error)
      type(cuda_device_type), intent(inout) :: device
      !> One of `allocate_tensor`; its address is null afterwards
      type(tensor_type), intent(inout) :: tensor
      !> An error of cudaFree, perhaps one of work queued before
      type(error_type), allocatable, intent(out) :: error
      if (.not. tensor%is_allocated()) return
      call device%check(device%rt%free(tensor%address), "cudaFree of a tensor "//shape_text(tensor%extent), error)
      if (.not. allocated(error)) device%live = device%live - 1
      tensor%address = c_null_ptr
   end subroutine free_tensor

   subroutine clear_tensor(device, tensor, error)
      type(cuda_device_type), intent(in) :: device
      !> Device memory; all its bytes become 0
      type(tensor_type), intent(in) :: tensor
      !> An error of cudaMemsetAsync
      type(error_type), allocatable, intent(out) :: error
      call device%check(device%rt%memset_async(tensor%address, 0_c_int, int(tensor%bytes(), c_size_t), &
         & device%stream), "cudaMemsetAsync of a tensor "//shape_text(tensor%extent), error)
   end subroutine clear_tensor

   subroutine copy_from_host(device, host, tensor, error)
      type(cuda_device_type), intent(inout) :: device
      !> As many bytes as the tensor has, *host*, pinned or not
      type(c_ptr), intent(in) :: host
      !> Where they go, *device*
      type(tensor_type), intent(in) :: tensor
      !> An error of a copy, or of work queued before
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: done, piece, bytes

      bytes = int(tensor%bytes(), c_size_t)
      done = 0
      do while (done < bytes)
         ! The piece before may still be read
         call device%staging_ready(error)
         if (allocated(error)) return
         piece = min(device%buffers%staging_bytes, bytes - done)
         call c_memcpy(device%buffers%staging, address_after(host, done), piece)
         device%buffers%staging_busy = .true.
         call device%check(device%rt%memcpy_async(address_after(tensor%address, done), device%buffers%staging, piece, &
            & cudaMemcpyHostToDevice, device%stream), "copy to a tensor "//shape_text(tensor%extent), error)
         if (allocated(error)) return
         done = done + piece
      end do
   end subroutine copy_from_host

   subroutine copy_to_host(device, tensor, host, error)
      type(cuda_device_type), intent(inout) :: device
      !> What is copied, *device*
      type(tensor_type), intent(in) :: tensor
      !> Room for as many bytes, *host*, pinned or not
      type(c_ptr), intent(in) :: host
      !> An error of a copy, or of work queued before
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: done, piece, bytes

      bytes = int(tensor%bytes(), c_size_t)
      done = 0
      do while (done < bytes)
         piece = min(device%buffers%staging_bytes, bytes - done)
         device%buffers%staging_busy = .true.
         call device%check(device%rt%memcpy_async(device%buffers%staging, address_after(tensor%address, done), piece, &
            & cudaMemcpyDeviceToHost, device%stream), "copy from a tensor "//shape_text(tensor%extent), error)
         if (allocated(error)) return
         call device%synchronize(error)
         if (allocated(error)) return
         call c_memcpy(address_after(host, done), device%buffers%staging, piece)
         done = done + piece
      end do
   end subroutine copy_to_host

   !> Queue a copy inside the device
   subroutine copy_device(device, from, to, bytes, error)
      type(cuda_device_type), intent(in) :: device
      !> The first byte read, *device*
      type(c_ptr), intent(in) :: from
      !> The first byte written, *device*; the two do not overlap
      type(c_ptr), intent(in) :: to
      !> How many are copied
      integer(c_size_t), intent(in) :: bytes
      !> An error of cudaMemcpyAsync
      type(error_type), allocatable, intent(out) :: error
      call device%check(device%rt%memcpy_async(to, from, bytes, cudaMemcpyDeviceToDevice, device%stream), &
         & "copy inside the device", error)
   end subroutine copy_device

end module cnn_cuda_device_memory
