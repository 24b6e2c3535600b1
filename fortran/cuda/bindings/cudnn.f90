! SPDX-License-Identifier: MIT
!> cuDNN, opened when it is first needed.
!>
!>     call dnn%load(error)
!>     call dnn%check(dnn%create(handle), "create the handle", error)
!>
!> Source.  cuDNN 9 API reference.
module cnn_cuda_bindings_cudnn
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_null_char, c_size_t
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_SUCCESS
   use cnn_cuda_bindings_libraries, only : check_cublaslt, check_parts_of_cudnn, find_library
   use cnn_cuda_bindings_shared_library, only : c_text
   use cnn_cuda_bindings_signatures, only : cudnn_functions_type
   implicit none
   private

   public :: is_unsupported

   !> Statuses and defaults changed with every major version
   integer, parameter :: major = 9

   !> Numbers of statuses go in thousands, one for each kind
   integer(c_int), parameter :: kind_length = 1000_c_int

   type, extends(cudnn_functions_type), public :: cudnn_type
      !> 91900 for cuDNN 9.19.0
      integer :: version = 0
      !> The CUDA runtime that it was built with: 13010 for CUDA 13.1
      integer :: cuda_version = 0
   contains
      procedure :: load
      procedure :: check
      procedure :: check_cuda
   end type cudnn_type

contains

   !> Find and open the library with all its parts; nothing happens the second time
   subroutine load(self, error)
      class(cudnn_type), intent(inout) :: self
      !> Not found, not cuDNN 9, or without one of its parts or of the functions
      type(error_type), allocatable, intent(out) :: error
      if (self%library%is_open()) return
      call find_library(["libcudnn.so.9"], self%library, error)
      if (allocated(error)) return
      call self%bind_functions(error)
      if (allocated(error)) return
      call check_library(self, error)
      if (allocated(error)) call self%library%forget()
   end subroutine load

   !> Parts, versions, and the cuBLASLt that it wants
   subroutine check_library(self, error)
      type(cudnn_type), intent(inout) :: self
      !> Not cuDNN 9, or without one of its parts
      type(error_type), allocatable, intent(out) :: error
      call check_parts_of_cudnn(self%library, error)
      if (allocated(error)) return
      call check_version(self, error)
      if (allocated(error)) return
      call check_cublaslt(self%library, self%cuda_version/1000, error)
   end subroutine check_library

   subroutine check_version(self, error)
      type(cudnn_type), intent(inout) :: self
      !> Another major version
      type(error_type), allocatable, intent(out) :: error
      self%version = int(self%get_version())
      self%cuda_version = int(self%get_cudart_version())
      if (self%version/10000 /= major) call fail(error, self%library%path//": found cuDNN version "// &
         & to_text(self%version)//", expected "//to_text(major)//".x, numbered "//to_text(major*10000)//" and up")
   end subroutine check_version

   !> An error unless this cuDNN was built for the CUDA runtime that is there, 13000 for CUDA 13.0
   subroutine check_cuda(self, runtime, error)
      class(cudnn_type), intent(in) :: self
      !> Version of the CUDA runtime, 13000 for CUDA 13.0
      integer, intent(in) :: runtime
      !> Another major version of CUDA
      type(error_type), allocatable, intent(out) :: error
      if (self%cuda_version/1000 /= runtime/1000) call fail(error, self%library%path//": built for CUDA "// &
         & to_text(self%cuda_version/1000)//", found the runtime of CUDA "//to_text(runtime/1000))
   end subroutine check_cuda

   !> No error for success, else what cuDNN says of the status
   subroutine check(self, status, what, error)
      class(cudnn_type), intent(in) :: self
      !> A `cudnnStatus_t`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: why
      if (status == CUDNN_STATUS_SUCCESS) return
      why = last_error(self)
      if (len(why) > 0) why = ": "//why
      call fail(error, "cuDNN: "//what//": "//c_text(self%get_error_string(status))//" ("// &
         & to_text(int(status))//")"//why)
   end subroutine check

   function last_error(self) result(text)
      class(cudnn_type), intent(in) :: self
      character(len=:), allocatable :: text
      character(kind=c_char) :: message(512)
      integer :: i
      message = c_null_char
      call self%get_last_error_string(message, size(message, kind=c_size_t))
      text = ""
      do i = 1, size(message)
         if (message(i) == c_null_char) exit
         ! On one line
         text = text//merge(" ", message(i), iachar(message(i)) < iachar(" "))
      end do
      text = trim(text)
   end function last_error

   !> CUDNN_STATUS_NOT_SUPPORTED or one of its kind
   pure logical function is_unsupported(status)
      !> A `cudnnStatus_t`
      integer(c_int), intent(in) :: status
      is_unsupported = status/kind_length == CUDNN_STATUS_NOT_SUPPORTED/kind_length
   end function is_unsupported

end module cnn_cuda_bindings_cudnn
