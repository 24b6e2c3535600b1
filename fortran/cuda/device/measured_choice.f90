! SPDX-License-Identifier: MIT
!> What a choice that was measured depends on.
module cnn_cuda_device_measured_choice
   use, intrinsic :: iso_c_binding, only : c_int, c_size_t
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart_enums, only : cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, &
      & cudaDevAttrMultiProcessorCount
   use cnn_cuda_device_facts, only : device_label
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_plan_cache, only : cache_path
   use cnn_cuda_plans_request, only : conv_request_type, key_length, request_key
   implicit none
   private

   public :: choice_key

   !> Plans of a graph that are measured: cuDNN offers the best first
   integer, parameter, public :: most_measured = 12

   !> The choice on file where the parts of something fused are faster one after the other
   character(len=*), parameter, public :: choice_parts = "parts"

contains

   !> All that the choice depends on, in one line; empty where choices are not kept, or the GPU does not tell
   function choice_key(device, name, request) result(key)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      type(conv_request_type), intent(in) :: request
      character(len=:), allocatable :: key
      integer, parameter :: attributes(3) = [cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, &
         & cudaDevAttrMultiProcessorCount]
      type(error_type), allocatable :: error
      integer(i8) :: asked(key_length)
      integer(c_int) :: facts(size(attributes)), driver
      integer(c_size_t) :: free, total
      integer :: i

      key = ""
      if (len(cache_path()) == 0) return
      call device%check(device%rt%driver_get_version(driver), "version of the driver", error)
      if (.not. allocated(error)) call device%check(device%rt%mem_get_info(free, total), "cudaMemGetInfo", error)
      do i = 1, size(attributes)
         if (.not. allocated(error)) call device%check(device%rt%device_get_attribute(facts(i), &
            & int(attributes(i), c_int), int(device%ordinal, c_int)), "cudaDeviceGetAttribute", error)
      end do
      if (allocated(error)) return
      asked = request_key(request, name)
      key = to_text(asked(1))
      do i = 2, size(asked)
         key = key//","//to_text(asked(i))
      end do
      key = key//" cuDNN "//to_text(device%dnn%version)//" CUDA "//to_text(device%rt%version)//" driver "// &
         & to_text(int(driver))//" capability "//to_text(int(facts(1)))//"."//to_text(int(facts(2)))// &
         & " multiprocessors "//to_text(int(facts(3)))//" memory "//to_text(int(total, i8))//" "// &
         & device_label(device%ordinal)
   end function choice_key

end module cnn_cuda_device_measured_choice
