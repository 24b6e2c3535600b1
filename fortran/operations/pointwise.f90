! SPDX-License-Identifier: MIT
!> Operations on each element by itself.
module cnn_operations_pointwise
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, sp
   use cnn_core_tensor, only : same_memory, same_shape, shape_text, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   implicit none
   private

   !> max(z, 0), by the device; the derivative at 0 is 0, as torch's
   type, extends(operation_type), public :: relu_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: works_in_place => yes
      procedure :: read => relu_read
      procedure :: forward => relu_forward
      procedure :: backward => relu_backward
   end type relu_type

   !> z where it is positive, else negative_slope * z
   type, extends(operation_type), public :: leaky_relu_type
      real(dp) :: negative_slope = 0.01_dp
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: works_in_place => yes
      procedure :: read => leaky_read
      procedure :: forward => leaky_forward
      procedure :: backward => leaky_backward
   end type leaky_relu_type

   !> 1 / (1 + exp(-z))
   type, extends(operation_type), public :: sigmoid_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: works_in_place => yes
      procedure :: forward => sigmoid_forward
      procedure :: backward => sigmoid_backward
   end type sigmoid_type

   !> The hyperbolic tangent
   type, extends(operation_type), public :: tanh_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: works_in_place => yes
      procedure :: forward => tanh_forward
      procedure :: backward => tanh_backward
   end type tanh_type

   !> x / (1 - p) where the mask is 1, else 0; x after training
   type, extends(operation_type), public :: dropout_type
      real(dp) :: p = 0.0_dp
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure, nopass :: has_mask => yes
      procedure :: read => dropout_read
      procedure :: forward => dropout_forward
      procedure :: backward => dropout_backward
   end type dropout_type

contains

   subroutine dropout_read(self, given, error)
      !> With its name
      class(dropout_type), intent(inout) :: self
      !> p
      type(attributes_type), intent(inout) :: given
      !> Missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_real("p", self%p, error)
      if (allocated(error)) return
      if (self%p >= 1.0_dp) call self%refuse("p "//to_text(self%p), "a number from 0 on, below 1", error)
   end subroutine dropout_read

   subroutine dropout_forward(self, backend, operands, error)
      !> The node
      class(dropout_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x and the mask
      type(operands_type), intent(in) :: operands
      !> Tensors without memory, or a mask of another shape
      type(error_type), allocatable, intent(out) :: error
      call drop(self, backend, operands%x(1), operands%mask, operands%y, error)
   end subroutine dropout_forward

   subroutine dropout_backward(self, backend, operands, error)
      !> The node
      class(dropout_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy and the mask
      type(operands_type), intent(in) :: operands
      !> Tensors without memory, or a mask of another shape
      type(error_type), allocatable, intent(out) :: error
      call drop(self, backend, operands%dy, operands%mask, operands%dx(1), error)
   end subroutine dropout_backward

   subroutine drop(self, backend, x, mask, y, error)
      !> The node
      class(dropout_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> What is dropped or kept
      type(tensor_type), intent(in) :: x
      !> 0 and 1
      type(tensor_type), intent(in) :: mask
      !> What is kept, scaled; is overwritten
      type(tensor_type), intent(in) :: y
      !> Tensors without memory, or a mask of another shape
      type(error_type), allocatable, intent(out) :: error
      if (self%evaluates) then
         if (.not. same_memory(x, y)) call self%run(backend, "copy", [x, y], error)
      else if (same_shape(x, mask)) then
         call self%run(backend, "dropout", [x, mask, y], error, reals=[1.0_dp/(1.0_dp - self%p)])
      else
         call self%refuse("mask "//shape_text(mask%extent), "the input's shape "//shape_text(x%extent), error)
      end if
   end subroutine drop

   subroutine relu_read(self, given, error)
      !> With its name
      class(relu_type), intent(inout) :: self
      !> Nothing
      type(attributes_type), intent(inout) :: given
      !> Any is unknown
      type(error_type), allocatable, intent(out) :: error
      self%relu_slope = 0.0_dp
      given%node = self%name
      call given%check_known(error)
   end subroutine relu_read

   subroutine relu_forward(self, backend, operands, error)
      !> The node
      class(relu_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      call backend%relu_forward(operands%x(1), operands%y, error)
      call self%name_node(error)
   end subroutine relu_forward

   subroutine relu_backward(self, backend, operands, error)
      !> The node
      class(relu_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy and y, which is positive where x is
      type(operands_type), intent(in) :: operands
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      call backend%relu_backward(operands%y, operands%dy, operands%dx(1), tensor_type(), error)
      call self%name_node(error)
   end subroutine relu_backward

   subroutine leaky_read(self, given, error)
      !> With its name
      class(leaky_relu_type), intent(inout) :: self
      !> negative_slope
      type(attributes_type), intent(inout) :: given
      !> Out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_real("negative_slope", self%negative_slope, error, 0.01_dp)
      ! With a slope of 0, in either precision, it is a ReLU, but for the sign of 0 and for infinities
      if (self%negative_slope > tiny(1.0_sp)) self%relu_slope = self%negative_slope
   end subroutine leaky_read

   subroutine leaky_forward(self, backend, operands, error)
      !> The node
      class(leaky_relu_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "leaky_relu", [operands%x(1), operands%y], error, reals=[self%negative_slope])
   end subroutine leaky_forward

   subroutine leaky_backward(self, backend, operands, error)
      !> The node
      class(leaky_relu_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy and y, which is positive where x is: the slope is not negative
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "leaky_relu_backward", [operands%y, operands%dy, operands%dx(1)], error, &
         & reals=[self%negative_slope])
   end subroutine leaky_backward

   subroutine sigmoid_forward(self, backend, operands, error)
      !> The node
      class(sigmoid_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "sigmoid", [operands%x(1), operands%y], error)
   end subroutine sigmoid_forward

   subroutine sigmoid_backward(self, backend, operands, error)
      !> The node
      class(sigmoid_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy and y
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "sigmoid_backward", [operands%y, operands%dy, operands%dx(1)], error)
   end subroutine sigmoid_backward

   subroutine tanh_forward(self, backend, operands, error)
      !> The node
      class(tanh_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "tanh", [operands%x(1), operands%y], error)
   end subroutine tanh_forward

   subroutine tanh_backward(self, backend, operands, error)
      !> The node
      class(tanh_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy and y
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, "tanh_backward", [operands%y, operands%dy, operands%dx(1)], error)
   end subroutine tanh_backward

end module cnn_operations_pointwise
