! SPDX-License-Identifier: MIT
!> The CUDA devices as facts for a report: what they are and what they can do.
module cnn_cuda_info_devices
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_null_char, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_cudart_enums, only : cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, &
      & cudaDevAttrMultiProcessorCount
   use cnn_cuda_bindings_driver, only : cuda_driver_type
   use cnn_cuda_info_fact_list, only : fact_list_type
   implicit none
   private

   public :: add_devices

contains

   !> Makes a context on each of them, which takes some of its memory until the process ends
   subroutine add_devices(facts)
      !> The report; lines about each device are added
      type(fact_list_type), intent(inout) :: facts
      type(cudart_type) :: rt
      type(error_type), allocatable :: error
      integer(c_int) :: count, current, device
      call rt%load(error)
      if (.not. allocated(error)) call rt%check(rt%get_device_count(count), "number of devices", error)
      if (.not. allocated(error)) call rt%check(rt%get_device(current), "current device", error)
      call facts%add_error("devices", error)
      if (allocated(error)) return
      call facts%add("devices", to_text(int(count)))
      do device = 0, count - 1
         call add_device(facts, rt, device)
      end do
      ! As the caller had it
      call rt%check(rt%set_device(current), "use the device", error)
      call facts%add_error("devices", error)
   end subroutine add_devices

   subroutine add_device(facts, rt, device)
      !> The report
      type(fact_list_type), intent(inout) :: facts
      !> The CUDA runtime, open
      type(cudart_type), intent(in) :: rt
      !> Number of the device, from 0; current afterwards
      integer(c_int), intent(in) :: device
      type(error_type), allocatable :: error
      character(len=:), allocatable :: name, label
      name = "device "//to_text(int(device))
      label = device_label(int(device))
      if (len(label) > 0) call facts%add(name//" name", label)
      call add_abilities(facts, rt, device, name, error)
      call facts%add_error(name, error)
   end subroutine add_device

   !> Compute capability, multiprocessors, what they multiply, and memory
   subroutine add_abilities(facts, rt, device, name, error)
      !> The report
      type(fact_list_type), intent(inout) :: facts
      !> The CUDA runtime, open
      type(cudart_type), intent(in) :: rt
      !> Number of the device, from 0; current afterwards
      integer(c_int), intent(in) :: device
      !> What the lines begin with
      character(len=*), intent(in) :: name
      !> An error of CUDA; what was found before is in the report
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: major, minor, processors
      integer(c_size_t) :: free, total
      call rt%check(rt%device_get_attribute(major, cudaDevAttrComputeCapabilityMajor, device), "attribute", error)
      if (allocated(error)) return
      call rt%check(rt%device_get_attribute(minor, cudaDevAttrComputeCapabilityMinor, device), "attribute", error)
      if (allocated(error)) return
      call rt%check(rt%device_get_attribute(processors, cudaDevAttrMultiProcessorCount, device), "attribute", error)
      if (allocated(error)) return
      call facts%add(name//" compute capability", to_text(int(major))//"."//to_text(int(minor)))
      call facts%add(name//" multiprocessors", to_text(int(processors)))
      call facts%add(name//" math", math_modes(10*int(major) + int(minor)))
      call rt%check(rt%set_device(device), "use the device", error)
      if (allocated(error)) return
      call rt%check(rt%mem_get_info(free, total), "memory", error)
      if (allocated(error)) return
      call facts%add(name//" memory total", to_text(int(total, i8)))
      call facts%add(name//" memory free", to_text(int(free, i8)))
   end subroutine add_abilities

   !> The name of the GPU, which only the driver tells; empty where it does not
   function device_label(ordinal) result(name)
      !> Number of the device, from 0
      integer, intent(in) :: ordinal
      character(len=:), allocatable :: name
      type(cuda_driver_type) :: driver
      type(error_type), allocatable :: error
      character(kind=c_char) :: letters(256)
      integer(c_int) :: device
      integer :: i
      name = ""
      call driver%load(error)
      if (allocated(error)) return
      call driver%check(driver%init(0_c_int), "start the driver", error)
      if (allocated(error)) return
      call driver%check(driver%device_get(device, int(ordinal, c_int)), "device", error)
      if (allocated(error)) return
      call driver%check(driver%device_get_name(letters, size(letters, kind=c_int), device), "name of the device", error)
      if (allocated(error)) return
      do i = 1, size(letters)
         if (letters(i) == c_null_char) exit
         name = name//merge(letters(i), "?", iachar(letters(i)) >= 32)
      end do
   end function device_label

   !> Products that the hardware offers, by compute capability * 10 (CUDA C++ Programming Guide, arithmetic)
   pure function math_modes(capability) result(text)
      !> 10 times the major number, and the minor
      integer, intent(in) :: capability
      character(len=:), allocatable :: text
      text = "fp32"
      if (capability >= 80) text = text//" tf32"
      if (capability >= 53) text = text//" fp16"
      if (capability >= 80) text = text//" bf16"
   end function math_modes

end module cnn_cuda_info_devices
