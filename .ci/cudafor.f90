! SPDX-License-Identifier: MIT
!> What our sources take of NVIDIA's module of this name, for flang, which has none: declarations alone.
module cudafor
   use, intrinsic :: __fortran_builtins, only : dim3 => __builtin_dim3
   implicit none
   integer, parameter :: cudaSuccess = 0
   type :: cudaDeviceProp
      character(256) :: name
      integer :: major, minor
   end type cudaDeviceProp
   interface
      integer function cudaGetDeviceCount(n)
         integer, intent(out) :: n
      end function
      integer function cudaGetDeviceProperties(properties, number)
         import
         type(cudaDeviceProp), intent(out) :: properties
         integer, intent(in) :: number
      end function
      integer function cudaGetLastError()
      end function
   end interface
end module cudafor
