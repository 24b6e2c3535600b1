! SPDX-License-Identifier: MIT
!> The CUDA driver, opened when it is first needed: only for reports, which want its version and the names of devices.
!>
!> Source.  CUDA Driver API reference.
module cnn_cuda_driver
   use, intrinsic :: iso_c_binding, only : c_char, c_f_procpointer, c_int
   use cnn_cuda_libraries, only : find_library
   use cnn_error, only : error_type, fail
   use cnn_shared_library, only : shared_library_type
   use cnn_text, only : to_text
   implicit none
   private

   public :: cuInit, cuDriverGetVersion, cuDeviceGet, cuDeviceGetName

   !> `CUresult`
   integer(c_int), parameter, public :: CUDA_SUCCESS = 0

   type, public :: cuda_driver_type
      type(shared_library_type) :: library
      procedure(cuInit), pointer, nopass :: init => null()
      procedure(cuDriverGetVersion), pointer, nopass :: driver_get_version => null()
      procedure(cuDeviceGet), pointer, nopass :: device_get => null()
      procedure(cuDeviceGetName), pointer, nopass :: device_get_name => null()
   contains
      procedure :: load
      procedure :: check
   end type cuda_driver_type

   abstract interface
      !> Comes before all calls about devices; `flags` must be 0
      function cuInit(flags) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cuInit
      !> 13000 for CUDA 13.0, the newest that the driver can serve
      function cuDriverGetVersion(driver_version) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: driver_version
         integer(c_int) :: status
      end function cuDriverGetVersion
      !> The driver's own number for the device `ordinal`, counted from 0; there is nothing to free
      function cuDeviceGet(device, ordinal) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: device
         integer(c_int), value :: ordinal
         integer(c_int) :: status
      end function cuDeviceGet
      !> At most `len` letters, the NUL at the end included
      function cuDeviceGetName(name, len, dev) result(status) bind(C)
         import :: c_char, c_int
         implicit none
         integer(c_int), value :: len, dev
         character(kind=c_char), intent(out) :: name(len)
         integer(c_int) :: status
      end function cuDeviceGetName
   end interface

contains

   !> Find and open the library; nothing happens the second time
   subroutine load(self, error)
      class(cuda_driver_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      if (self%library%is_open()) return
      call find_library(["libcuda.so.1"], self%library, error)
      if (allocated(error)) return
      call bind_functions(self)
      call self%library%check_symbols(error)
   end subroutine load

   subroutine bind_functions(self)
      type(cuda_driver_type), intent(inout) :: self
      call c_f_procpointer(self%library%symbol("cuInit"), self%init)
      call c_f_procpointer(self%library%symbol("cuDriverGetVersion"), self%driver_get_version)
      call c_f_procpointer(self%library%symbol("cuDeviceGet"), self%device_get)
      call c_f_procpointer(self%library%symbol("cuDeviceGetName"), self%device_get_name)
   end subroutine bind_functions

   !> No error for success
   subroutine check(self, status, what, error)
      class(cuda_driver_type), intent(in) :: self
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      type(error_type), allocatable, intent(out) :: error
      if (status /= CUDA_SUCCESS) call fail(error, "CUDA driver: "//what//": "//self%library%path// &
         & " gave CUresult "//to_text(int(status)))
   end subroutine check

end module cnn_cuda_driver
