! SPDX-License-Identifier: MIT
!> Operations that join branches of a network.
module cnn_operations_joins
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_operations_broadcast, only : add_broadcast, sum_to
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   !> The sum of two inputs, which are broadcast as numpy and torch do: in Fortran's order the extents that one of them
   !> lacks are the last, where ours are 1 anyway
   type, extends(operation_type), public :: add_type
   contains
      procedure, nopass :: arity => two
      procedure :: find_shape => add_shape
      procedure :: forward => add_forward
      procedure :: backward => add_backward
   end type add_type

contains

   pure integer function two()
      two = 2
   end function two

   subroutine add_shape(self, shapes, y, error)
      !> The node
      class(add_type), intent(in) :: self
      !> Of its two inputs
      type(shape_type), intent(in) :: shapes(:)
      !> That to which both are broadcast
      type(shape_type), intent(out) :: y
      !> Two extents differ, and neither is 1
      type(error_type), allocatable, intent(out) :: error
      associate (a => shapes(1), b => shapes(2))
         if (any(a%extent /= b%extent .and. a%extent /= 1 .and. b%extent /= 1)) then
            call self%refuse("the shapes "//a%text()//" of "//self%inputs(1)%text//" and "//b%text()//" of "// &
               & self%inputs(2)%text, "shapes that can be broadcast to one", error)
         else
            y%rank = max(a%rank, b%rank)
            y%extent = max(a%extent, b%extent)
         end if
      end associate
   end subroutine add_shape

   subroutine add_forward(self, backend, operands, error)
      !> The node
      class(add_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors that are not the device's
      type(error_type), allocatable, intent(out) :: error
      call backend%require(operands%y, error)
      call self%name_node(error)
      if (.not. allocated(error)) call add_broadcast(operands%x(1), operands%x(2), operands%y)
   end subroutine add_forward

   !> dy for each input, summed over the axes along which it was broadcast
   subroutine add_backward(self, backend, operands, error)
      !> The node
      class(add_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      !> Tensors that are not the device's
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call backend%require(operands%dy, error)
      call self%name_node(error)
      if (allocated(error)) return
      do i = 1, 2
         call sum_to(operands%dy, operands%dx(i))
      end do
   end subroutine add_backward

end module cnn_operations_joins
