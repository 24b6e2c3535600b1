! SPDX-License-Identifier: MIT
!> The backend of a device's name.
module cnn_devices
   use cnn_backend, only : backend_type
   use cnn_cpu, only : cpu_type
   use cnn_error, only : error_type, fail
   use cnn_naive, only : naive_type
   implicit none
   private

   public :: open_device

contains

   !> `cpu`, or `naive` (plain loops, for tests); `cuda` is refused with the reason
   subroutine open_device(name, backend, error)
      character(len=*), intent(in) :: name
      class(backend_type), allocatable, intent(out) :: backend
      type(error_type), allocatable, intent(out) :: error
      select case (name)
       case ("cpu")
         allocate (cpu_type :: backend)
       case ("naive")
         allocate (naive_type :: backend)
       case ("cuda")
         call fail(error, "device cuda: not built: this version has no CUDA backend, use the device cpu")
       case default
         call fail(error, "device "//name//": unknown, expected cpu or cuda")
      end select
      if (allocated(backend)) backend%name = name
   end subroutine open_device

end module cnn_devices
