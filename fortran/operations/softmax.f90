! SPDX-License-Identifier: MIT
!> Operations that make probabilities of the numbers along a dimension.
module cnn_operations_softmax
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : softmax_backward_call, softmax_call
   use cnn_core_error, only : error_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_moves, only : fortran_axis, read_axis
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   !> exp(x) / sum(exp(x)) along a dimension, the channels where none is given
   type, extends(operation_type), public :: softmax_type
      !> Whether it is the logarithm that is wanted
      logical :: logarithm = .false.
      !> Torch's
      integer :: dim = 1
   contains
      procedure, nopass :: reads_x => no
      procedure :: read => softmax_read
      procedure :: find_shape => softmax_shape
      procedure :: forward => softmax_forward
      procedure :: backward => softmax_backward
   end type softmax_type

contains

   subroutine softmax_read(self, given, error)
      class(softmax_type), intent(inout) :: self
      !> dim
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim", self%dim, error, 1)
   end subroutine softmax_read

   subroutine softmax_shape(self, shapes, y, error)
      class(softmax_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> It has no such dimension, or that is the batch's
      type(error_type), allocatable, intent(out) :: error
      integer :: axis
      y = shapes(1)
      axis = fortran_axis(self%dim, y%rank)
      if (y%rank < 2) then
         call self%refuse("input "//y%text(), "two dimensions or more", error)
      else if (axis == 0 .or. axis == y%rank) then
         call self%refuse("dimension "//to_text(self%dim)//" of "//to_text(y%rank), "another than the batch", error)
      end if
   end subroutine softmax_shape

   subroutine softmax_forward(self, backend, operands, error)
      class(softmax_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, softmax_call(operands%x(1), fortran_axis(self%dim, operands%rank), self%logarithm, &
         & operands%y), error)
   end subroutine softmax_forward

   subroutine softmax_backward(self, backend, operands, error)
      class(softmax_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and y
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, softmax_backward_call(operands%y, operands%dy, fortran_axis(self%dim, operands%rank), &
         & self%logarithm, operands%dx(1)), error)
   end subroutine softmax_backward

end module cnn_operations_softmax
