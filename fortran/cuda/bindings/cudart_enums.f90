! SPDX-License-Identifier: MIT
!> Constants of the CUDA runtime, with their C names.
!>
!> Source.  CUDA Runtime API reference.
module cnn_cuda_bindings_cudart_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudaError_t`
   integer(c_int), parameter, public :: cudaSuccess = 0
   integer(c_int), parameter, public :: cudaErrorNotReady = 600
   integer(c_int), parameter, public :: cudaErrorStreamCaptureUnsupported = 900
   integer(c_int), parameter, public :: cudaErrorStreamCaptureInvalidated = 901
   !> `cudaMemcpyKind`
   integer(c_int), parameter, public :: cudaMemcpyHostToDevice = 1
   integer(c_int), parameter, public :: cudaMemcpyDeviceToHost = 2
   integer(c_int), parameter, public :: cudaMemcpyDeviceToDevice = 3
   !> `cudaMemoryType`
   integer(c_int), parameter, public :: cudaMemoryTypeDevice = 2
   integer(c_int), parameter, public :: cudaMemoryTypeManaged = 3
   !> `cudaDeviceAttr`
   integer(c_int), parameter, public :: cudaDevAttrMultiProcessorCount = 16
   integer(c_int), parameter, public :: cudaDevAttrComputeCapabilityMajor = 75
   integer(c_int), parameter, public :: cudaDevAttrComputeCapabilityMinor = 76
   !> Flags of streams and events
   integer(c_int), parameter, public :: cudaStreamNonBlocking = 1
   integer(c_int), parameter, public :: cudaEventDisableTiming = 2
   !> `cudaStreamCaptureMode`
   integer(c_int), parameter, public :: cudaStreamCaptureModeGlobal = 0
   integer(c_int), parameter, public :: cudaStreamCaptureModeThreadLocal = 1
   integer(c_int), parameter, public :: cudaStreamCaptureModeRelaxed = 2
   !> `cudaStreamCaptureStatus`
   integer(c_int), parameter, public :: cudaStreamCaptureStatusNone = 0
   integer(c_int), parameter, public :: cudaStreamCaptureStatusActive = 1
   integer(c_int), parameter, public :: cudaStreamCaptureStatusInvalidated = 2

end module cnn_cuda_bindings_cudart_enums
