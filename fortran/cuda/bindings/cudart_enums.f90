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
   integer(c_int), parameter, public :: cudaStreamCaptureModeThreadLocal = 1

end module cnn_cuda_bindings_cudart_enums
