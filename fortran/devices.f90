! SPDX-License-Identifier: MIT
!> The backend of a device's name.
module cnn_devices
   use cnn_core_backend, only : backend_type
   use cnn_core_device_name, only : device_name_type, parse_device
   use cnn_core_error, only : error_type
   use cnn_cpu_backend, only : cpu_type
   use cnn_cuda_backend, only : cuda_type
   use cnn_cuda_device_registry, only : close_cuda_devices, find_cuda_device, live_on_cuda_devices
   use cnn_naive_backend, only : naive_type
   implicit none
   private

   public :: close_cuda_devices, find_cuda_device, live_on_cuda_devices, open_device

contains

   !> `cpu`, `cuda` with its options (see cnn_core_device_name), or `naive` (plain loops, for tests)
   subroutine open_device(name, backend, error)
      !> Name as users write it, such as "cpu" or "cuda:1,tf32"
      character(len=*), intent(in) :: name
      !> The device, ready for work; unallocated after an error
      class(backend_type), allocatable, intent(out) :: backend
      !> Says that there is no such device, or why it cannot be opened
      type(error_type), allocatable, intent(out) :: error
      type(device_name_type) :: device
      type(cuda_type), allocatable :: cuda
      type(cpu_type), allocatable :: cpu
      type(naive_type), allocatable :: naive

      call parse_device(name, device, error)
      if (allocated(error)) return
      select case (device%kind)
       case ("naive")
         allocate (naive)
         call naive%open(error)
         if (allocated(error)) return
         call move_alloc(naive, backend)
       case ("cuda")
         allocate (cuda)
         call cuda%open(device, error)
         if (allocated(error)) return
         call move_alloc(cuda, backend)
       case default
         allocate (cpu)
         call cpu%open(error)
         if (allocated(error)) return
         call move_alloc(cpu, backend)
      end select
      backend%name = name
   end subroutine open_device

end module cnn_devices
