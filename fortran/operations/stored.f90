! SPDX-License-Identifier: MIT
!> What is learned by itself, as another operation's operand, and numbers that are taken from a table by their indices.
module cnn_operations_stored
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : spread_call, sum_to_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : max_rank
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type, largest
   use cnn_operations_moves, only : fortran_axis, moving_type, part_type, read_axis
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> The same numbers for each image. The input says how many images there are
   type, extends(operation_type), public :: stored_type
      !> Torch's, of one image
      integer, allocatable :: extents(:)
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => stored_read
      procedure :: find_shape => stored_shape
      procedure :: forward => stored_forward
      procedure :: backward => stored_backward
   end type stored_type

   !> The numbers of these indices of a dimension, torch's `index_select`
   type, extends(moving_type), public :: index_select_type
      integer :: dim = 1
      !> From 0
      integer, allocatable :: indices(:)
   contains
      procedure :: read => select_read
      procedure :: find_shape => select_shape
      procedure :: parts => select_parts
   end type index_select_type

   !> Most indices, and the last that there may be
   integer, parameter :: most = 4096, last = largest - 1

contains

   subroutine stored_read(self, given, error)
      class(stored_type), intent(inout) :: self
      !> shape
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shape", self%extents, error, max_rank - 1, lowest=-1)
      if (allocated(error)) return
      if (any(self%extents < 1)) then
         call self%refuse("shape "//to_text(self%extents), "integers from 1 on", error)
      else if (product(real(self%extents, dp)) > huge(1)) then
         call self%refuse("weights "//to_text(self%extents), "fewer than 2**31 of them", error)
      else
         self%parameters = [parameter_shape_type("weight", shape_of(self%extents(size(self%extents):1:-1)))]
      end if
   end subroutine stored_read

   subroutine stored_shape(self, shapes, y, error)
      class(stored_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, and the extents)
      type(shape_type), intent(out) :: y
      !> A scalar has no images
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank < 1) then
         call self%refuse("a scalar", "one dimension or more", error)
      else
         y = shape_of([self%extents(size(self%extents):1:-1), shapes(1)%extent(shapes(1)%rank)])
      end if
   end subroutine stored_shape

   subroutine stored_forward(self, backend, operands, error)
      class(stored_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from the parameter
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, spread_call(operands%w(1), 1.0_dp, operands%y), error)
   end subroutine stored_forward

   !> The network's input has no part in it
   subroutine stored_backward(self, backend, operands, error)
      class(stored_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dw from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (operands%dx(1)%is_allocated()) call backend%clear(operands%dx(1), error)
      if (.not. allocated(error)) call self%run(backend, sum_to_call(operands%dy, 1.0_dp, operands%dw(1)), error)
   end subroutine stored_backward

   subroutine select_read(self, given, error)
      class(index_select_type), intent(inout) :: self
      !> dim, indices
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim", self%dim, error)
      if (.not. allocated(error)) call given%get_list("indices", self%indices, error, most, 0, last)
   end subroutine select_read

   subroutine select_shape(self, shapes, y, error)
      class(index_select_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With as many indices as there are in the list
      type(shape_type), intent(out) :: y
      !> No such dimension, the batch, or an index that it has not
      type(error_type), allocatable, intent(out) :: error
      integer :: axis
      y = shapes(1)
      axis = fortran_axis(self%dim, y%rank)
      if (axis == 0 .or. axis == y%rank) then
         call self%refuse("dimension "//to_text(self%dim)//" of "//to_text(y%rank), "another than the batch", error)
      else if (maxval(self%indices) >= y%extent(axis)) then
         call self%refuse("index "//to_text(maxval(self%indices)), "one below "//to_text(y%extent(axis)), error)
      else
         y%extent(axis) = size(self%indices)
      end if
   end subroutine select_shape

   !> Indices that are equally far from each other are one part
   pure function select_parts(self, rank, x, y) result(parts)
      class(index_select_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      integer :: axis, first, i, n, step
      associate (unused => x)
      end associate
      axis = fortran_axis(self%dim, rank)
      allocate (parts(size(self%indices)))
      n = 0
      first = 1
      do while (first <= size(self%indices))
         step = 1
         i = first + 1
         if (i <= size(self%indices)) step = self%indices(i) - self%indices(first)
         do while (i <= size(self%indices))
            if (step == 0 .or. self%indices(i) - self%indices(i - 1) /= step) exit
            i = i + 1
         end do
         n = n + 1
         parts(n)%extents = y
         parts(n)%adds = .true.
         parts(n)%extents(axis) = i - first
         parts(n)%step(axis) = merge(step, 1, i - first > 1)
         parts(n)%first_x(axis) = self%indices(first)
         parts(n)%first_y(axis) = first - 1
         first = i
      end do
      parts = parts(:n)
   end function select_parts

end module cnn_operations_stored
