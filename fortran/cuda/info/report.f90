! SPDX-License-Identifier: MIT
!> What is there of CUDA, as text for a report: lines of `name: value`.
!>
!> Nothing here fails: what cannot be had becomes a line `... error: why`. Sizes are bytes, versions as people write
!> them. The parts can be asked for one by one, because a broken library may end the process.
!>
!>     driver    libcuda, and the newest CUDA that it can serve
!>     cudart, cudnn    where they were found, and their versions
!>     devices   their number, and name, compute capability, memory, math modes of each
!>     kernels   of the PTX text of our kernels its target and its entries
!>     build     the compiler of this library
module cnn_cuda_info_report
   use, intrinsic :: iso_c_binding, only : c_int
   use, intrinsic :: iso_fortran_env, only : compiler_version
   use cnn_core_error, only : error_type
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_driver, only : cuda_driver_type
   use cnn_cuda_device_kernels, only : kernels_text
   use cnn_cuda_info_devices, only : add_devices
   use cnn_cuda_info_fact_list, only : fact_list_type
   implicit none
   private

   public :: cuda_facts

   character(len=*), parameter :: parts(6) = [character(len=7) :: &
      & "driver", "cudart", "cudnn", "devices", "kernels", "build"]

contains

   !> One of `parts`, or all of them
   subroutine cuda_facts(text, part)
      !> Lines of `name: value`, each ended by a new line
      character(len=:), allocatable, intent(out) :: text
      !> One of `parts`; all of them without it
      character(len=*), intent(in), optional :: part
      type(fact_list_type) :: facts
      integer :: i
      facts%text = ""
      do i = 1, size(parts)
         if (present(part)) then
            if (part /= parts(i)) cycle
         end if
         call add_part(facts, trim(parts(i)))
      end do
      text = facts%text
   end subroutine cuda_facts

   subroutine add_part(facts, part)
      !> The report; lines are added
      type(fact_list_type), intent(inout) :: facts
      !> One of `parts`
      character(len=*), intent(in) :: part
      select case (part)
       case ("driver")
         call add_driver(facts)
       case ("cudart")
         call add_cudart(facts)
       case ("cudnn")
         call add_cudnn(facts)
       case ("devices")
         call add_devices(facts)
       case ("kernels")
         call add_kernels(facts)
       case default
         call facts%add("compiler", compiler_version())
      end select
   end subroutine add_part

   subroutine add_driver(facts)
      !> The report; lines are added
      type(fact_list_type), intent(inout) :: facts
      type(cuda_driver_type) :: driver
      type(error_type), allocatable :: error
      integer(c_int) :: version
      call driver%load(error)
      call facts%add_path("driver", driver%library)
      if (.not. allocated(error)) call driver%check(driver%driver_get_version(version), "version of the driver", error)
      if (.not. allocated(error)) then
         call facts%add("driver version", cuda_version(int(version)))
         call driver%check(driver%init(0_c_int), "start the driver", error)
      end if
      call facts%add_error("driver", error)
   end subroutine add_driver

   subroutine add_cudart(facts)
      !> The report; lines are added
      type(fact_list_type), intent(inout) :: facts
      type(cudart_type) :: rt
      type(error_type), allocatable :: error
      call rt%load(error)
      call facts%add_path("cudart", rt%library)
      if (.not. allocated(error)) call facts%add("cudart version", cuda_version(rt%version))
      call facts%add_error("cudart", error)
   end subroutine add_cudart

   subroutine add_cudnn(facts)
      !> The report; lines are added
      type(fact_list_type), intent(inout) :: facts
      type(cudnn_type) :: dnn
      type(cudart_type) :: rt
      type(error_type), allocatable :: error, no_runtime
      call dnn%load(error)
      call facts%add_path("cudnn", dnn%library)
      if (.not. allocated(error)) then
         call facts%add("cudnn version", in_pairs(dnn%version))
         call facts%add("cudnn CUDA", cuda_version(dnn%cuda_version))
         call rt%load(no_runtime)
         if (.not. allocated(no_runtime)) call dnn%check_cuda(rt%version, error)
      end if
      call facts%add_error("cudnn", error)
   end subroutine add_cudnn

   !> From the PTX text itself
   subroutine add_kernels(facts)
      !> The report; lines are added
      type(fact_list_type), intent(inout) :: facts
      character(len=:), allocatable :: ptx
      ptx = kernels_text()
      call facts%add("kernels target", words_after(ptx, ".target "))
      call facts%add("kernels entries", words_after(ptx, ".entry "))
   end subroutine add_kernels

   !> The word behind each `mark`, with blanks between
   pure function words_after(text, mark) result(words)
      !> PTX
      character(len=*), intent(in) :: text
      !> What stands before each word
      character(len=*), intent(in) :: mark
      character(len=:), allocatable :: words
      integer :: first, last, step
      words = ""
      last = 0
      do
         step = index(text(last + 1:), mark)
         if (step == 0) exit
         first = last + step + len(mark)
         last = first + scan(text(first:)//" ", " (,"//new_line("a")) - 2
         if (len(words) > 0) words = words//" "
         words = words//text(first:last)
      end do
   end function words_after

   !> 13010 is 13.1
   pure function cuda_version(number) result(text)
      !> 1000 times the major version, and 10 times the minor
      integer, intent(in) :: number
      character(len=:), allocatable :: text
      text = to_text(number/1000)//"."//to_text(mod(number, 1000)/10)
   end function cuda_version

   !> 91900 is 9.19.0
   pure function in_pairs(number) result(text)
      !> 10000 times the major version, 100 times the minor, and the patch
      integer, intent(in) :: number
      character(len=:), allocatable :: text
      text = to_text(number/10000)//"."//to_text(mod(number, 10000)/100)//"."//to_text(mod(number, 100))
   end function in_pairs

end module cnn_cuda_info_report
