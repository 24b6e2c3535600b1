! SPDX-License-Identifier: MIT
!> Operations on each element by itself.
module cnn_operations_pointwise
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : tensor_type
   use cnn_operations_operation, only : operands_type, operation_type, yes
   implicit none
   private

   !> max(z, 0), by the device; the derivative at 0 is 0, as torch's
   type, extends(operation_type), public :: relu_type
   contains
      procedure, nopass :: on_every_device => yes
      procedure :: forward => relu_forward
      procedure :: backward => relu_backward
   end type relu_type

contains

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
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      call backend%relu_backward(operands%x(1), operands%dy, operands%dx(1), tensor_type(), error)
      call self%name_node(error)
   end subroutine relu_backward

end module cnn_operations_pointwise
