! SPDX-License-Identifier: MIT
!> What cuDNN and its like say through our interfaces, for tests/cuda/test_cudnn_without_gpu.py; nothing here needs a GPU.
!>
!>     cudnn_program libraries    where each library was found, and its version, or why not
!>     cudnn_program cudnn        only cuDNN
!>     cudnn_program cudart       only the runtime
!>     cudnn_program driver       only the driver
!>     cudnn_program errors       statuses and messages
!>     cudnn_program handle       devices, and what becomes of cudnnCreate
program cudnn_program
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_sizeof
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_cudart, only : cuda_pointer_attributes_type, cudart_type
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_STATUS_SUCCESS
   use cnn_cuda_bindings_driver, only : cuda_driver_type
   use cnn_cuda_bindings_shared_library, only : c_text
   implicit none

   type(cudart_type) :: rt
   type(cudnn_type) :: dnn
   type(cuda_driver_type) :: driver
   type(error_type), allocatable :: error
   character(len=20) :: what

   call get_command_argument(1, what)
   select case (what)
    case ("libraries")
      call load_cudart()
      call load_cudnn()
      call load_driver()
      call print_sizes()
    case ("cudnn")
      call load_cudnn()
    case ("cudart")
      call load_cudart()
    case ("driver")
      call load_driver()
    case ("errors")
      call dnn%load(error)
      call report("cudnn", error)
      call print_errors()
    case ("handle")
      call rt%load(error)
      call report("cudart", error)
      call dnn%load(error)
      call report("cudnn", error)
      call print_handle()
    case default
      error stop "cudnn_program: unknown command"
   end select

contains

   !> The message, or nothing for success
   subroutine report(name, error)
      character(len=*), intent(in) :: name
      type(error_type), allocatable, intent(in) :: error
      if (allocated(error)) print "(a)", name//" error: "//error%message
   end subroutine report

   !> A library that was refused once is refused again, in the same words
   subroutine compare(name, first, second)
      character(len=*), intent(in) :: name, first
      type(error_type), allocatable, intent(in) :: second
      if (.not. allocated(second)) then
         print "(a)", name//": no error the second time"
      else if (second%message /= first) then
         print "(a)", name//" error the second time: "//second%message
      end if
   end subroutine compare

   subroutine load_cudart()
      character(len=:), allocatable :: refusal
      call rt%load(error)
      call report("cudart", error)
      if (allocated(error)) then
         refusal = error%message
         call rt%load(error)
         call compare("cudart", refusal, error)
         return
      end if
      print "(a, a, 1x, i0)", "cudart: ", rt%library%path, rt%version
   end subroutine load_cudart

   subroutine load_cudnn()
      character(len=:), allocatable :: refusal
      call dnn%load(error)
      call report("cudnn", error)
      if (allocated(error)) then
         refusal = error%message
         call dnn%load(error)
         call compare("cudnn", refusal, error)
         return
      end if
      print "(a, a, 1x, i0, 1x, i0)", "cudnn: ", dnn%library%path, dnn%version, dnn%cuda_version
      call dnn%load(error)
      call report("cudnn, a second time", error)
      call dnn%check_cuda(dnn%cuda_version/1000*1000 + 990, error)
      call report("cudnn with its CUDA", error)
      call dnn%check_cuda(11080, error)
      call report("cudnn with CUDA 11", error)
   end subroutine load_cudnn

   subroutine load_driver()
      call driver%load(error)
      call report("driver", error)
      if (.not. allocated(error)) print "(a, a)", "driver: ", driver%library%path
   end subroutine load_driver

   !> As this compiler lays them out
   subroutine print_sizes()
      type(cuda_pointer_attributes_type) :: attributes
      print "(a, i0)", "sizes: ", c_sizeof(attributes)
   end subroutine print_sizes

   subroutine print_errors()
      integer(c_int), parameter :: statuses(6) = [0, 1001, 2000, 3000, 4003, 5000]
      integer :: i
      do i = 1, size(statuses)
         print "(a, i0, a, a)", "status ", statuses(i), ": ", c_text(dnn%get_error_string(statuses(i)))
      end do
      call dnn%check(CUDNN_STATUS_SUCCESS, "nothing", error)
      call report("success", error)
      call dnn%check(dnn%backend_finalize(c_null_ptr), "finish a descriptor", error)
      call report("descriptor", error)
   end subroutine print_errors

   subroutine print_handle()
      type(c_ptr) :: handle
      integer(c_int) :: count
      count = 0
      call rt%check(rt%get_device_count(count), "count the devices", error)
      call report("count", error)
      if (allocated(error)) count = 0
      print "(a, i0)", "devices: ", count
      handle = c_null_ptr
      call dnn%check(dnn%create(handle), "create the handle", error)
      call report("handle", error)
      if (allocated(error)) return
      print "(a, l1)", "created: ", c_associated(handle)
      call dnn%check(dnn%destroy(handle), "destroy the handle", error)
      call report("destroy", error)
   end subroutine print_handle

end program cudnn_program
