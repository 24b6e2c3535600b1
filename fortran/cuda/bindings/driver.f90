! SPDX-License-Identifier: MIT
!> The CUDA driver, opened when it is first needed: for our kernels, which it compiles and launches; for reports, which
!> want its version and the names of devices; and for a device that is not the calling thread's current one.
!>
!> Source.  CUDA Driver API reference.
module cnn_cuda_bindings_driver
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_libraries, only : find_library
   use cnn_cuda_bindings_signatures, only : driver_functions_type
   implicit none
   private

   !> `CUresult`
   integer(c_int), parameter, public :: CUDA_SUCCESS = 0

   type, extends(driver_functions_type), public :: cuda_driver_type
   contains
      procedure :: load
      procedure :: check
   end type cuda_driver_type

contains

   !> Find and open the library; nothing happens the second time
   subroutine load(self, error)
      class(cuda_driver_type), intent(inout) :: self
      !> Not found, or without one of the functions
      type(error_type), allocatable, intent(out) :: error
      if (self%library%is_open()) return
      call find_library(["libcuda.so.1"], self%library, error)
      if (allocated(error)) return
      call self%bind_functions(error)
   end subroutine load

   !> No error for success
   subroutine check(self, status, what, error)
      class(cuda_driver_type), intent(in) :: self
      !> A `CUresult`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      !> Names the call and the status
      type(error_type), allocatable, intent(out) :: error
      if (status /= CUDA_SUCCESS) call fail(error, "CUDA driver: "//what//": "//self%library%path// &
         & " gave CUresult "//to_text(int(status)))
   end subroutine check

end module cnn_cuda_bindings_driver
