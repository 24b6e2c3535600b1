! SPDX-License-Identifier: MIT
!> Constants of the CUDA runtime, with their C names.
!>
!> Source.  CUDA Runtime API reference.
module cnn_cudart_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudaError_t`
   integer(c_int), parameter, public :: cudaSuccess = 0
   integer(c_int), parameter, public :: cudaErrorInvalidValue = 1
   integer(c_int), parameter, public :: cudaErrorMemoryAllocation = 2
   integer(c_int), parameter, public :: cudaErrorInsufficientDriver = 35
   integer(c_int), parameter, public :: cudaErrorNoDevice = 100
   integer(c_int), parameter, public :: cudaErrorInvalidDevice = 101
   integer(c_int), parameter, public :: cudaErrorNotSupported = 801
   !> `cudaMemcpyKind`
   integer(c_int), parameter, public :: cudaMemcpyHostToHost = 0
   integer(c_int), parameter, public :: cudaMemcpyHostToDevice = 1
   integer(c_int), parameter, public :: cudaMemcpyDeviceToHost = 2
   integer(c_int), parameter, public :: cudaMemcpyDeviceToDevice = 3
   integer(c_int), parameter, public :: cudaMemcpyDefault = 4
   !> `cudaMemoryType`
   integer(c_int), parameter, public :: cudaMemoryTypeUnregistered = 0
   integer(c_int), parameter, public :: cudaMemoryTypeHost = 1
   integer(c_int), parameter, public :: cudaMemoryTypeDevice = 2
   integer(c_int), parameter, public :: cudaMemoryTypeManaged = 3
   !> `cudaDeviceAttr`
   integer(c_int), parameter, public :: cudaDevAttrMaxThreadsPerBlock = 1
   integer(c_int), parameter, public :: cudaDevAttrMaxGridDimX = 5
   integer(c_int), parameter, public :: cudaDevAttrMaxGridDimY = 6
   integer(c_int), parameter, public :: cudaDevAttrWarpSize = 10
   integer(c_int), parameter, public :: cudaDevAttrMultiProcessorCount = 16
   integer(c_int), parameter, public :: cudaDevAttrMaxThreadsPerMultiProcessor = 39
   integer(c_int), parameter, public :: cudaDevAttrComputeCapabilityMajor = 75
   integer(c_int), parameter, public :: cudaDevAttrComputeCapabilityMinor = 76
   !> Flags of streams and events
   integer(c_int), parameter, public :: cudaStreamDefault = 0
   integer(c_int), parameter, public :: cudaStreamNonBlocking = 1
   integer(c_int), parameter, public :: cudaEventDefault = 0
   integer(c_int), parameter, public :: cudaEventDisableTiming = 2
   !> `cudaJitOption`, for the messages of the driver's compiler
   integer(c_int), parameter, public :: cudaJitErrorLogBuffer = 5
   integer(c_int), parameter, public :: cudaJitErrorLogBufferSizeBytes = 6

end module cnn_cudart_enums
