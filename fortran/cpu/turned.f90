! SPDX-License-Identifier: MIT
!> Convolutions of channels_last tensors that go faster in C order: with few channels in a group most lanes of a vector of
!> channels would be empty. Tensors are turned, convolved, and turned back.
module cnn_cpu_turned
   use cnn_core_backend, only : backend_type
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail, fail_not_finite
   use cnn_core_tensor, only : shape_text, tensor_type
   use cnn_cpu_kernels_memory, only : allocate_aligned, c_free
   use cnn_cpu_kernels_table, only : kernels_type
   implicit none
   private

   public :: data_gradient_turned, filter_gradient_turned, forward_turned, goes_turned

contains

   !> Whether vectors of the channels of a group, of x or of dy, would be half empty or more
   pure logical function goes_turned(conv, x, dy, lanes)
      !> Groups of the convolution
      type(conv_type), intent(in) :: conv
      !> Channels of the input
      integer, intent(in) :: x
      !> Channels of the output
      integer, intent(in) :: dy
      !> Elements of a vector
      integer, intent(in) :: lanes
      goes_turned = 2*max(x, dy)/conv%groups <= lanes
      ! Where every channel is a group, lanes are of many groups
      if (conv%groups > 1 .and. x == conv%groups .and. dy == conv%groups) goes_turned = .false.
   end function goes_turned

   !> y = conv(x, w) + bias, and ReLU
   subroutine forward_turned(device, kernels, step, error)
      !> The device
      class(backend_type), intent(in) :: device
      !> Its kernels
      type(kernels_type), intent(in) :: kernels
      !> The convolution, its tensors channels_last
      type(conv_step_type), intent(in) :: step
      !> Says that there is no memory, or what is not finite
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: turned
      logical :: finite
      turned = step
      call turn_in(kernels, step%x, "input", turned%x, error)
      if (.not. allocated(error)) call turn_in(kernels, step%w, "weight", turned%w, error)
      if (.not. allocated(error)) call like(step%y, turned%y, error)
      if (.not. allocated(error)) call device%conv_forward(turned, error)
      if (.not. allocated(error)) call kernels%turn(turned%y, step%y, finite)
      call give_back(step%x, turned%x)
      call give_back(step%w, turned%w)
      call give_back(step%y, turned%y)
   end subroutine forward_turned

   !> dx = gradient with respect to the input
   subroutine data_gradient_turned(device, kernels, conv, w, dy, dx, error)
      !> The device
      class(backend_type), intent(in) :: device
      !> Its kernels
      type(kernels_type), intent(in) :: kernels
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (w, h, c, n), is overwritten
      type(tensor_type), intent(in) :: dx
      !> Says that there is no memory, or what is not finite
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: ws, dys, dxs
      logical :: finite
      call turn_in(kernels, w, "weight", ws, error)
      if (.not. allocated(error)) call turn_in(kernels, dy, "grad_output", dys, error)
      if (.not. allocated(error)) call like(dx, dxs, error)
      if (.not. allocated(error)) call device%conv_backward_data(conv, ws, dys, dxs, error)
      if (.not. allocated(error)) call kernels%turn(dxs, dx, finite)
      call give_back(w, ws)
      call give_back(dy, dys)
      call give_back(dx, dxs)
   end subroutine data_gradient_turned

   !> dw = gradient with respect to the filters
   subroutine filter_gradient_turned(device, kernels, conv, x, dy, dw, error)
      !> The device
      class(backend_type), intent(in) :: device
      !> Its kernels
      type(kernels_type), intent(in) :: kernels
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
      type(tensor_type), intent(in) :: dw
      !> Says that there is no memory, or what is not finite
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: xs, dys, dws
      logical :: finite
      call turn_in(kernels, x, "input", xs, error)
      if (.not. allocated(error)) call turn_in(kernels, dy, "grad_output", dys, error)
      if (.not. allocated(error)) call like(dw, dws, error)
      if (.not. allocated(error)) call device%conv_backward_filter(conv, xs, dys, dws, error)
      if (.not. allocated(error) .and. dw%channels_last) call kernels%turn(dws, dw, finite)
      call give_back(x, xs)
      call give_back(dy, dys)
      call give_back(dw, dws)
   end subroutine filter_gradient_turned

   !> A channels_last tensor in C order, in memory of its own; one that is in C order as it is
   subroutine turn_in(kernels, tensor, name, turned, error)
      !> The device's kernels
      type(kernels_type), intent(in) :: kernels
      !> Tensor that is read
      type(tensor_type), intent(in) :: tensor
      !> What the caller calls it
      character(len=*), intent(in) :: name
      !> The same in C order
      type(tensor_type), intent(out) :: turned
      !> Says that there is no memory, or that it is not finite
      type(error_type), allocatable, intent(out) :: error
      logical :: finite
      call like(tensor, turned, error)
      if (allocated(error) .or. .not. tensor%channels_last) return
      call kernels%turn(tensor, turned, finite)
      if (.not. finite) call fail_not_finite(error, name)
   end subroutine turn_in

   !> Memory for a channels_last tensor in C order; one that is in C order as it is
   subroutine like(tensor, turned, error)
      !> The tensor
      type(tensor_type), intent(in) :: tensor
      !> One of the same shape in C order
      type(tensor_type), intent(out) :: turned
      !> Says that there is no memory
      type(error_type), allocatable, intent(out) :: error
      turned = tensor
      if (.not. tensor%channels_last) return
      turned%channels_last = .false.
      turned%address = allocate_aligned(tensor%bytes())
      if (.not. turned%is_allocated()) call fail(error, "no host memory for a tensor "//shape_text(tensor%extent))
   end subroutine like

   !> Free what `like` has allocated
   subroutine give_back(tensor, turned)
      !> The tensor
      type(tensor_type), intent(in) :: tensor
      !> The same in C order
      type(tensor_type), intent(in) :: turned
      if (tensor%channels_last .and. turned%is_allocated() .and. .not. turned%channels_last) call c_free(turned%address)
   end subroutine give_back

end module cnn_cpu_turned
