! SPDX-License-Identifier: MIT
!> Which of cuDNN's algorithms a convolution uses: its own first choice, or the fastest measured, that is allowed.
!>
!> Allowed is what fits into the workspace limit, is deterministic where that is asked for, needs no tensor cores
!> in fp32, and sums products: the transforms (FFT, Winograd) round differently, and are left out unless wanted.
!>
!> Source.  cuDNN 9 API reference: cudnnGetConvolution*Algorithm_v7, cudnnFindConvolution*AlgorithmEx.
module cnn_cuda_plans_algorithm
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr, c_size_t
   use cnn_core_device_name, only : device_name_type, math_fp32
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudnn, only : cudnn_type, is_unsupported
   use cnn_cuda_bindings_cudnn_algorithm_interfaces, only : cudnn_algo_perf_type
   use cnn_cuda_bindings_cudnn_enums, only : &
      & CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, &
      & CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, &
      & CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_FFT, &
      & CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_DETERMINISTIC, CUDNN_STATUS_SUCCESS, CUDNN_TENSOR_OP_MATH, &
      & CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
   use cnn_cuda_plans_convolution, only : conv_plan_type
   use cnn_cuda_plans_request, only : conv_data, conv_filter, conv_forward, conv_names
   implicit none
   private

   public :: choose_algorithm

   !> More than any of the three kinds has, each with and without tensor cores
   integer, parameter :: most = 16

contains

   !> Set the algorithm and the size of its workspace. `x`, `w`, `y` and the workspace are used when measuring: the
   !> result of the operation is overwritten
   subroutine choose_algorithm(plan, dnn, handle, operation, name, x, w, y, workspace, workspace_bytes, error)
      !> A plan whose descriptors are read, and whose algorithm and workspace are set
      type(conv_plan_type), intent(inout) :: plan
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Handle of cuDNN, of the current device
      type(c_ptr), intent(in) :: handle
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> x, or dx, *device*; not used without measuring
      type(c_ptr), intent(in) :: x
      !> w, or dw, *device*; not used without measuring
      type(c_ptr), intent(in) :: w
      !> y, or dy, *device*; not used without measuring
      type(c_ptr), intent(in) :: y
      !> Scratch memory for measuring, *device*
      type(c_ptr), intent(in) :: workspace
      !> Size of the scratch memory, in bytes
      integer(c_size_t), intent(in) :: workspace_bytes
      !> An error of cuDNN, or no algorithm is allowed and fits
      type(error_type), allocatable, intent(out) :: error
      type(cudnn_algo_perf_type) :: found(most)
      integer(c_int) :: count, status
      integer :: i

      if (name%measured) then
         call measure(plan, dnn, handle, operation, x, w, y, workspace, workspace_bytes, found, count, error)
      else
         call ask(plan, dnn, handle, operation, found, count, error)
      end if
      if (allocated(error)) return
      do i = 1, min(int(count), most)
         if (.not. allowed(found(i), operation, name)) cycle
         if (usable(plan, dnn, handle, operation, found(i)%algo, name, status)) return
      end do
      ! Else the plainest, which cuDNN need not have listed
      if (usable(plan, dnn, handle, operation, plainest(operation), name, status)) return
      if (.not. is_unsupported(status)) call dnn%check(status, &
         & "workspace of the "//trim(conv_names(operation)), error)
      if (allocated(error)) return
      call fail(error, "cuDNN: no algorithm for this "//trim(conv_names(operation))// &
         & " that is allowed (deterministic, math, transforms) and fits into the workspace limit"//wanted(plan))
   end subroutine choose_algorithm

   !> What would help, where the plainest algorithm is there but for its workspace
   function wanted(plan) result(text)
      !> A plan with the workspace of the plainest algorithm, 0 where cuDNN did not tell
      type(conv_plan_type), intent(in) :: plan
      character(len=:), allocatable :: text
      integer(i8), parameter :: mebibyte = 2_i8**20
      text = ""
      if (plan%workspace_bytes > 0) text = " (the plainest wants workspace="// &
         & to_text((int(plan%workspace_bytes, i8) - 1)/mebibyte + 1)//")"
   end function wanted

   !> What cuDNN expects to be fast, best first; nothing is run
   subroutine ask(plan, dnn, handle, operation, found, count, error)
      !> A plan whose descriptors are read
      type(conv_plan_type), intent(in) :: plan
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Handle of cuDNN, of the current device
      type(c_ptr), intent(in) :: handle
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Algorithms with status, workspace, determinism and math, the best first
      type(cudnn_algo_perf_type), intent(out) :: found(most)
      !> How many there are; at most `most` are in `found`
      integer(c_int), intent(out) :: count
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: status
      select case (operation)
       case (conv_forward)
         status = dnn%get_convolution_forward_algorithm_v7(handle, plan%x, plan%w, plan%conv, plan%y, &
            & int(most, c_int), count, found)
       case (conv_data)
         status = dnn%get_convolution_backward_data_algorithm_v7(handle, plan%w, plan%y, plan%conv, plan%x, &
            & int(most, c_int), count, found)
       case default
         status = dnn%get_convolution_backward_filter_algorithm_v7(handle, plan%x, plan%y, plan%conv, plan%w, &
            & int(most, c_int), count, found)
      end select
      call dnn%check(status, "algorithms of the "//trim(conv_names(operation)), error)
   end subroutine ask

   !> What was fast when it ran; waits for the device
   subroutine measure(plan, dnn, handle, operation, x, w, y, workspace, bytes, found, count, error)
      !> A plan whose descriptors are read
      type(conv_plan_type), intent(in) :: plan
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Handle of cuDNN, of the current device
      type(c_ptr), intent(in) :: handle
      !> x, or dx, *device*
      type(c_ptr), intent(in) :: x
      !> w, or dw, *device*
      type(c_ptr), intent(in) :: w
      !> y, or dy, *device*
      type(c_ptr), intent(in) :: y
      !> Scratch memory, *device*
      type(c_ptr), intent(in) :: workspace
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Size of the scratch memory, in bytes
      integer(c_size_t), intent(in) :: bytes
      !> Algorithms with status, workspace, determinism and math, the best first
      type(cudnn_algo_perf_type), intent(out) :: found(most)
      !> How many there are; at most `most` are in `found`
      integer(c_int), intent(out) :: count
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: status
      select case (operation)
       case (conv_forward)
         status = dnn%find_convolution_forward_algorithm_ex(handle, plan%x, x, plan%w, w, plan%conv, plan%y, y, &
            & int(most, c_int), count, found, workspace, bytes)
       case (conv_data)
         status = dnn%find_convolution_backward_data_algorithm_ex(handle, plan%w, w, plan%y, y, plan%conv, plan%x, x, &
            & int(most, c_int), count, found, workspace, bytes)
       case default
         status = dnn%find_convolution_backward_filter_algorithm_ex(handle, plan%x, x, plan%y, y, plan%conv, plan%w, &
            & w, int(most, c_int), count, found, workspace, bytes)
      end select
      call dnn%check(status, "measuring the algorithms of the "//trim(conv_names(operation)), error)
   end subroutine measure

   pure logical function allowed(found, operation, name)
      !> An algorithm that cuDNN offers
      type(cudnn_algo_perf_type), intent(in) :: found
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Options of the device
      type(device_name_type), intent(in) :: name
      logical :: tensor_cores
      tensor_cores = found%math_type == CUDNN_TENSOR_OP_MATH .or. &
         & found%math_type == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
      allowed = found%status == CUDNN_STATUS_SUCCESS .and. found%memory <= name%workspace_limit
      if (name%deterministic) allowed = allowed .and. found%determinism == CUDNN_DETERMINISTIC
      if (.not. name%transforms) allowed = allowed .and. .not. is_transform(operation, found%algo)
      if (name%math == math_fp32) allowed = allowed .and. .not. tensor_cores
   end function allowed

   !> FFT and Winograd algorithms have the last numbers of each kind, but for filter algorithm 3
   pure logical function is_transform(operation, algorithm)
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Number of the algorithm among those of the operation
      integer(c_int), intent(in) :: algorithm
      select case (operation)
       case (conv_forward)
         is_transform = algorithm >= CUDNN_CONVOLUTION_FWD_ALGO_FFT
       case (conv_data)
         is_transform = algorithm >= CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT
       case default
         is_transform = algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT .or. &
            & algorithm >= CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
      end select
   end function is_transform

   !> Algorithms that are deterministic and sum products
   pure integer(c_int) function plainest(operation)
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      select case (operation)
       case (conv_forward)
         plainest = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
       case (conv_data)
         plainest = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
       case default
         plainest = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
      end select
   end function plainest

   !> Take the algorithm into the plan if its workspace, asked for with our descriptors, is within the limit
   logical function usable(plan, dnn, handle, operation, algorithm, name, status)
      !> A plan whose descriptors are read, and whose algorithm and workspace are set
      type(conv_plan_type), intent(inout) :: plan
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Handle of cuDNN, of the current device
      type(c_ptr), intent(in) :: handle
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Number of the algorithm among those of the operation
      integer(c_int), intent(in) :: algorithm
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What cuDNN said when it was asked
      integer(c_int), intent(out) :: status
      integer(c_size_t) :: bytes
      select case (operation)
       case (conv_forward)
         status = dnn%get_convolution_forward_workspace_size(handle, plan%x, plan%w, plan%conv, plan%y, &
            & algorithm, bytes)
       case (conv_data)
         status = dnn%get_convolution_backward_data_workspace_size(handle, plan%w, plan%y, plan%conv, plan%x, &
            & algorithm, bytes)
       case (conv_filter)
         status = dnn%get_convolution_backward_filter_workspace_size(handle, plan%x, plan%y, plan%conv, plan%w, &
            & algorithm, bytes)
       case default
         status = -1
      end select
      usable = status == CUDNN_STATUS_SUCCESS
      plan%workspace_bytes = 0
      if (usable) plan%workspace_bytes = bytes
      ! cuDNN counts unsigned: a negative number is one of 2**63 and more
      if (usable) usable = bytes >= 0 .and. bytes <= name%workspace_limit
      if (usable) plan%algorithm = algorithm
   end function usable

end module cnn_cuda_plans_algorithm
