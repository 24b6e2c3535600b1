! SPDX-License-Identifier: MIT
!> The functions of the CUDA runtime that we call, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  CUDA Runtime API reference.
module cnn_cudart_interfaces
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_long, c_null_ptr, c_ptr, c_size_t
   implicit none
   private

   public :: cudaRuntimeGetVersion, cudaDriverGetVersion, cudaGetDeviceCount, cudaSetDevice, cudaGetDevice, &
      & cudaDeviceGetAttribute, cudaMalloc, cudaFree, cudaMallocHost, cudaFreeHost, cudaMemcpyAsync, &
      & cudaMemsetAsync, cudaMemGetInfo, cudaStreamCreateWithFlags, cudaStreamDestroy, cudaStreamSynchronize, &
      & cudaStreamWaitEvent, cudaEventCreateWithFlags, cudaEventRecord, cudaEventDestroy, cudaGetLastError, &
      & cudaGetErrorName, cudaGetErrorString, cudaPointerGetAttributes, cudaLibraryLoadData, cudaLibraryGetKernel, &
      & cudaLibraryUnload, cudaLaunchKernel

   !> `dim3`, 12 bytes, passed by value
   type, bind(C), public :: dim3_type
      integer(c_int) :: x = 1, y = 1, z = 1
   end type dim3_type

   !> `struct cudaPointerAttributes`; the reserved words came with CUDA 13, room for them harms no older one
   type, bind(C), public :: cuda_pointer_attributes_type
      integer(c_int) :: type = 0, device = -1
      type(c_ptr) :: device_pointer = c_null_ptr, host_pointer = c_null_ptr
      integer(c_long) :: reserved(8) = 0
   end type cuda_pointer_attributes_type

   abstract interface
      !> 13000 for CUDA 13.0
      function cudaRuntimeGetVersion(runtime_version) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: runtime_version
         integer(c_int) :: status
      end function cudaRuntimeGetVersion
      !> The newest CUDA that the driver knows; 0 without a driver
      function cudaDriverGetVersion(driver_version) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: driver_version
         integer(c_int) :: status
      end function cudaDriverGetVersion
      function cudaGetDeviceCount(count) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: count
         integer(c_int) :: status
      end function cudaGetDeviceCount
      function cudaSetDevice(device) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), value :: device
         integer(c_int) :: status
      end function cudaSetDevice
      function cudaGetDevice(device) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: device
         integer(c_int) :: status
      end function cudaGetDevice
      function cudaDeviceGetAttribute(value, attr, device) result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int), intent(out) :: value
         integer(c_int), value :: attr, device
         integer(c_int) :: status
      end function cudaDeviceGetAttribute
      function cudaMalloc(dev_ptr, size) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), intent(out) :: dev_ptr
         integer(c_size_t), value :: size
         integer(c_int) :: status
      end function cudaMalloc
      !> Waits for the device
      function cudaFree(dev_ptr) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: dev_ptr
         integer(c_int) :: status
      end function cudaFree
      !> Pinned host memory
      function cudaMallocHost(ptr, size) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), intent(out) :: ptr
         integer(c_size_t), value :: size
         integer(c_int) :: status
      end function cudaMallocHost
      function cudaFreeHost(ptr) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: ptr
         integer(c_int) :: status
      end function cudaFreeHost
      function cudaMemcpyAsync(dst, src, count, kind, stream) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: dst, src, stream
         integer(c_size_t), value :: count
         integer(c_int), value :: kind
         integer(c_int) :: status
      end function cudaMemcpyAsync
      !> Sets bytes
      function cudaMemsetAsync(dev_ptr, value, count, stream) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: dev_ptr, stream
         integer(c_int), value :: value
         integer(c_size_t), value :: count
         integer(c_int) :: status
      end function cudaMemsetAsync
      function cudaMemGetInfo(free, total) result(status) bind(C)
         import :: c_int, c_size_t
         implicit none
         integer(c_size_t), intent(out) :: free, total
         integer(c_int) :: status
      end function cudaMemGetInfo
      function cudaStreamCreateWithFlags(p_stream, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), intent(out) :: p_stream
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaStreamCreateWithFlags
      function cudaStreamDestroy(stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaStreamDestroy
      function cudaStreamSynchronize(stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaStreamSynchronize
      function cudaStreamWaitEvent(stream, event, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: stream, event
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaStreamWaitEvent
      function cudaEventCreateWithFlags(event, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), intent(out) :: event
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaEventCreateWithFlags
      function cudaEventRecord(event, stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: event, stream
         integer(c_int) :: status
      end function cudaEventRecord
      function cudaEventDestroy(event) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: event
         integer(c_int) :: status
      end function cudaEventDestroy
      !> Forgets the error that it returns
      function cudaGetLastError() result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int) :: status
      end function cudaGetLastError
      function cudaGetErrorName(error) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         integer(c_int), value :: error
         type(c_ptr) :: text
      end function cudaGetErrorName
      function cudaGetErrorString(error) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         integer(c_int), value :: error
         type(c_ptr) :: text
      end function cudaGetErrorString
      !> Of any address; host memory that CUDA does not know is "unregistered", no error
      function cudaPointerGetAttributes(attributes, ptr) result(status) bind(C)
         import :: c_int, c_ptr, cuda_pointer_attributes_type
         implicit none
         type(cuda_pointer_attributes_type), intent(out) :: attributes
         type(c_ptr), value :: ptr
         integer(c_int) :: status
      end function cudaPointerGetAttributes
      !> `code` is PTX text that ends in a NUL; the options may be null
      function cudaLibraryLoadData(library, code, jit_options, jit_options_values, num_jit_options, &
            & library_options, library_option_values, num_library_options) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), intent(out) :: library
         type(c_ptr), value :: code, jit_options, jit_options_values, library_options, library_option_values
         integer(c_int), value :: num_jit_options, num_library_options
         integer(c_int) :: status
      end function cudaLibraryLoadData
      function cudaLibraryGetKernel(p_kernel, library, name) result(status) bind(C)
         import :: c_char, c_int, c_ptr
         implicit none
         type(c_ptr), intent(out) :: p_kernel
         type(c_ptr), value :: library
         character(kind=c_char), intent(in) :: name(*)
         integer(c_int) :: status
      end function cudaLibraryGetKernel
      function cudaLibraryUnload(library) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: library
         integer(c_int) :: status
      end function cudaLibraryUnload
      !> `func` is a kernel of cudaLibraryGetKernel; `args` the host addresses of its arguments
      function cudaLaunchKernel(func, grid_dim, block_dim, args, shared_mem, stream) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t, dim3_type
         implicit none
         type(c_ptr), value :: func, stream
         type(dim3_type), value :: grid_dim, block_dim
         type(c_ptr), intent(in) :: args(*)
         integer(c_size_t), value :: shared_mem
         integer(c_int) :: status
      end function cudaLaunchKernel
   end interface

end module cnn_cudart_interfaces
