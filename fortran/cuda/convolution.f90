! SPDX-License-Identifier: MIT
!> Convolutions on a CUDA device, by cuDNN's convolution calls.
!>
!> Results overwrite: alpha is 1 and beta 0 in every call, but for the bias, which is added.
!> Precision.  With the math fp16 or bf16, float32 operands are rounded to that type, multiplied, summed in float32,
!>             and the result is rounded to that type before it becomes float32 again. Bias and ReLU are float32.
!> Graphs.     cuDNN's graph API would be another file beside this one, with the same three procedures.
!>
!> Source.  cuDNN 9 API reference: cudnnConvolutionForward, cudnnConvolutionBiasActivationForward,
!>          cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter.
module cnn_convolution
   use, intrinsic :: iso_c_binding, only : c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_conv_algorithm, only : choose_algorithm
   use cnn_conv_geometry, only : conv_type
   use cnn_conv_plan, only : conv_data, conv_filter, conv_forward, conv_names, conv_plan_type, free_plan, &
      & make_plan, plan_key
   use cnn_cuda_device, only : cuda_device_type
   use cnn_cuda_pointwise, only : add_bias, convert, relu_forward
   use cnn_cudnn, only : is_bad_parameter, is_unsupported
   use cnn_device_name, only : device_name_type, math_bf16, math_fp16
   use cnn_error, only : error_type
   use cnn_factors, only : one, zero
   use cnn_kinds, only : dtype_bfloat16, dtype_float16, dtype_float32
   use cnn_tensor, only : address_after, aligned, shape_text, tensor_type
   implicit none
   private

   public :: backward_data, backward_filter, forward

contains

   !> y = conv(x, w) + bias, then max(y, 0) with `relu`; no bias when it is empty
   subroutine forward(device, name, conv, x, w, bias, relu, y, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, bias, y
      logical, intent(in) :: relu
      type(error_type), allocatable, intent(out) :: error
      logical :: done

      done = .false.
      if (relu .and. bias%is_allocated() .and. multiplied_as(x%dtype, name%math) == x%dtype) then
        call forward_fused(device, name, conv, x, w, bias, y, done, error)
      end if
      if (done .or. allocated(error)) return
      call convolve(device, name, conv_forward, conv, x, w, y, error)
      if (.not. allocated(error) .and. bias%is_allocated()) call add_bias(device, bias, y, error)
      if (.not. allocated(error) .and. relu) call relu_forward(device, y, y, error)
   end subroutine forward

   !> dx from w and dy
   subroutine backward_data(device, name, conv, w, dy, dx, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: w, dy, dx
      type(error_type), allocatable, intent(out) :: error
      call convolve(device, name, conv_data, conv, dx, w, dy, error)
   end subroutine backward_data

   !> dw from x and dy
   subroutine backward_filter(device, name, conv, x, dy, dw, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, dy, dw
      type(error_type), allocatable, intent(out) :: error
      call convolve(device, name, conv_filter, conv, x, dw, dy, error)
   end subroutine backward_filter

   !> Convolution, bias and ReLU in one call; `done` is false where cuDNN has none for this shape.
   !> The ReLU asked for passes NaN on. Frameworks ask for one that makes NaN 0, and a cuDNN that has only that says
   !> "not supported": then the three calls after each other, for a NaN must stay one
   subroutine forward_fused(device, name, conv, x, w, bias, y, done, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, bias, y
      logical, intent(out) :: done
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: workspace
      integer(c_int) :: status
      integer :: i

      done = .false.
      call find_plan(device, name, conv_forward, conv, x, w, y, i, error)
      if (allocated(error)) return
      if (.not. device%plans(i)%may_fuse) return
      call device%reserve(device%plans(i)%workspace_bytes, workspace, error)
      if (allocated(error)) return
      associate (plan => device%plans(i))
         ! alpha2 = 0: nothing is added, and y stands for the tensor that would be
         status = device%dnn%convolution_bias_activation_forward(device%dnn_handle, one(x%dtype), plan%x, &
            & x%address, plan%w, w%address, plan%conv, plan%algorithm, workspace, plan%workspace_bytes, &
            & zero(x%dtype), plan%y, y%address, plan%bias, bias%address, device%relu, plan%y, y%address)
      end associate
      ! Arguments that are wrong, and not only unwelcome here, fail in the plain call as well
      device%plans(i)%may_fuse = .not. (is_unsupported(status) .or. is_bad_parameter(status))
      if (.not. device%plans(i)%may_fuse) return
      call device%dnn%check(status, "convolution with bias and ReLU", error)
      done = .not. allocated(error)
   end subroutine forward_fused

   !> One of the three operations; its result is y, x or w
   subroutine convolve(device, name, operation, conv, x, w, y, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      integer, intent(in) :: operation
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, y
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: low(3)
      type(c_ptr) :: base, workspace
      integer(c_size_t) :: bytes
      integer :: i, k, dtype
      logical :: rounded

      dtype = multiplied_as(x%dtype, name%math)
      rounded = dtype /= x%dtype
      low = [x, w, y]
      low%dtype = dtype
      call find_plan(device, name, operation, conv, low(1), low(2), low(3), i, error)
      if (allocated(error)) return
      bytes = 0_c_size_t
      if (rounded) bytes = sum([(aligned(low(k)%bytes()), k=1, 3)])
      call device%reserve(bytes + device%plans(i)%workspace_bytes, base, error)
      if (allocated(error)) return
      workspace = address_after(base, bytes)
      if (rounded) call round_operands(device, operation, [x, w, y], base, low, error)
      if (allocated(error)) return
      call execute(device, device%plans(i), operation, low(1), low(2), low(3), workspace, error)
      if (allocated(error) .or. .not. rounded) return
      select case (operation)
       case (conv_forward)
         call convert(device, low(3), y, error)
       case (conv_data)
         call convert(device, low(1), x, error)
       case default
         call convert(device, low(2), w, error)
      end select
   end subroutine convolve

   !> Places for x, w, y in the lower type, from `base` on, and the two operands rounded into theirs
   subroutine round_operands(device, operation, tensors, base, low, error)
      type(cuda_device_type), intent(inout) :: device
      integer, intent(in) :: operation
      type(tensor_type), intent(in) :: tensors(3)
      type(c_ptr), intent(in) :: base
      type(tensor_type), intent(inout) :: low(3)
      type(error_type), allocatable, intent(out) :: error
      integer, parameter :: result_of(3) = [3, 1, 2]
      integer(c_size_t) :: bytes
      integer :: k
      bytes = 0_c_size_t
      do k = 1, 3
         low(k)%address = address_after(base, bytes)
         bytes = bytes + aligned(low(k)%bytes())
         if (k /= result_of(operation)) call convert(device, tensors(k), low(k), error)
         if (allocated(error)) return
      end do
   end subroutine round_operands

   subroutine execute(device, plan, operation, x, w, y, workspace, error)
      type(cuda_device_type), intent(in) :: device
      type(conv_plan_type), intent(in) :: plan
      integer, intent(in) :: operation
      type(tensor_type), intent(in) :: x, w, y
      type(c_ptr), intent(in) :: workspace
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: alpha, beta
      integer(c_int) :: status

      alpha = one(x%dtype)
      beta = zero(x%dtype)
      select case (operation)
       case (conv_forward)
         status = device%dnn%convolution_forward(device%dnn_handle, alpha, plan%x, x%address, plan%w, w%address, &
            & plan%conv, plan%algorithm, workspace, plan%workspace_bytes, beta, plan%y, y%address)
       case (conv_data)
         status = device%dnn%convolution_backward_data(device%dnn_handle, alpha, plan%w, w%address, plan%y, y%address, &
            & plan%conv, plan%algorithm, workspace, plan%workspace_bytes, beta, plan%x, x%address)
       case default
         status = device%dnn%convolution_backward_filter(device%dnn_handle, alpha, plan%x, x%address, plan%y, &
            & y%address, plan%conv, plan%algorithm, workspace, plan%workspace_bytes, beta, plan%w, w%address)
      end select
      call device%dnn%check(status, "convolution, "//trim(conv_names(operation)), error)
   end subroutine execute

   !> The number of the plan for these tensors, made when it is the first time
   subroutine find_plan(device, name, operation, conv, x, w, y, i, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      integer, intent(in) :: operation
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, y
      integer, intent(out) :: i
      type(error_type), allocatable, intent(out) :: error
      type(conv_plan_type) :: plan

      plan%key = plan_key(operation, x%dtype, name, conv, x%extent, w%extent)
      do i = 1, device%plan_count
         if (all(device%plans(i)%key == plan%key)) return
      end do
      call make_plan(plan, device%dnn, x%dtype, name%math, conv, x%extent, w%extent, y%extent, error)
      if (.not. allocated(error)) call choose(device, name, operation, plan, x, w, y, error)
      if (allocated(error)) then
         error%message = error%message//"; input "//shape_text(x%extent)//", weight "//shape_text(w%extent)
         call free_plan(plan, device%dnn)
         return
      end if
      call keep_plan(device, plan)
      i = device%plan_count
   end subroutine find_plan

   !> The algorithm; measuring needs memory for tensors, which may not have any yet, and for the workspace
   subroutine choose(device, name, operation, plan, x, w, y, error)
      type(cuda_device_type), intent(inout) :: device
      type(device_name_type), intent(in) :: name
      integer, intent(in) :: operation
      type(conv_plan_type), intent(inout) :: plan
      type(tensor_type), intent(in) :: x, w, y
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: free, total, tensors, bytes
      type(c_ptr) :: base, at_w, at_y

      base = c_null_ptr
      tensors = 0_c_size_t
      bytes = 0_c_size_t
      if (name%measured) then
         call device%check(device%rt%mem_get_info(free, total), "cudaMemGetInfo", error)
         if (allocated(error)) return
         tensors = aligned(x%bytes()) + aligned(w%bytes()) + aligned(y%bytes())
         bytes = min(int(name%workspace_limit, c_size_t), free/2)
         call device%reserve(tensors + bytes, base, error)
         if (allocated(error)) return
      end if
      at_w = address_after(base, aligned(x%bytes()))
      at_y = address_after(at_w, aligned(w%bytes()))
      call choose_algorithm(plan, device%dnn, device%dnn_handle, operation, name, base, at_w, at_y, &
         & address_after(base, tensors), bytes, error)
   end subroutine choose

   subroutine keep_plan(device, plan)
      type(cuda_device_type), intent(inout) :: device
      type(conv_plan_type), intent(in) :: plan
      type(conv_plan_type), allocatable :: larger(:)
      if (.not. allocated(device%plans)) allocate (device%plans(16))
      if (device%plan_count == size(device%plans)) then
         allocate (larger(2*size(device%plans)))
         larger(:device%plan_count) = device%plans
         call move_alloc(larger, device%plans)
      end if
      device%plan_count = device%plan_count + 1
      device%plans(device%plan_count) = plan
   end subroutine keep_plan

   !> The element type in which operands of this one are multiplied
   pure integer function multiplied_as(dtype, math)
      integer, intent(in) :: dtype, math
      multiplied_as = dtype
      if (dtype /= dtype_float32) return
      if (math == math_fp16) multiplied_as = dtype_float16
      if (math == math_bf16) multiplied_as = dtype_bfloat16
   end function multiplied_as

end module cnn_convolution
