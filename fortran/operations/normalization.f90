! SPDX-License-Identifier: MIT
!> Operations that normalise by a mean and a variance.
module cnn_operations_normalization
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_loops_f32, only : normalize_backward_f32 => normalize_backward_loops, &
      & normalize_f32 => normalize_loops
   use cnn_operations_loops_f64, only : normalize_backward_f64 => normalize_backward_loops, &
      & normalize_f64 => normalize_loops
   use cnn_operations_operation, only : operands_type, operation_type, parameter_shape_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Each channel by its mean and (biased) variance over the batch, as torch's in training.
   !> Source: S. Ioffe and C. Szegedy, Batch Normalization, ICML 2015, algorithm 1 and section 3
   type, extends(operation_type), public :: batch_norm2d_type
      integer :: num_features = 1
      real(dp) :: eps = 1.0e-5_dp
   contains
      procedure :: read => norm_read
      procedure :: find_shape => norm_shape
      procedure :: forward => norm_forward
      procedure :: backward => norm_backward
   end type batch_norm2d_type

contains

   subroutine norm_read(self, given, error)
      !> With its name
      class(batch_norm2d_type), intent(inout) :: self
      !> num_features, eps
      type(attributes_type), intent(inout) :: given
      !> What is missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("num_features", self%num_features, error)
      if (.not. allocated(error)) call given%get_real("eps", self%eps, error, 1.0e-5_dp)
      if (allocated(error)) return
      self%parameters = [parameter_shape_type("weight", shape_of([self%num_features])), &
         & parameter_shape_type("bias", shape_of([self%num_features]))]
   end subroutine norm_read

   subroutine norm_shape(self, shapes, y, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> Another number of channels, or channels of one number
      type(error_type), allocatable, intent(out) :: error
      associate (x => shapes(1))
         if (x%rank /= 4 .or. x%extent(3) /= self%num_features) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%num_features)//", h, w)", error)
         else if (all(x%extent([1, 2, 4]) == 1)) then
            call self%refuse("input "//x%text(), "more than one number in each channel", error)
         else
            y = x
         end if
      end associate
   end subroutine norm_shape

   subroutine norm_forward(self, backend, operands, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x, weight and bias
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%require(backend, operands%y, error)
      if (allocated(error)) return
      if (operands%y%dtype == dtype_float32) then
         call normalize_f32(operands%x(1), operands%w(1), operands%w(2), self%eps, operands%y)
      else
         call normalize_f64(operands%x(1), operands%w(1), operands%w(2), self%eps, operands%y)
      end if
   end subroutine norm_forward

   subroutine norm_backward(self, backend, operands, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%require(backend, operands%dy, error)
      if (allocated(error)) return
      associate (to => operands)
         if (to%dy%dtype == dtype_float32) then
            call normalize_backward_f32(to%x(1), to%w(1), to%dy, self%eps, to%dx(1), to%dw(1), to%dw(2))
         else
            call normalize_backward_f64(to%x(1), to%w(1), to%dy, self%eps, to%dx(1), to%dw(1), to%dw(2))
         end if
      end associate
   end subroutine norm_backward

end module cnn_operations_normalization
