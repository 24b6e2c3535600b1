! SPDX-License-Identifier: MIT
!> Operations that give the same numbers another shape, or another order.
module cnn_operations_rearrangement
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : transpose_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_joins, only : flatten_type
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   public :: read_axis

   !> Numbers of torch's dimensions, from the last if they are negative
   integer, parameter, public :: first_axis = -4, last_axis = 3

   !> The numbers of each image in another shape
   type, extends(flatten_type), public :: reshape_type
      !> Torch's; -1 is what is left
      integer, allocatable :: extents(:)
      !> Whether the input must have them already
      logical :: fixed = .false.
   contains
      procedure :: read => reshape_read
      procedure :: find_shape => reshape_shape
   end type reshape_type

   !> Two dimensions exchanged, neither of them the batch
   type, extends(operation_type), public :: transpose_type
      !> Torch's
      integer :: axes(2) = 1
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: read => transpose_read
      procedure :: find_shape => transpose_shape
      procedure :: forward => transpose_forward
      procedure :: backward => transpose_backward
      procedure, private :: fortran_axes
   end type transpose_type

contains

   subroutine reshape_read(self, given, error)
      class(reshape_type), intent(inout) :: self
      !> shape, fixed
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shape", self%extents, error, 3, lowest=-1)
      if (.not. allocated(error)) call given%get_flag("fixed", self%fixed, error, .false.)
      if (allocated(error)) return
      if (any(self%extents == 0) .or. count(self%extents < 0) > merge(0, 1, self%fixed)) then
         call self%refuse("shape "//to_text(self%extents), &
            & "integers from 1 on, or -1 for one of them if it is not fixed", error)
      end if
   end subroutine reshape_read

   subroutine reshape_shape(self, shapes, y, error)
      class(reshape_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, and the extents)
      type(shape_type), intent(out) :: y
      !> An image has another number of elements, or another shape than the one that is fixed
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: elements, given
      integer :: rank
      associate (x => shapes(1))
         rank = size(self%extents)
         y = shape_of([self%extents(rank:1:-1), x%extent(max(x%rank, 1))])
         elements = product(real(x%extent(:x%rank - 1), dp))
         given = product(real(self%extents, dp), self%extents > 0)
         where (y%extent < 0) y%extent = int(min(elements/given, real(huge(1), dp)))
         if (self%fixed .and. (x%rank /= y%rank .or. any(x%extent /= y%extent))) then
            call self%refuse("input "//x%text(), "images of the shape "//to_text(self%extents)// &
               & " at which the network was read: read it again with an example of the new one", error)
         else if (x%rank < 1 .or. abs(product(real(y%extent(:rank), dp)) - elements) > 0.0_dp) then
            call self%refuse("input "//x%text(), "the elements of "//to_text(self%extents)//" in each image", error)
         end if
      end associate
   end subroutine reshape_shape

   subroutine transpose_read(self, given, error)
      class(transpose_type), intent(inout) :: self
      !> dim0, dim1
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim0", self%axes(1), error)
      if (.not. allocated(error)) call read_axis(given, "dim1", self%axes(2), error)
   end subroutine transpose_read

   !> The number of a dimension
   subroutine read_axis(given, name, axis, error)
      !> The node's
      type(attributes_type), intent(inout) :: given
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      integer, intent(out) :: axis
      type(error_type), allocatable, intent(out) :: error
      integer, allocatable :: found(:)
      axis = last_axis
      call given%get_list(name, found, error, 1, first_axis, last_axis)
      if (.not. allocated(error)) axis = found(1)
   end subroutine read_axis

   subroutine transpose_shape(self, shapes, y, error)
      class(transpose_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With two of its extents exchanged
      type(shape_type), intent(out) :: y
      !> No such dimensions, or the batch
      type(error_type), allocatable, intent(out) :: error
      integer :: axes(2)
      y = shapes(1)
      axes = self%fortran_axes(y%rank)
      if (all(axes >= 1 .and. axes < y%rank)) then
         y%extent(axes) = y%extent(axes([2, 1]))
      else
         call self%refuse("dimensions "//to_text(self%axes)//" of "//to_text(y%rank), "others than the batch", error)
      end if
   end subroutine transpose_shape

   !> The two in Fortran order, the smaller first
   pure function fortran_axes(self, rank) result(axes)
      class(transpose_type), intent(in) :: self
      !> Dimensions of its input
      integer, intent(in) :: rank
      integer :: axes(2)
      axes = merge(rank - self%axes, -self%axes, self%axes >= 0)
      axes = [minval(axes), maxval(axes)]
   end function fortran_axes

   subroutine transpose_forward(self, backend, operands, error)
      class(transpose_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, transpose_call(operands%x(1), self%fortran_axes(operands%rank), operands%y), error)
   end subroutine transpose_forward

   subroutine transpose_backward(self, backend, operands, error)
      class(transpose_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, transpose_call(operands%dy, self%fortran_axes(operands%rank), operands%dx(1)), error)
   end subroutine transpose_backward

end module cnn_operations_rearrangement
