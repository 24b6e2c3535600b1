! SPDX-License-Identifier: MIT
!> Operations on each element of two tensors, which are broadcast as numpy and torch do: in Fortran's order the extents
!> that one of them lacks are the last, where ours are 1 anyway. The functions are in binary_functions.inc.
module cnn_operations_arithmetic
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : combine_backward_call, combine_call, sum_to_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : same_memory, tensor_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_numbers, only : b_add, b_prelu, b_subtract
   use cnn_operations_operation, only : no, operands_type, operation_type, two, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> A sum or a difference: its gradients do not depend on its inputs
   type, extends(operation_type), public :: arithmetic_type
      !> Which: a number of cnn_operations_numbers
      integer(i8) :: number = 0
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure, nopass :: arity => two
      procedure :: find_shape => common_shape
      procedure :: forward => combine_forward
      procedure :: backward => combine_backward
   end type arithmetic_type

   !> A product or a quotient
   type, extends(arithmetic_type), public :: product_type
   contains
      procedure, nopass :: reads_x => yes
   end type product_type

   !> x where it is positive, else x times a weight: one, or one for each channel
   type, extends(operation_type), public :: prelu_type
      integer :: num_parameters = 1
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure :: read => prelu_read
      procedure :: find_shape => prelu_shape
      procedure :: forward => prelu_forward
      procedure :: backward => prelu_backward
   end type prelu_type

contains

   subroutine common_shape(self, shapes, y, error)
      class(arithmetic_type), intent(in) :: self
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
   end subroutine common_shape

   subroutine combine_forward(self, backend, operands, error)
      class(arithmetic_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, combine_call(operands%x(1), operands%x(2), int(self%number), operands%y), error)
   end subroutine combine_forward

   !> For each input, the last first: the first one's may be where dy is
   subroutine combine_backward(self, backend, operands, error)
      class(arithmetic_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy, and x where that is read
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 2, 1, -1
         if (self%number == b_add .or. (self%number == b_subtract .and. i == 1)) then
            if (same_memory(operands%dy, operands%dx(i))) cycle
            call self%run(backend, sum_to_call(operands%dy, 1.0_dp, operands%dx(i)), error)
         else if (self%reads_x()) then
            call self%run(backend, combine_backward_call(operands%x(1), operands%x(2), operands%dy, int(self%number), &
               & i, operands%dx(i)), error)
         else
            ! What they are does not matter
            call self%run(backend, combine_backward_call(operands%dy, operands%dy, operands%dy, int(self%number), i, &
               & operands%dx(i)), error)
         end if
         if (allocated(error)) return
      end do
   end subroutine combine_backward

   subroutine prelu_read(self, given, error)
      class(prelu_type), intent(inout) :: self
      !> num_parameters
      type(attributes_type), intent(inout) :: given
      !> Unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      given%node = self%name
      call given%get_integer("num_parameters", self%num_parameters, error, 1)
      if (.not. allocated(error)) call given%check_known(error)
      if (allocated(error)) return
      allocate (self%parameters(1))
      self%parameters(1)%name = "weight"
      self%parameters(1)%shape = shape_of([self%num_parameters])
   end subroutine prelu_read

   subroutine prelu_shape(self, shapes, y, error)
      class(prelu_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> It has another number of channels
      type(error_type), allocatable, intent(out) :: error
      logical :: fits
      y = shapes(1)
      fits = self%num_parameters == 1
      if (.not. fits .and. y%rank >= 2) fits = y%extent(y%rank - 1) == self%num_parameters
      if (.not. fits) call self%refuse("input "//y%text(), "as many channels as num_parameters", error)
   end subroutine prelu_shape

   subroutine prelu_forward(self, backend, operands, error)
      class(prelu_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x and the weight
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, combine_call(operands%x(1), along_channels(operands%w(1), operands%rank), int(b_prelu), &
         & operands%y), error)
   end subroutine prelu_forward

   !> The weight's gradient first: that of the input may be where dy is
   subroutine prelu_backward(self, backend, operands, error)
      class(prelu_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and the weight
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: weight, dweight
      weight = along_channels(operands%w(1), operands%rank)
      dweight = along_channels(operands%dw(1), operands%rank)
      call self%run(backend, combine_backward_call(operands%x(1), weight, operands%dy, int(b_prelu), 2, dweight), error)
      if (allocated(error)) return
      call self%run(backend, combine_backward_call(operands%x(1), weight, operands%dy, int(b_prelu), 1, &
         & operands%dx(1)), error)
   end subroutine prelu_backward

   !> The same numbers along torch's axis 1
   type(tensor_type) function along_channels(weight, rank) result(view)
      !> A vector
      type(tensor_type), intent(in) :: weight
      !> Number of dimensions of what it goes along
      integer, intent(in) :: rank
      view = weight
      view%extent = 1
      view%extent(max(rank - 1, 1)) = int(weight%count())
   end function along_channels

end module cnn_operations_arithmetic
