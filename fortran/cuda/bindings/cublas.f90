! SPDX-License-Identifier: MIT
!> cuBLAS, opened when it is first needed: only where our kernels are not built in, or the runtime cannot load them.
!>
!> Source.  cuBLAS API reference; the names that end in _v2 are what the header gives the plain names.
module cnn_cuda_bindings_cublas
   use, intrinsic :: iso_c_binding, only : c_f_procpointer, c_int, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_libraries, only : find_library
   use cnn_cuda_bindings_shared_library, only : c_text, shared_library_type
   implicit none
   private

   public :: cublasCreate_v2, cublasDestroy_v2, cublasSetStream_v2, cublasSetPointerMode_v2, cublasGetVersion_v2, &
      & cublasGetStatusString, cublasSdot_v2, cublasDdot_v2, cublasSaxpy_v2, cublasDaxpy_v2, cublasSscal_v2, &
      & cublasDscal_v2

   !> `cublasStatus_t`
   integer(c_int), parameter, public :: CUBLAS_STATUS_SUCCESS = 0
   !> `cublasPointerMode_t`
   integer(c_int), parameter, public :: CUBLAS_POINTER_MODE_HOST = 0
   integer(c_int), parameter, public :: CUBLAS_POINTER_MODE_DEVICE = 1

   type, public :: cublas_type
      type(shared_library_type) :: library
      procedure(cublasCreate_v2), pointer, nopass :: create => null()
      procedure(cublasDestroy_v2), pointer, nopass :: destroy => null()
      procedure(cublasSetStream_v2), pointer, nopass :: set_stream => null()
      procedure(cublasSetPointerMode_v2), pointer, nopass :: set_pointer_mode => null()
      procedure(cublasGetVersion_v2), pointer, nopass :: get_version => null()
      procedure(cublasGetStatusString), pointer, nopass :: get_status_string => null()
      procedure(cublasSdot_v2), pointer, nopass :: sdot => null()
      procedure(cublasDdot_v2), pointer, nopass :: ddot => null()
      procedure(cublasSaxpy_v2), pointer, nopass :: saxpy => null()
      procedure(cublasDaxpy_v2), pointer, nopass :: daxpy => null()
      procedure(cublasSscal_v2), pointer, nopass :: sscal => null()
      procedure(cublasDscal_v2), pointer, nopass :: dscal => null()
   contains
      procedure :: load
      procedure :: check
   end type cublas_type

   abstract interface
      !> A handle for the current device, where it takes memory; the caller frees it by cublasDestroy_v2
      function cublasCreate_v2(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new handle
         type(c_ptr), intent(out) :: handle
         integer(c_int) :: status
      end function cublasCreate_v2
      !> Waits for the whole device before it frees the handle
      function cublasDestroy_v2(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         integer(c_int) :: status
      end function cublasDestroy_v2
      !> The handle queues its work on this stream from now on; null is the default stream
      function cublasSetStream_v2(handle, stream_id) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> A stream of the handle's device, or null
         type(c_ptr), value :: stream_id
         integer(c_int) :: status
      end function cublasSetStream_v2
      !> Where alpha and the results of the dot products lie, on the host or on the device
      function cublasSetPointerMode_v2(handle, mode) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> A `cublasPointerMode_t`
         integer(c_int), value :: mode
         integer(c_int) :: status
      end function cublasSetPointerMode_v2
      !> 130100 for cuBLAS 13.1.0
      function cublasGetVersion_v2(handle, version) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> 10000 times the major version, 100 times the minor, and the patch
         integer(c_int), intent(out) :: version
         integer(c_int) :: status
      end function cublasGetVersion_v2
      !> What a status means, a text of the library's that ends in a NUL; nobody frees it
      function cublasGetStatusString(status) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `cublasStatus_t`
         integer(c_int), value :: status
         type(c_ptr) :: text
      end function cublasGetStatusString
      !> result = sum of x*y; waits for it where the pointer mode says that `result` is host memory
      function cublasSdot_v2(handle, n, x, incx, y, incy, result) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Second vector, *device*
         type(c_ptr), value :: y
         !> The sum, *host* or *device* as the pointer mode says
         type(c_ptr), value :: result
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         !> Elements of y from one that counts to the next
         integer(c_int), value :: incy
         integer(c_int) :: status
      end function cublasSdot_v2
      !> The same in float64
      function cublasDdot_v2(handle, n, x, incx, y, incy, result) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Second vector, *device*
         type(c_ptr), value :: y
         !> The sum, *host* or *device* as the pointer mode says
         type(c_ptr), value :: result
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         !> Elements of y from one that counts to the next
         integer(c_int), value :: incy
         integer(c_int) :: status
      end function cublasDdot_v2
      !> y = alpha*x + y
      function cublasSaxpy_v2(handle, n, alpha, x, incx, y, incy) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor, *host* or *device* as the pointer mode says
         type(c_ptr), value :: alpha
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Second vector, *device*
         type(c_ptr), value :: y
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         !> Elements of y from one that counts to the next
         integer(c_int), value :: incy
         integer(c_int) :: status
      end function cublasSaxpy_v2
      !> The same in float64, alpha too
      function cublasDaxpy_v2(handle, n, alpha, x, incx, y, incy) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor, *host* or *device* as the pointer mode says
         type(c_ptr), value :: alpha
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Second vector, *device*
         type(c_ptr), value :: y
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         !> Elements of y from one that counts to the next
         integer(c_int), value :: incy
         integer(c_int) :: status
      end function cublasDaxpy_v2
      !> x = alpha*x
      function cublasSscal_v2(handle, n, alpha, x, incx) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor, *host* or *device* as the pointer mode says
         type(c_ptr), value :: alpha
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         integer(c_int) :: status
      end function cublasSscal_v2
      !> The same in float64, alpha too
      function cublasDscal_v2(handle, n, alpha, x, incx) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor, *host* or *device* as the pointer mode says
         type(c_ptr), value :: alpha
         !> First vector, *device*
         type(c_ptr), value :: x
         !> Number of elements
         integer(c_int), value :: n
         !> Elements of x from one that counts to the next
         integer(c_int), value :: incx
         integer(c_int) :: status
      end function cublasDscal_v2
   end interface

contains

   !> Find and open the library; nothing happens the second time
   subroutine load(self, error)
      !> cuBLAS; open after no error
      class(cublas_type), intent(inout) :: self
      !> Not found, or without one of the functions
      type(error_type), allocatable, intent(out) :: error
      if (self%library%is_open()) return
      call find_library([character(len=15) :: "libcublas.so.13", "libcublas.so.12"], self%library, error)
      if (allocated(error)) return
      call bind_functions(self)
      call self%library%check_symbols(error)
   end subroutine load

   subroutine bind_functions(self)
      !> cuBLAS, whose library is open
      type(cublas_type), intent(inout) :: self
      call c_f_procpointer(self%library%symbol("cublasCreate_v2"), self%create)
      call c_f_procpointer(self%library%symbol("cublasDestroy_v2"), self%destroy)
      call c_f_procpointer(self%library%symbol("cublasSetStream_v2"), self%set_stream)
      call c_f_procpointer(self%library%symbol("cublasSetPointerMode_v2"), self%set_pointer_mode)
      call c_f_procpointer(self%library%symbol("cublasGetVersion_v2"), self%get_version)
      call c_f_procpointer(self%library%symbol("cublasGetStatusString"), self%get_status_string)
      call c_f_procpointer(self%library%symbol("cublasSdot_v2"), self%sdot)
      call c_f_procpointer(self%library%symbol("cublasDdot_v2"), self%ddot)
      call c_f_procpointer(self%library%symbol("cublasSaxpy_v2"), self%saxpy)
      call c_f_procpointer(self%library%symbol("cublasDaxpy_v2"), self%daxpy)
      call c_f_procpointer(self%library%symbol("cublasSscal_v2"), self%sscal)
      call c_f_procpointer(self%library%symbol("cublasDscal_v2"), self%dscal)
   end subroutine bind_functions

   !> No error for success, else what cuBLAS says of the status
   subroutine check(self, status, what, error)
      !> The cuBLAS that gave the status
      class(cublas_type), intent(in) :: self
      !> A `cublasStatus_t`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      !> Names the call and the status
      type(error_type), allocatable, intent(out) :: error
      if (status /= CUBLAS_STATUS_SUCCESS) call fail(error, "cuBLAS: "//what//": "// &
         & c_text(self%get_status_string(status))//" ("//to_text(int(status))//")")
   end subroutine check

end module cnn_cuda_bindings_cublas
