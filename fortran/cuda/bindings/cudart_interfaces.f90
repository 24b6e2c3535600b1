! SPDX-License-Identifier: MIT
!> The functions of the CUDA runtime that we call, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  CUDA Runtime API reference.
module cnn_cuda_bindings_cudart_interfaces
   use, intrinsic :: iso_c_binding, only : c_int, c_long, c_null_ptr, c_ptr, c_size_t
   implicit none
   private

   public :: cudaRuntimeGetVersion, cudaGetDeviceCount, cudaSetDevice, cudaGetDevice, &
      & cudaDeviceGetAttribute, cudaMalloc, cudaFree, cudaMallocHost, cudaFreeHost, cudaMemcpyAsync, &
      & cudaMemsetAsync, cudaMemGetInfo, cudaStreamCreateWithFlags, cudaStreamDestroy, cudaStreamSynchronize, &
      & cudaStreamWaitEvent, cudaEventCreateWithFlags, cudaEventRecord, cudaEventQuery, cudaEventSynchronize, &
      & cudaEventDestroy, cudaGetLastError, cudaGetErrorName, cudaGetErrorString, cudaPointerGetAttributes

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
         !> 1000 times the major version, and 10 times the minor
         integer(c_int), intent(out) :: runtime_version
         integer(c_int) :: status
      end function cudaRuntimeGetVersion
      !> How many devices this process may use; none, or no driver, is an error status
      function cudaGetDeviceCount(count) result(status) bind(C)
         import :: c_int
         implicit none
         !> Number of devices
         integer(c_int), intent(out) :: count
         integer(c_int) :: status
      end function cudaGetDeviceCount
      !> Later calls of this thread go to this device, counted from 0; the first time starts it, which takes long
      function cudaSetDevice(device) result(status) bind(C)
         import :: c_int
         implicit none
         !> Number of the device, from 0
         integer(c_int), value :: device
         integer(c_int) :: status
      end function cudaSetDevice
      !> The device, counted from 0, that calls of this thread go to
      function cudaGetDevice(device) result(status) bind(C)
         import :: c_int
         implicit none
         !> Number of the device, from 0
         integer(c_int), intent(out) :: device
         integer(c_int) :: status
      end function cudaGetDevice
      !> One property of any device, not only of the current one; `attr` is a `cudaDeviceAttr`
      function cudaDeviceGetAttribute(value, attr, device) result(status) bind(C)
         import :: c_int
         implicit none
         !> Value of the attribute
         integer(c_int), intent(out) :: value
         !> A `cudaDeviceAttr`
         integer(c_int), value :: attr
         !> Number of the device, from 0
         integer(c_int), value :: device
         integer(c_int) :: status
      end function cudaDeviceGetAttribute
      !> Memory of `size` bytes on the current device, with undefined values; the caller frees it by cudaFree
      function cudaMalloc(dev_ptr, size) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Where the memory starts, *device*, aligned to 256 bytes or more
         type(c_ptr), intent(out) :: dev_ptr
         !> Size, in bytes
         integer(c_size_t), value :: size
         integer(c_int) :: status
      end function cudaMalloc
      !> Waits for the device
      function cudaFree(dev_ptr) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaMalloc gave, *device*; null is no error
         type(c_ptr), value :: dev_ptr
         integer(c_int) :: status
      end function cudaFree
      !> Pinned host memory
      function cudaMallocHost(ptr, size) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Where the memory starts, *host*
         type(c_ptr), intent(out) :: ptr
         !> Size, in bytes
         integer(c_size_t), value :: size
         integer(c_int) :: status
      end function cudaMallocHost
      !> Takes back memory of cudaMallocHost, which no queued copy may still use
      function cudaFreeHost(ptr) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudaMallocHost gave, *host*
         type(c_ptr), value :: ptr
         integer(c_int) :: status
      end function cudaFreeHost
      !> Queues a copy of `count` bytes; it may wait after all where host memory is not pinned
      function cudaMemcpyAsync(dst, src, count, kind, stream) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> The first byte written, host or device memory by `kind`
         type(c_ptr), value :: dst
         !> The first byte read, host or device memory by `kind`; the two must not overlap
         type(c_ptr), value :: src
         !> The copy starts after all that is queued there; null is the default stream
         type(c_ptr), value :: stream
         !> Size, in bytes
         integer(c_size_t), value :: count
         !> A `cudaMemcpyKind`: from where to where
         integer(c_int), value :: kind
         integer(c_int) :: status
      end function cudaMemcpyAsync
      !> Sets bytes
      function cudaMemsetAsync(dev_ptr, value, count, stream) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> The first byte, *device*
         type(c_ptr), value :: dev_ptr
         !> It starts after all that is queued there; null is the default stream
         type(c_ptr), value :: stream
         !> Value of each byte; only the lowest eight bits count
         integer(c_int), value :: value
         !> Size, in bytes
         integer(c_size_t), value :: count
         integer(c_int) :: status
      end function cudaMemsetAsync
      !> Bytes of the current device, free and in all; other processes take theirs from the same memory
      function cudaMemGetInfo(free, total) result(status) bind(C)
         import :: c_int, c_size_t
         implicit none
         !> Bytes that can still be allocated
         integer(c_size_t), intent(out) :: free
         !> Bytes that the device has
         integer(c_size_t), intent(out) :: total
         integer(c_int) :: status
      end function cudaMemGetInfo
      !> A queue of work for the current device, which the caller frees by cudaStreamDestroy
      function cudaStreamCreateWithFlags(p_stream, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new stream
         type(c_ptr), intent(out) :: p_stream
         !> cudaStreamNonBlocking: it does not wait for the default stream
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaStreamCreateWithFlags
      !> Does not wait: what is queued still runs, and the stream is freed after it
      function cudaStreamDestroy(stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Not used any more
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaStreamDestroy
      !> Waits for all work that is queued on the stream; the status may be the error of an earlier call
      function cudaStreamSynchronize(stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Null is the default stream
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaStreamSynchronize
      !> What is queued on the stream from now on waits for the work that the event marks; the host does not wait
      function cudaStreamWaitEvent(stream, event, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The one that waits
         type(c_ptr), value :: stream
         !> Recorded, perhaps on another stream
         type(c_ptr), value :: event
         !> Must be 0
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaStreamWaitEvent
      !> A mark to put behind the work of a stream, which the caller frees by cudaEventDestroy
      function cudaEventCreateWithFlags(event, flags) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new event, not recorded yet
         type(c_ptr), intent(out) :: event
         !> cudaEventDisableTiming: without a time stamp, which costs less
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cudaEventCreateWithFlags
      !> The event marks the work queued on the stream so far, and no longer what it marked before
      function cudaEventRecord(event, stream) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The event
         type(c_ptr), value :: event
         !> Whose work it marks, of the event's device; null is the default stream
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function cudaEventRecord
      !> cudaErrorNotReady, which is no failure, while work that the event marks is not done
      function cudaEventQuery(event) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The event
         type(c_ptr), value :: event
         integer(c_int) :: status
      end function cudaEventQuery
      !> Waits for the work that the event marks; one that was never recorded marks none
      function cudaEventSynchronize(event) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The event
         type(c_ptr), value :: event
         integer(c_int) :: status
      end function cudaEventSynchronize
      !> Does not wait, even when the work that the event marks still runs
      function cudaEventDestroy(event) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The event
         type(c_ptr), value :: event
         integer(c_int) :: status
      end function cudaEventDestroy
      !> Forgets the error that it returns
      function cudaGetLastError() result(status) bind(C)
         import :: c_int
         implicit none
         integer(c_int) :: status
      end function cudaGetLastError
      !> The C name of a status, a text of the library's that ends in a NUL; nobody frees it
      function cudaGetErrorName(error) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `cudaError_t`
         integer(c_int), value :: error
         type(c_ptr) :: text
      end function cudaGetErrorName
      !> What a status means, a text of the library's that ends in a NUL; nobody frees it
      function cudaGetErrorString(error) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `cudaError_t`
         integer(c_int), value :: error
         type(c_ptr) :: text
      end function cudaGetErrorString
      !> Of any address; host memory that CUDA does not know is "unregistered", no error
      function cudaPointerGetAttributes(attributes, ptr) result(status) bind(C)
         import :: c_int, c_ptr, cuda_pointer_attributes_type
         implicit none
         !> What the memory is: host, device or unregistered, and on which device
         type(cuda_pointer_attributes_type), intent(out) :: attributes
         !> Any address; it is not read
         type(c_ptr), value :: ptr
         integer(c_int) :: status
      end function cudaPointerGetAttributes
   end interface

end module cnn_cuda_bindings_cudart_interfaces
