! SPDX-License-Identifier: MIT
!> Operations that make one number of all along some dimensions.
module cnn_operations_reductions
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : extreme_backward_call, extreme_call, spread_call, sum_to_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : max_rank, part_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_moves, only : first_axis, last_axis
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Over some of torch's dimensions, which may remain as ones of one number
   type, abstract, extends(operation_type) :: reduction_type
      !> Torch's numbers of them, from the last if they are negative
      integer, allocatable :: dims(:)
      logical :: keepdim = .false.
      !> Most of them
      integer :: most = max_rank
   contains
      procedure :: read => reduction_read
      procedure :: find_shape => reduction_shape
      procedure :: is_reduced
      procedure :: kept
   end type reduction_type

   !> The sum, or the mean
   type, extends(reduction_type), public :: sum_type
      logical :: divides = .false.
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: forward => sum_forward
      procedure :: backward => sum_backward
      procedure, private :: divisor
   end type sum_type

   !> The largest number, or the smallest
   type, extends(reduction_type), public :: extreme_type
      !> -1: the smallest
      integer :: sign = 1
      !> Whether the gradient goes to the first of equal ones, not to all in equal parts
      logical :: to_first = .false.
   contains
      procedure :: forward => extreme_forward
      procedure :: backward => extreme_backward
   end type extreme_type

contains

   subroutine reduction_read(self, given, error)
      class(reduction_type), intent(inout) :: self
      !> dim, keepdim
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("dim", self%dims, error, self%most, first_axis, last_axis)
      if (.not. allocated(error)) call given%get_flag("keepdim", self%keepdim, error, .false.)
   end subroutine reduction_read

   subroutine reduction_shape(self, shapes, y, error)
      class(reduction_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> Without the dimensions, or with ones of one number in their place
      type(shape_type), intent(out) :: y
      !> No such dimensions, one twice, or none that remains
      type(error_type), allocatable, intent(out) :: error
      logical :: reduced(max_rank)
      y = shapes(1)
      reduced = self%is_reduced(y%rank)
      if (any(self%dims < -y%rank .or. self%dims >= y%rank) .or. count(reduced) < size(self%dims) .or. &
         & (count(reduced) == y%rank .and. .not. self%keepdim)) then
         call self%refuse("dimensions "//to_text(self%dims)//" of "//to_text(y%rank), &
            & "each once, and one that remains", error)
      else if (self%keepdim) then
         where (reduced) y%extent = 1
      else
         y = shape_of(pack(y%extent(:y%rank), .not. reduced(:y%rank)))
      end if
   end subroutine reduction_shape

   !> Of each dimension in Fortran order whether it is one of them
   pure function is_reduced(self, rank) result(reduced)
      class(reduction_type), intent(in) :: self
      !> Of its input
      integer, intent(in) :: rank
      logical :: reduced(max_rank)
      integer :: i
      reduced = [(any(modulo(-self%dims - 1, rank) == i - 1) .and. i <= rank, i=1, max_rank)]
   end function is_reduced

   !> The output, or its gradient, with all dimensions of the input
   function kept(self, y, x, rank)
      class(reduction_type), intent(in) :: self
      !> Of the output's shape
      type(tensor_type), intent(in) :: y
      !> Of the input's
      type(tensor_type), intent(in) :: x
      !> Number of the input's dimensions
      integer, intent(in) :: rank
      type(tensor_type) :: kept
      kept = part_of(y, 0_i8, merge(1, x%extent, self%is_reduced(rank)))
   end function kept

   subroutine sum_forward(self, backend, operands, error)
      class(sum_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (x => operands%x(1))
         call self%run(backend, sum_to_call(x, self%divisor(x, operands%y), self%kept(operands%y, x, operands%rank)), &
            & error)
      end associate
   end subroutine sum_forward

   subroutine sum_backward(self, backend, operands, error)
      class(sum_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (dx => operands%dx(1))
         call self%run(backend, spread_call(self%kept(operands%dy, dx, operands%rank), self%divisor(dx, operands%dy), &
            & dx), error)
      end associate
   end subroutine sum_backward

   !> By which sums are divided
   pure real(dp) function divisor(self, x, y)
      class(sum_type), intent(in) :: self
      !> Of the input's shape
      type(tensor_type), intent(in) :: x
      !> Of the output's
      type(tensor_type), intent(in) :: y
      divisor = 1.0_dp
      if (self%divides) divisor = real(x%count(), dp)/real(y%count(), dp)
   end function divisor

   subroutine extreme_forward(self, backend, operands, error)
      class(extreme_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (x => operands%x(1))
         call self%run(backend, extreme_call(x, self%sign, self%kept(operands%y, x, operands%rank)), error)
      end associate
   end subroutine extreme_forward

   subroutine extreme_backward(self, backend, operands, error)
      class(extreme_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy, x and y
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (x => operands%x(1), rank => operands%rank)
         call self%run(backend, extreme_backward_call(x, self%kept(operands%y, x, rank), &
            & self%kept(operands%dy, x, rank), self%to_first, operands%dx(1)), error)
      end associate
   end subroutine extreme_backward

end module cnn_operations_reductions
