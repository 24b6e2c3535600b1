! SPDX-License-Identifier: MIT
!> cuDNN's graph API: the functions of the library that cnn_cuda_bindings_cudnn has opened.
!>
!>     call graphs%load(dnn, error)
!>     call graphs%check(graphs%backend_finalize(descriptor), "a tensor", error)
!>
!> Source.  cuDNN 9 backend API reference.
module cnn_cuda_bindings_cudnn_graph
   use, intrinsic :: iso_c_binding, only : c_f_procpointer, c_int
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_graph_interfaces, only : cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, &
      & cudnnBackendExecute, cudnnBackendFinalize, cudnnBackendGetAttribute, cudnnBackendSetAttribute
   use cnn_cuda_bindings_shared_library, only : shared_library_type
   implicit none
   private

   type, public :: cudnn_graph_type
      type(cudnn_type), pointer :: dnn => null()
      type(shared_library_type), private :: library
      procedure(cudnnBackendCreateDescriptor), pointer, nopass :: backend_create_descriptor => null()
      procedure(cudnnBackendDestroyDescriptor), pointer, nopass :: backend_destroy_descriptor => null()
      procedure(cudnnBackendFinalize), pointer, nopass :: backend_finalize => null()
      procedure(cudnnBackendSetAttribute), pointer, nopass :: backend_set_attribute => null()
      procedure(cudnnBackendGetAttribute), pointer, nopass :: backend_get_attribute => null()
      procedure(cudnnBackendExecute), pointer, nopass :: backend_execute => null()
   contains
      procedure :: load
      procedure :: check
   end type cudnn_graph_type

contains

   !> From a cuDNN that is loaded; nothing happens the second time
   subroutine load(self, dnn, error)
      class(cudnn_graph_type), intent(inout) :: self
      !> An open cuDNN, which must live as long
      type(cudnn_type), intent(inout), target :: dnn
      !> Which functions are missing
      type(error_type), allocatable, intent(out) :: error
      if (associated(self%dnn)) return
      self%library = dnn%library
      call c_f_procpointer(self%library%symbol("cudnnBackendCreateDescriptor"), self%backend_create_descriptor)
      call c_f_procpointer(self%library%symbol("cudnnBackendDestroyDescriptor"), self%backend_destroy_descriptor)
      call c_f_procpointer(self%library%symbol("cudnnBackendFinalize"), self%backend_finalize)
      call c_f_procpointer(self%library%symbol("cudnnBackendSetAttribute"), self%backend_set_attribute)
      call c_f_procpointer(self%library%symbol("cudnnBackendGetAttribute"), self%backend_get_attribute)
      call c_f_procpointer(self%library%symbol("cudnnBackendExecute"), self%backend_execute)
      call self%library%check_symbols(error)
      if (allocated(error)) return
      self%dnn => dnn
   end subroutine load

   !> No error for success, else what cuDNN says of the status
   subroutine check(self, status, what, error)
      class(cudnn_graph_type), intent(in) :: self
      !> A `cudnnStatus_t`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      type(error_type), allocatable, intent(out) :: error
      call self%dnn%check(status, what, error)
   end subroutine check

end module cnn_cuda_bindings_cudnn_graph
