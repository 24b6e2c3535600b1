! SPDX-License-Identifier: MIT
!> The CPU with the convolution written as plain loops: device "naive", for tests.
module cnn_naive_backend
   use cnn_core_backend, only : backward_step_by_step, forward_step_by_step, one_after_the_other
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_float32
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_backend, only : backward_relu_apart, cpu_type
   use cnn_naive_f32, only : &
      & data_f32 => naive_backward_data, filter_f32 => naive_backward_filter, forward_f32 => naive_forward
   use cnn_naive_f64, only : &
      & data_f64 => naive_backward_data, filter_f64 => naive_backward_filter, forward_f64 => naive_forward
   implicit none
   private

   type, extends(cpu_type), public :: naive_type
   contains
      procedure :: open => naive_open
      procedure :: conv_forward => naive_conv_forward
      procedure :: conv_backward_data => naive_conv_backward_data
      procedure :: conv_backward_filter => naive_conv_backward_filter
      procedure :: conv_backward_relu => naive_conv_backward_relu
      procedure :: forward_sequence => naive_forward_sequence
      procedure :: backward_sequence => naive_backward_sequence
      procedure :: sequence_algorithm => naive_sequence_algorithm
   end type naive_type

contains

   !> As the CPU does, but nothing is fused
   subroutine naive_open(self, error)
      class(naive_type), intent(inout) :: self
      !> Says that the environment asks for kernels, or lanes, that do not exist
      type(error_type), allocatable, intent(out) :: error
      call self%cpu_type%open(error)
      self%has_slopes = .false.
      self%takes_channels_last = .false.
   end subroutine naive_open

   subroutine naive_conv_forward(self, step, error)
      class(naive_type), intent(in) :: self
      !> Convolution with bias, where that is not empty, and ReLU; its `y` is overwritten
      type(conv_step_type), intent(in) :: step
      type(error_type), allocatable, intent(out) :: error
      call self%require(step%x, error)
      if (allocated(error)) return
      if (step%x%dtype == dtype_float32) then
         call forward_f32(step%conv, step%x, step%w, step%bias, step%y)
      else
         call forward_f64(step%conv, step%x, step%w, step%bias, step%y)
      end if
      if (step%relu) call self%relu_forward(step%y, step%y, error)
   end subroutine naive_conv_forward

   subroutine naive_conv_backward_data(self, conv, w, dy, dx, error)
      class(naive_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (w, h, c, n), is overwritten
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      call self%require(dy, error)
      if (allocated(error)) return
      if (dy%dtype == dtype_float32) then
         call data_f32(conv, w, dy, dx, error)
      else
         call data_f64(conv, w, dy, dx, error)
      end if
   end subroutine naive_conv_backward_data

   subroutine naive_conv_backward_filter(self, conv, x, dy, dw, error)
      class(naive_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
      type(tensor_type), intent(in) :: dw
      type(error_type), allocatable, intent(out) :: error
      call self%require(x, error)
      if (allocated(error)) return
      if (x%dtype == dtype_float32) then
         call filter_f32(conv, x, dy, dw)
      else
         call filter_f64(conv, x, dy, dw)
      end if
   end subroutine naive_conv_backward_filter

   subroutine naive_conv_backward_relu(self, conv, w, dy, a, db, error)
      class(naive_type), intent(inout) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Output of the ReLU and input of the convolution (w, h, c, n); becomes the gradient with respect to the ReLU's
      !> input
      type(tensor_type), intent(in) :: a
      !> Sums of that gradient over n, h and w (c, 1, 1, 1), is overwritten; empty when not wanted
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      call backward_relu_apart(self, conv, w, dy, a, db, error)
   end subroutine naive_conv_backward_relu

   subroutine naive_forward_sequence(self, steps, error)
      class(naive_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      type(error_type), allocatable, intent(out) :: error
      call forward_step_by_step(self, steps, error)
   end subroutine naive_forward_sequence

   subroutine naive_backward_sequence(self, steps, dy, error)
      class(naive_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> Gradient with respect to the last output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      call backward_step_by_step(self, steps, dy, error)
   end subroutine naive_backward_sequence

   function naive_sequence_algorithm(self, steps) result(text)
      class(naive_type), intent(in) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      character(len=:), allocatable :: text
      text = one_after_the_other(self, steps)
   end function naive_sequence_algorithm

end module cnn_naive_backend
