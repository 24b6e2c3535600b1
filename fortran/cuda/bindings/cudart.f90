! SPDX-License-Identifier: MIT
!> The CUDA runtime, opened when it is first needed.
!>
!>     call rt%load(error)
!>     call rt%check(rt%malloc(address, bytes), "allocate", error)
!>
!> Source.  CUDA Runtime API reference.
module cnn_cuda_bindings_cudart
   use, intrinsic :: iso_c_binding, only : c_f_procpointer, c_int
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart_enums, only : cudaSuccess
   use cnn_cuda_bindings_cudart_graph_interfaces, only : cudaGraphDestroy, cudaGraphExecDestroy, cudaGraphInstantiate, &
      & cudaGraphLaunch, cudaGraphUpload, cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing
   use cnn_cuda_bindings_cudart_interfaces, only : cuda_pointer_attributes_type, cudaDeviceGetAttribute, &
      & cudaEventCreateWithFlags, cudaEventDestroy, cudaEventQuery, cudaEventRecord, cudaEventSynchronize, cudaFree, &
      & cudaFreeHost, cudaGetDevice, cudaGetDeviceCount, cudaGetErrorName, cudaGetErrorString, cudaGetLastError, &
      & cudaMalloc, cudaMallocHost, cudaMemcpyAsync, cudaMemGetInfo, cudaMemsetAsync, &
      & cudaPointerGetAttributes, cudaRuntimeGetVersion, cudaSetDevice, cudaStreamCreateWithFlags, cudaStreamDestroy, &
      & cudaStreamSynchronize, cudaStreamWaitEvent
   use cnn_cuda_bindings_libraries, only : find_library
   use cnn_cuda_bindings_shared_library, only : c_text, shared_library_type
   implicit none
   private

   public :: cuda_pointer_attributes_type

   !> What PyTorch 2.5 and newer come with
   integer(c_int), parameter :: oldest = 12000

   type, public :: cudart_type
      type(shared_library_type) :: library
      !> 13000 for CUDA 13.0
      integer :: version = 0
      procedure(cudaRuntimeGetVersion), pointer, nopass :: runtime_get_version => null()
      procedure(cudaGetDeviceCount), pointer, nopass :: get_device_count => null()
      procedure(cudaSetDevice), pointer, nopass :: set_device => null()
      procedure(cudaGetDevice), pointer, nopass :: get_device => null()
      procedure(cudaDeviceGetAttribute), pointer, nopass :: device_get_attribute => null()
      procedure(cudaMalloc), pointer, nopass :: malloc => null()
      procedure(cudaFree), pointer, nopass :: free => null()
      procedure(cudaMallocHost), pointer, nopass :: malloc_host => null()
      procedure(cudaFreeHost), pointer, nopass :: free_host => null()
      procedure(cudaMemcpyAsync), pointer, nopass :: memcpy_async => null()
      procedure(cudaMemsetAsync), pointer, nopass :: memset_async => null()
      procedure(cudaMemGetInfo), pointer, nopass :: mem_get_info => null()
      procedure(cudaStreamCreateWithFlags), pointer, nopass :: stream_create_with_flags => null()
      procedure(cudaStreamDestroy), pointer, nopass :: stream_destroy => null()
      procedure(cudaStreamSynchronize), pointer, nopass :: stream_synchronize => null()
      procedure(cudaStreamWaitEvent), pointer, nopass :: stream_wait_event => null()
      procedure(cudaEventCreateWithFlags), pointer, nopass :: event_create_with_flags => null()
      procedure(cudaEventRecord), pointer, nopass :: event_record => null()
      procedure(cudaEventQuery), pointer, nopass :: event_query => null()
      procedure(cudaEventSynchronize), pointer, nopass :: event_synchronize => null()
      procedure(cudaEventDestroy), pointer, nopass :: event_destroy => null()
      procedure(cudaStreamBeginCapture), pointer, nopass :: stream_begin_capture => null()
      procedure(cudaStreamEndCapture), pointer, nopass :: stream_end_capture => null()
      procedure(cudaStreamIsCapturing), pointer, nopass :: stream_is_capturing => null()
      procedure(cudaGraphInstantiate), pointer, nopass :: graph_instantiate => null()
      procedure(cudaGraphUpload), pointer, nopass :: graph_upload => null()
      procedure(cudaGraphLaunch), pointer, nopass :: graph_launch => null()
      procedure(cudaGraphExecDestroy), pointer, nopass :: graph_exec_destroy => null()
      procedure(cudaGraphDestroy), pointer, nopass :: graph_destroy => null()
      procedure(cudaGetLastError), pointer, nopass :: get_last_error => null()
      procedure(cudaGetErrorName), pointer, nopass :: get_error_name => null()
      procedure(cudaGetErrorString), pointer, nopass :: get_error_string => null()
      procedure(cudaPointerGetAttributes), pointer, nopass :: pointer_get_attributes => null()
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
      call bind_functions(self)
      call self%library%check_symbols(error)
      if (allocated(error)) return
      call self%check(self%runtime_get_version(version), "version of the runtime", error)
      if (.not. allocated(error)) then
         self%version = int(version)
         if (version < oldest) call fail(error, self%library%path//": found CUDA runtime version "// &
            & to_text(self%version)//", expected "//to_text(int(oldest))//" (CUDA 12.0) or newer")
      end if
      if (allocated(error)) call self%library%forget()
   end subroutine load

   subroutine bind_functions(self)
      type(cudart_type), intent(inout) :: self
      call c_f_procpointer(self%library%symbol("cudaRuntimeGetVersion"), self%runtime_get_version)
      call c_f_procpointer(self%library%symbol("cudaGetDeviceCount"), self%get_device_count)
      call c_f_procpointer(self%library%symbol("cudaSetDevice"), self%set_device)
      call c_f_procpointer(self%library%symbol("cudaGetDevice"), self%get_device)
      call c_f_procpointer(self%library%symbol("cudaDeviceGetAttribute"), self%device_get_attribute)
      call c_f_procpointer(self%library%symbol("cudaMalloc"), self%malloc)
      call c_f_procpointer(self%library%symbol("cudaFree"), self%free)
      call c_f_procpointer(self%library%symbol("cudaMallocHost"), self%malloc_host)
      call c_f_procpointer(self%library%symbol("cudaFreeHost"), self%free_host)
      call c_f_procpointer(self%library%symbol("cudaMemcpyAsync"), self%memcpy_async)
      call c_f_procpointer(self%library%symbol("cudaMemsetAsync"), self%memset_async)
      call c_f_procpointer(self%library%symbol("cudaMemGetInfo"), self%mem_get_info)
      call c_f_procpointer(self%library%symbol("cudaStreamCreateWithFlags"), self%stream_create_with_flags)
      call c_f_procpointer(self%library%symbol("cudaStreamDestroy"), self%stream_destroy)
      call c_f_procpointer(self%library%symbol("cudaStreamSynchronize"), self%stream_synchronize)
      call c_f_procpointer(self%library%symbol("cudaStreamWaitEvent"), self%stream_wait_event)
      call c_f_procpointer(self%library%symbol("cudaEventCreateWithFlags"), self%event_create_with_flags)
      call c_f_procpointer(self%library%symbol("cudaEventRecord"), self%event_record)
      call c_f_procpointer(self%library%symbol("cudaEventQuery"), self%event_query)
      call c_f_procpointer(self%library%symbol("cudaEventSynchronize"), self%event_synchronize)
      call c_f_procpointer(self%library%symbol("cudaEventDestroy"), self%event_destroy)
      call bind_graphs(self)
      call c_f_procpointer(self%library%symbol("cudaGetLastError"), self%get_last_error)
      call c_f_procpointer(self%library%symbol("cudaGetErrorName"), self%get_error_name)
      call c_f_procpointer(self%library%symbol("cudaGetErrorString"), self%get_error_string)
      call c_f_procpointer(self%library%symbol("cudaPointerGetAttributes"), self%pointer_get_attributes)
   end subroutine bind_functions

   !> Stream capture, and the graphs that it makes
   subroutine bind_graphs(self)
      type(cudart_type), intent(inout) :: self
      call c_f_procpointer(self%library%symbol("cudaStreamBeginCapture"), self%stream_begin_capture)
      call c_f_procpointer(self%library%symbol("cudaStreamEndCapture"), self%stream_end_capture)
      call c_f_procpointer(self%library%symbol("cudaStreamIsCapturing"), self%stream_is_capturing)
      call c_f_procpointer(self%library%symbol("cudaGraphInstantiate"), self%graph_instantiate)
      call c_f_procpointer(self%library%symbol("cudaGraphUpload"), self%graph_upload)
      call c_f_procpointer(self%library%symbol("cudaGraphLaunch"), self%graph_launch)
      call c_f_procpointer(self%library%symbol("cudaGraphExecDestroy"), self%graph_exec_destroy)
      call c_f_procpointer(self%library%symbol("cudaGraphDestroy"), self%graph_destroy)
   end subroutine bind_graphs

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
