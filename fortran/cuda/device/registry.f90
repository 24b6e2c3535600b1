! SPDX-License-Identifier: MIT
!> The CUDA devices of this process, opened when first asked for and kept: making a cuDNN handle takes longer than a
!> training step. All networks share them, and the libraries.
module cnn_cuda_device_registry
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_cudart_enums, only : cudaMemoryTypeDevice, cudaMemoryTypeManaged
   use cnn_cuda_bindings_signatures, only : cuda_pointer_attributes_type
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_device_type, only : cuda_device_type
   implicit none
   private

   public :: close_cuda_devices, find_cuda_device, live_on_cuda_devices, open_cuda_device

   type(cudart_type), target :: runtime
   type(cudnn_type), target :: dnn

   type :: slot_type
      type(cuda_device_type), pointer :: device => null()
   end type slot_type

   integer, parameter :: most_devices = 64
   type(slot_type) :: slots(0:most_devices - 1)

contains

   !> The device of this number, opened when it is not open yet
   subroutine open_cuda_device(ordinal, device, error)
      !> Which device, from 0
      integer, intent(in) :: ordinal
      !> Kept by this module; null after an error
      type(cuda_device_type), pointer, intent(out) :: device
      !> No libraries, no driver, no such device, or it cannot be used
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: devices

      nullify (device)
      if (ordinal >= 0 .and. ordinal < most_devices) then
         device => slots(ordinal)%device
         if (associated(device)) return
      end if
      call runtime%load(error)
      if (allocated(error)) return
      call dnn%load(error)
      if (allocated(error)) return
      call dnn%check_cuda(runtime%version, error)
      if (allocated(error)) return
      call count_devices(devices, error)
      if (allocated(error)) return
      if (ordinal < 0 .or. ordinal >= min(int(devices), most_devices)) then
         call fail(error, "device cuda:"//to_text(ordinal)//": not there, found "//to_text(int(devices))// &
            & " CUDA device(s), expected a number below that")
         return
      end if
      allocate (device)
      call device%open(ordinal, runtime, dnn, error)
      if (allocated(error)) then
         call device%close()
         deallocate (device)
         nullify (device)
      else
         slots(ordinal)%device => device
      end if
   end subroutine open_cuda_device

   !> Give everything back; networks and tensors must be gone. An error says what is still alive
   subroutine close_cuda_devices(error)
      !> Allocations that nobody has given back
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 0, most_devices - 1
         if (.not. associated(slots(i)%device)) cycle
         call slots(i)%device%close()
         if (slots(i)%device%live_allocations() /= 0) call fail(error, "device cuda:"//to_text(i)//": closed with "// &
            & to_text(slots(i)%device%live_allocations())//" allocations alive, expected none")
         deallocate (slots(i)%device)
         nullify (slots(i)%device)
      end do
   end subroutine close_cuda_devices

   !> Allocations alive on all devices that are open, workspaces and buffers included
   integer function live_on_cuda_devices() result(live)
      integer :: i
      live = 0
      do i = 0, most_devices - 1
         if (associated(slots(i)%device)) live = live + slots(i)%device%live_allocations()
      end do
   end function live_on_cuda_devices

   !> The number of the device that the address belongs to, -1 for host memory
   subroutine find_cuda_device(address, ordinal, error)
      !> *Host* or *device*; it is not read
      type(c_ptr), intent(in) :: address
      !> Number of the device, from 0; -1 for host memory
      integer(c_int), intent(out) :: ordinal
      !> No runtime, or an address that CUDA refuses
      type(error_type), allocatable, intent(out) :: error
      type(cuda_pointer_attributes_type) :: attributes
      ordinal = -1
      call runtime%load(error)
      if (allocated(error)) return
      call runtime%check(runtime%pointer_get_attributes(attributes, address), "cudaPointerGetAttributes", error)
      if (allocated(error)) return
      if (attributes%type == cudaMemoryTypeDevice .or. attributes%type == cudaMemoryTypeManaged) then
         ordinal = attributes%device
      end if
   end subroutine find_cuda_device

   subroutine count_devices(devices, error)
      !> How many this process may use; 0 after an error
      integer(c_int), intent(out) :: devices
      !> No usable GPU or driver
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: status, ignored
      devices = 0
      status = runtime%get_device_count(devices)
      if (status == 0) return
      ! The error would come back from the next call that asks for it
      ignored = runtime%get_last_error()
      call runtime%check(status, "cudaGetDeviceCount", error)
      if (allocated(error)) error%message = "device cuda: no usable GPU or driver (python -m bridge.doctor); "// &
         & error%message
   end subroutine count_devices

end module cnn_cuda_device_registry
