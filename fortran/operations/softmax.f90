! SPDX-License-Identifier: MIT
!> Operations that make probabilities of the numbers of all channels.
module cnn_operations_softmax
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : softmax_backward_call, softmax_call
   use cnn_core_error, only : error_type
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   !> exp(x) / sum(exp(x)) over the channels, torch's axis 1
   type, extends(operation_type), public :: softmax_type
      !> Whether it is the logarithm that is wanted
      logical :: logarithm = .false.
   contains
      procedure, nopass :: reads_x => no
      procedure :: find_shape => softmax_shape
      procedure :: forward => softmax_forward
      procedure :: backward => softmax_backward
   end type softmax_type

contains

   subroutine softmax_shape(self, shapes, y, error)
      class(softmax_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> It has no channels
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (y%rank < 2) call self%refuse("input "//y%text(), "two dimensions or more", error)
   end subroutine softmax_shape

   subroutine softmax_forward(self, backend, operands, error)
      class(softmax_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, softmax_call(operands%x(1), operands%rank - 1, self%logarithm, operands%y), error)
   end subroutine softmax_forward

   subroutine softmax_backward(self, backend, operands, error)
      class(softmax_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and y
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, softmax_backward_call(operands%y, operands%dy, operands%rank - 1, self%logarithm, &
         & operands%dx(1)), error)
   end subroutine softmax_backward

end module cnn_operations_softmax
