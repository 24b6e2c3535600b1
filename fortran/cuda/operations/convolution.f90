! SPDX-License-Identifier: MIT
!> Convolutions on a CUDA device, by plans of cuDNN's graph API; those with few channels by cnn_cuda_operations_direct.
!> A data gradient may be a forward convolution with turned filters.
!>
!> Precision.  With the math fp16 or bf16, float32 operands are rounded to that type, multiplied, summed in float32,
!>             and the result is rounded to that type before it becomes float32 again. Bias and ReLU are float32.
!>
!> Source.  cuDNN 9 API reference: cudnnBackendExecute.
module cnn_cuda_operations_convolution
   use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : address_after, aligned, extent_of, tensor_type
   use cnn_cuda_device_plans, only : find_plan
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_direct, only : arranged_bytes, direct_data, direct_filter, direct_forward, turn_filters
   use cnn_cuda_operations_pointwise, only : add_bias, convert, relu_forward
   use cnn_cuda_plans_direct, only : as_forward, by_forward, is_direct
   use cnn_cuda_plans_graph, only : id_bias, id_w, id_x, id_y
   use cnn_cuda_plans_graph_plan, only : run_graph_plan
   use cnn_cuda_plans_request, only : conv_data, conv_filter, conv_forward, conv_request_type, multiplied_as
   implicit none
   private

   public :: backward_data, backward_filter, forward

contains

   !> y = conv(x, w) + bias, then max(y, 0) with `relu`; no bias when it is empty
   subroutine forward(device, name, conv, x, w, bias, relu, y, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filter (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: bias
      !> Result (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
      !> Whether negative results become 0
      logical, intent(in) :: relu
      type(error_type), allocatable, intent(out) :: error
      logical :: done

      if (is_direct(name, conv_forward, conv, x%dtype, x%extent, w%extent, y%extent)) then
         call direct_forward(device, conv, x, w, bias, relu, y, error)
         return
      end if
      done = .false.
      if ((relu .or. bias%is_allocated()) .and. multiplied_as(x%dtype, name%math) == x%dtype) then
        call forward_fused(device, name, conv, x, w, bias, relu, y, done, error)
      end if
      if (done .or. allocated(error)) return
      call convolve(device, name, conv_forward, conv, x, w, y, error)
      if (allocated(error)) return
      if (bias%is_allocated()) call add_bias(device, bias, y, error)
      if (allocated(error)) return
      if (relu) call relu_forward(device, y, y, error)
   end subroutine forward

   !> dx from w and dy
   subroutine backward_data(device, name, conv, w, dy, dx, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filter (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: w
      !> Gradient of y (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Gradient of x (w, h, c, n), *device*
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      type(conv_request_type) :: request
      request = conv_request_type(operation=conv_data, dtype=dy%dtype, conv=conv, x=dx%extent(:4), w=w%extent(:4), &
         & y=dy%extent(:4))
      if (by_forward(name, request)) then
         call data_by_forward(device, name, as_forward(request), w, dy, dx, error)
      else if (is_direct(name, conv_data, conv, dy%dtype, dx%extent, w%extent, dy%extent)) then
         call direct_data(device, conv, w, dy, dx, error)
      else
         call convolve(device, name, conv_data, conv, dx, w, dy, error)
      end if
   end subroutine backward_data

   !> dx as a convolution of dy with the filters turned
   subroutine data_by_forward(device, name, request, w, dy, dx, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> That convolution
      type(conv_request_type), intent(in) :: request
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Gradient of y (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Gradient of x (w, h, c, n), *device*
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: turned
      integer(c_size_t) :: bytes
      integer :: i
      call find_plan(device, name, request, i, error)
      if (allocated(error)) return
      turned = w
      turned%extent = extent_of(request%w)
      bytes = aligned(arranged_bytes(w))
      call device%reserve(bytes + device%plans(i)%graph%workspace_bytes, turned%address, error)
      if (allocated(error)) return
      call turn_filters(device, w, turned%address, error)
      if (allocated(error)) return
      call execute(device, i, dy, turned, dx, address_after(turned%address, bytes), error)
   end subroutine data_by_forward

   !> dw from x and dy
   subroutine backward_filter(device, name, conv, x, dy, dw, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Gradient of y (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Gradient of w (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: dw
      type(error_type), allocatable, intent(out) :: error
      if (is_direct(name, conv_filter, conv, x%dtype, x%extent, dw%extent, dy%extent)) then
         call direct_filter(device, name, conv, x, dy, dw, error)
      else
         call convolve(device, name, conv_filter, conv, x, dw, dy, error)
      end if
   end subroutine backward_filter

   !> Convolution, bias and ReLU, or two of them, in one plan; `done` is false where cuDNN has none for this shape.
   !> The ReLU asked for passes NaN on. Frameworks ask for one that makes NaN 0, and a cuDNN that has only that says
   !> "not supported": then the three after each other, for a NaN must stay one
   subroutine forward_fused(device, name, conv, x, w, bias, relu, y, done, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filter (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: bias
      !> Result (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
      !> Whether negative results become 0
      logical, intent(in) :: relu
      !> Whether y is filled
      logical, intent(out) :: done
      type(error_type), allocatable, intent(out) :: error
      integer, parameter :: ids(4) = [id_x, id_w, id_y, id_bias]
      type(conv_request_type) :: request
      type(c_ptr) :: workspace, addresses(4)
      logical :: refused
      integer :: i

      done = .false.
      request = conv_request_type(operation=conv_forward, dtype=x%dtype, bias=bias%is_allocated(), relu=relu, &
         & conv=conv, x=x%extent(:4), w=w%extent(:4), y=y%extent(:4))
      call find_plan(device, name, request, i, error)
      if (allocated(error) .or. i == 0) return
      if (.not. device%plans(i)%may_fuse) return
      call device%reserve(int(device%plans(i)%graph%workspace_bytes, c_size_t), workspace, error)
      if (allocated(error)) return
      addresses = [x%address, w%address, y%address, bias%address]
      call run_graph_plan(device%dnn, device%dnn_handle, device%plans(i)%graph, ids(:merge(4, 3, request%bias)), &
         & addresses(:merge(4, 3, request%bias)), workspace, error, refused)
      device%plans(i)%may_fuse = .not. refused
      done = .not. (refused .or. allocated(error))
   end subroutine forward_fused

   !> One of the three operations; its result is y, x or w
   subroutine convolve(device, name, operation, conv, x, w, y, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, or its gradient (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filter, or its gradient (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: w
      !> Result, or its gradient (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
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
      call find_plan(device, name, conv_request_type(operation=operation, dtype=dtype, conv=conv, x=x%extent(:4), &
         & w=w%extent(:4), y=y%extent(:4)), i, error)
      if (allocated(error)) return
      bytes = 0_c_size_t
      if (rounded) bytes = sum([(aligned(low(k)%bytes()), k=1, 3)])
      call device%reserve(bytes + device%plans(i)%graph%workspace_bytes, base, error)
      if (allocated(error)) return
      workspace = address_after(base, bytes)
      if (rounded) call round_operands(device, operation, [x, w, y], base, low, error)
      if (allocated(error)) return
      call execute(device, i, low(1), low(2), low(3), workspace, error)
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
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> x, w, y, *device*
      type(tensor_type), intent(in) :: tensors(3)
      !> Scratch memory for all three, *device*
      type(c_ptr), intent(in) :: base
      !> x, w, y in the lower type; their addresses are set
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

   !> By plan i
   subroutine execute(device, i, x, w, y, workspace, error)
      type(cuda_device_type), intent(inout) :: device
      !> Number of the plan in `device%plans`
      integer, intent(in) :: i
      !> Input, or its gradient (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filter, or its gradient (s, r, c/groups, k), *device*
      type(tensor_type), intent(in) :: w
      !> Result, or its gradient (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
      !> Scratch memory, *device*, as large as the plan wants
      type(c_ptr), intent(in) :: workspace
      type(error_type), allocatable, intent(out) :: error
      call run_graph_plan(device%dnn, device%dnn_handle, device%plans(i)%graph, [id_x, id_w, id_y], &
         & [x%address, w%address, y%address], workspace, error)
   end subroutine execute

end module cnn_cuda_operations_convolution
