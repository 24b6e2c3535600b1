! SPDX-License-Identifier: MIT
!> Devices: their memory, streams and copies.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_device
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t, c_intptr_t
   use cnn_api_values, only : hand_over, pointer_to, tensor_at
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_devices, only : close_cuda_devices, find_cuda_device, live_on_cuda_devices, open_device
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: device_check, device_stream, device_wait, device_allocate, device_release, device_copy_in, &
      & device_copy_out, device_convert, device_of, devices_close, devices_live

contains

   !> An error when there is no device of this name
   subroutine device_check(device, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_check

   !> Queue what comes next on this device to a CUDA stream; -1 for the library's own. Other devices have none
   subroutine device_stream(device, stream, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Address of the CUDA stream; -1 for the library's own
      integer(c_int64_t), intent(in) :: stream
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%use_stream(pointer_to(max(stream, 0_c_int64_t)), stream < 0, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_stream

   !> Wait for all that is queued on this device
   subroutine device_wait(device, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%wait(error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_wait

   !> Memory for a tensor, with undefined values
   subroutine device_allocate(device, dtype, extent, address, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Of the new tensor, in the device's memory
      integer(c_int64_t), intent(out) :: address
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%allocate(int(dtype), int(extent), tensor, error)
      address = transfer(tensor%address, 0_c_intptr_t)
      call hand_over(error, ierr, errmsg)
   end subroutine device_allocate

   !> Give memory of `device_allocate` back
   subroutine device_release(device, address, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> As `device_allocate` gave it
      integer(c_int64_t), intent(in) :: address
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      tensor = tensor_at(address, 0_c_int, [0, 0, 0, 0])
      if (.not. allocated(error)) call backend%release(tensor)
      call hand_over(error, ierr, errmsg)
   end subroutine device_release

   !> Host memory to a tensor
   subroutine device_copy_in(device, dtype, extent, host, address, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Address of the values, host memory
      integer(c_int64_t), intent(in) :: host
      !> Of the tensor, in the device's memory
      integer(c_int64_t), intent(in) :: address
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%copy_in(pointer_to(host), tensor_at(address, dtype, extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_copy_in

   !> A tensor to host memory
   subroutine device_copy_out(device, dtype, extent, address, host, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Of the tensor, in the device's memory
      integer(c_int64_t), intent(in) :: address
      !> Address for the values, host memory
      integer(c_int64_t), intent(in) :: host
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call backend%copy_out(tensor_at(address, dtype, extent), pointer_to(host), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_copy_out

   !> `count` elements from one place on the device to another, in another element type or the same
   subroutine device_convert(device, count, from_dtype, from, to_dtype, to, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Elements, 1 to 2**31 - 1
      integer(c_int64_t), intent(in) :: count
      !> Its address, in the device's memory
      integer(c_int64_t), intent(in) :: from
      !> Its address, in the device's memory
      integer(c_int64_t), intent(in) :: to
      !> Element type of what is read, of cnn_core_kinds
      integer(c_int), intent(in) :: from_dtype
      !> Element type of what is written, of cnn_core_kinds
      integer(c_int), intent(in) :: to_dtype
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(error_type), allocatable :: error
      integer(c_int) :: extent(4)
      extent = 1_c_int
      if (count < 1 .or. count > huge(1)) then
         call fail(error, "device "//device//": conversion of "//to_text(count)//" elements, expected 1 to 2**31 - 1")
      else
         extent(1) = int(count, c_int)
         call open_device(device, backend, error)
      end if
      if (.not. allocated(error)) call backend%convert(tensor_at(from, from_dtype, extent), &
         & tensor_at(to, to_dtype, extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_convert

   !> The number of the CUDA device that the address belongs to, -1 for host memory
   subroutine device_of(address, ordinal, ierr, errmsg)
      !> In host or device memory
      integer(c_int64_t), intent(in) :: address
      !> The device's number, from 0; -1 for host memory
      integer(c_int), intent(out) :: ordinal
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call find_cuda_device(pointer_to(address), ordinal, error)
      call hand_over(error, ierr, errmsg)
   end subroutine device_of

   !> Give all devices back; an error says what was still alive
   subroutine devices_close(ierr, errmsg)
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call close_cuda_devices(error)
      call hand_over(error, ierr, errmsg)
   end subroutine devices_close

   !> Allocations alive on CUDA devices, workspaces and buffers included; 0 after `devices_close`
   subroutine devices_live(count, ierr, errmsg)
      !> Allocations
      integer(c_int), intent(out) :: count
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      count = int(live_on_cuda_devices(), c_int)
      call hand_over(error, ierr, errmsg)
   end subroutine devices_live

end module cnn_api_device
