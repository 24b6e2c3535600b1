! SPDX-License-Identifier: MIT
!> The CUDA runtime, opened when it is first needed.
!>
!>     call rt%load(error)
!>     call rt%check(rt%malloc(address, bytes), "allocate", error)
!>
!> Source.  CUDA Runtime API reference.
module cnn_cuda_bindings_cudart
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart_enums, only : cudaSuccess
   use cnn_cuda_bindings_libraries, only : find_library
   use cnn_cuda_bindings_shared_library, only : c_text
   use cnn_cuda_bindings_signatures, only : cuda_pointer_attributes_type, cudart_functions_type
   implicit none
   private

   public :: cuda_pointer_attributes_type

   !> What PyTorch 2.5 and newer come with
   integer(c_int), parameter :: oldest = 12000

   type, extends(cudart_functions_type), public :: cudart_type
      !> 13000 for CUDA 13.0
      integer :: version = 0
   contains
      procedure :: load
      procedure :: check
   end type cudart_type

contains

   !> Find and open the library; nothing happens the second time
   subroutine load(self, error)
      class(cudart_type), intent(inout) :: self
      !> Not found, older than CUDA 12, or without one of the functions
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: version
      if (self%library%is_open()) return
      call find_library([character(len=15) :: "libcudart.so.13", "libcudart.so.12"], self%library, error)
      if (allocated(error)) return
      call self%bind_functions(error)
      if (allocated(error)) return
      call self%check(self%runtime_get_version(version), "version of the runtime", error)
      if (.not. allocated(error)) then
         self%version = int(version)
         if (version < oldest) call fail(error, self%library%path//": found CUDA runtime version "// &
            & to_text(self%version)//", expected "//to_text(int(oldest))//" (CUDA 12.0) or newer")
      end if
      if (allocated(error)) call self%library%forget()
   end subroutine load

   !> No error for success, else what CUDA says of the status
   subroutine check(self, status, what, error)
      class(cudart_type), intent(in) :: self
      !> A `cudaError_t`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: ignored
      if (status == cudaSuccess) return
      ! CUDA keeps it, and the next of the thread to ask for an error, PyTorch perhaps, would take it for its own
      ignored = self%get_last_error()
      call fail(error, "CUDA: "//what//": "//c_text(self%get_error_name(status))//" ("//to_text(int(status))//"): "// &
         & c_text(self%get_error_string(status)))
   end subroutine check

end module cnn_cuda_bindings_cudart
