! SPDX-License-Identifier: MIT
!> Operations whose output is the input's numbers at other places, and the dimensions in another order.
module cnn_operations_moves
   use cnn_core_axes, only : strides_of
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : move_call, pointwise_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : max_rank, part_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type, largest
   use cnn_operations_numbers, only : f_affine
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   public :: fortran_axis, read_axis

   !> Numbers of torch's dimensions, from the last if they are negative
   integer, parameter, public :: first_axis = -max_rank, last_axis = max_rank - 1

   !> What is moved at once: a box of the output, from where it is in the input
   type, public :: part_type
      !> Of each axis of the output, in Fortran order: which one of the input it is, and how far apart its numbers are
      !> there
      integer :: order(max_rank) = [1, 2, 3, 4, 5, 6, 7, 8], step(max_rank) = 1
      integer :: extents(max_rank) = 1
      !> The first number's indices, from 0, along the axes of each
      integer :: first_x(max_rank) = 0, first_y(max_rank) = 0
      !> Whether its numbers are in a part before it, too
      logical :: adds = .false.
   end type part_type

   !> Numbers of the input at other places
   type, abstract, extends(operation_type), public :: moving_type
      !> What is where none of them is
      real(dp) :: beside = 0.0_dp
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: forward => moving_forward
      procedure :: backward => moving_backward
      procedure :: viewed => as_it_is
      procedure(parts_), deferred :: parts
   end type moving_type

   !> Dimensions in another order, of which the first is the batch
   type, extends(moving_type), public :: permute_type
      !> Torch's
      integer, allocatable :: dims(:)
   contains
      procedure :: read => permute_read
      procedure :: find_shape => permute_shape
      procedure :: parts => permute_parts
      procedure :: order => permute_order
   end type permute_type

   !> Two dimensions exchanged, neither of them the batch
   type, extends(permute_type), public :: transpose_type
      !> Torch's
      integer :: axes(2) = 1
   contains
      procedure :: read => transpose_read
      procedure :: order => transpose_order
   end type transpose_type

   !> Numbers beside those of the last dimensions
   type, extends(moving_type), public :: pad_type
      !> Torch's: before and behind those of the last, of the one before it, ...; negative where they are taken away
      integer, allocatable :: pad(:)
      !> Whether they are those of the opposite side
      logical :: circular = .false.
   contains
      procedure :: read => pad_read
      procedure :: find_shape => pad_shape
      procedure :: parts => pad_parts
      procedure, private :: sides => pad_sides
   end type pad_type

   abstract interface
      !> What is made of the input, in parts
      pure function parts_(self, rank, x, y) result(parts)
         import :: max_rank, moving_type, part_type
         implicit none
         class(moving_type), intent(in) :: self
         !> Dimensions of the input
         integer, intent(in) :: rank
         !> Extents of the input, as it is viewed
         integer, intent(in) :: x(max_rank)
         !> Of the output
         integer, intent(in) :: y(max_rank)
         type(part_type), allocatable :: parts(:)
      end function parts_
   end interface

contains

   !> The extents that a tensor is seen with
   pure function as_it_is(self, extent, is_output) result(viewed)
      class(moving_type), intent(in) :: self
      !> Its own
      integer, intent(in) :: extent(max_rank)
      !> Whether it is the output, or its gradient
      logical, intent(in) :: is_output
      integer :: viewed(max_rank)
      associate (unused => self, unused_too => is_output)
      end associate
      viewed = extent
   end function as_it_is

   subroutine moving_forward(self, backend, operands, error)
      class(moving_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(part_type), allocatable :: parts(:)
      type(tensor_type) :: x, y
      integer :: i
      x = part_of(operands%x(1), 0_i8, self%viewed(operands%x(1)%extent, .false.))
      y = part_of(operands%y, 0_i8, self%viewed(operands%y%extent, .true.))
      allocate (parts, source=self%parts(operands%rank, x%extent, y%extent))
      if (moved(parts) < y%count()) call fill(self, backend, y, error)
      if (allocated(error)) return
      do i = 1, size(parts)
         associate (part => parts(i))
            call self%run(backend, move_call(from(x, part%first_x), part%order, part%step, part%extents, &
               & spread(1, 1, max_rank), .false., from(y, part%first_y)), error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine moving_forward

   !> What nothing was made of has no gradient
   subroutine moving_backward(self, backend, operands, error)
      class(moving_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(part_type), allocatable :: parts(:)
      type(tensor_type) :: dx, dy
      integer :: i
      dx = part_of(operands%dx(1), 0_i8, self%viewed(operands%dx(1)%extent, .false.))
      dy = part_of(operands%dy, 0_i8, self%viewed(operands%dy%extent, .true.))
      allocate (parts, source=self%parts(operands%rank, dx%extent, dy%extent))
      if (moved(pack(parts, .not. parts%adds)) < dx%count()) call backend%clear(dx, error)
      if (allocated(error)) return
      do i = 1, size(parts)
         call self%run(backend, sent_back(parts(i), dy, dx), error)
         if (allocated(error)) return
      end do
   end subroutine moving_backward

   !> How many numbers there are in parts
   pure integer(i8) function moved(parts)
      !> No two of the same numbers
      type(part_type), intent(in) :: parts(:)
      integer :: i
      moved = sum([(product(int(parts(i)%extents, i8)), i=1, size(parts))])
   end function moved

   !> What is beside the numbers, everywhere
   subroutine fill(self, backend, y, error)
      class(moving_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Is overwritten
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      call backend%clear(y, error)
      if (allocated(error) .or. .not. abs(self%beside) > 0.0_dp) return
      call self%run(backend, pointwise_call(y, int(f_affine), [1.0_dp, self%beside], y), error)
   end subroutine fill

   !> A tensor from one of its numbers on
   type(tensor_type) function from(tensor, first)
      !> With its extents
      type(tensor_type), intent(in) :: tensor
      !> Indices, from 0
      integer, intent(in) :: first(max_rank)
      from = part_of(tensor, sum(strides_of(tensor%extent)*first)*bytes_of(tensor%dtype), tensor%extent)
   end function from

   !> The gradient of a part, to where its numbers came from. What was read backwards is that now, too
   type(move_call) function sent_back(part, dy, dx)
      !> Of the forward pass
      type(part_type), intent(in) :: part
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: dy
      !> With respect to the input
      type(tensor_type), intent(in) :: dx
      integer :: axis, first_x(max_rank), first_y(max_rank), i
      first_x = part%first_x
      first_y = part%first_y
      do i = 1, max_rank
         axis = part%order(i)
         sent_back%order(axis) = i
         sent_back%extents(axis) = part%extents(i)
         sent_back%from_step(axis) = sign(1, part%step(i))
         sent_back%to_step(axis) = abs(part%step(i))
         if (part%step(i) > 0) cycle
         first_x(axis) = first_x(axis) + (part%extents(i) - 1)*part%step(i)
         first_y(i) = first_y(i) + part%extents(i) - 1
      end do
      sent_back%adds = part%adds
      sent_back%from = from(dy, first_y)
      sent_back%to = from(dx, first_x)
   end function sent_back

   subroutine permute_read(self, given, error)
      class(permute_type), intent(inout) :: self
      !> dims
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("dims", self%dims, error, max_rank, first_axis, last_axis)
   end subroutine permute_read

   subroutine transpose_read(self, given, error)
      class(transpose_type), intent(inout) :: self
      !> dim0, dim1
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim0", self%axes(1), error)
      if (.not. allocated(error)) call read_axis(given, "dim1", self%axes(2), error)
      self%dims = self%axes
   end subroutine transpose_read

   subroutine permute_shape(self, shapes, y, error)
      class(permute_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With the same extents in another order
      type(shape_type), intent(out) :: y
      !> No such dimensions, or another first one than the batch
      type(error_type), allocatable, intent(out) :: error
      integer :: order(max_rank), i
      y = shapes(1)
      order = self%order(y%rank)
      if (all([(any(order == i), i=1, max_rank)]) .and. order(max(y%rank, 1)) == y%rank) then
         y%extent = y%extent(order)
      else
         call self%refuse("dimensions "//to_text(self%dims)//" of "//to_text(y%rank), "others than the batch", error)
      end if
   end subroutine permute_shape

   !> The input's axis for each of the output; 0 where there is none
   pure function permute_order(self, rank) result(order)
      class(permute_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      integer :: order(max_rank), i
      order = [(i, i=1, max_rank)]
      if (size(self%dims) /= rank) order = 0
      if (size(self%dims) == rank) order(rank:1:-1) = fortran_axis(self%dims, rank)
   end function permute_order

   pure function transpose_order(self, rank) result(order)
      class(transpose_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      integer :: order(max_rank), axes(2), i
      axes = fortran_axis(self%axes, rank)
      order = [(i, i=1, max_rank)]
      if (any(axes == 0)) order = 0
      if (all(axes > 0)) order(axes) = axes([2, 1])
   end function transpose_order

   !> Axes in Fortran order; 0 where there is none
   elemental integer function fortran_axis(axis, rank)
      !> Torch's
      integer, intent(in) :: axis
      !> Dimensions
      integer, intent(in) :: rank
      fortran_axis = merge(rank - axis, -axis, axis >= 0)
      if (fortran_axis < 1 .or. fortran_axis > rank) fortran_axis = 0
   end function fortran_axis

   pure function permute_parts(self, rank, x, y) result(parts)
      class(permute_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      associate (unused => x)
      end associate
      allocate (parts(1))
      parts(1)%order = self%order(rank)
      parts(1)%extents = y
   end function permute_parts

   !> The number of a dimension
   subroutine read_axis(given, name, axis, error, default)
      !> The node's
      type(attributes_type), intent(inout) :: given
      !> Of the hyperparameter
      character(len=*), intent(in) :: name
      !> What was found
      integer, intent(out) :: axis
      type(error_type), allocatable, intent(out) :: error
      !> Where it is not there
      integer, intent(in), optional :: default
      integer, allocatable :: found(:)
      axis = last_axis
      if (present(default)) axis = default
      if (present(default) .and. .not. given%has(name)) return
      call given%get_list(name, found, error, 1, first_axis, last_axis)
      if (.not. allocated(error)) axis = found(1)
   end subroutine read_axis

   subroutine pad_read(self, given, error)
      class(pad_type), intent(inout) :: self
      !> pad; of a constant also value
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("pad", self%pad, error, max_rank, -largest, largest)
      if (.not. (allocated(error) .or. self%circular)) call given%get_real("value", self%beside, error, 0.0_dp, .true.)
      if (allocated(error)) return
      if (abs(self%beside) > huge(1.0_dp)) then
         call self%refuse("value "//to_text(self%beside), "a finite number", error)
         return
      end if
      if (mod(size(self%pad), 2) == 1) call self%refuse("pad "//to_text(self%pad), &
         & "two numbers for each dimension", error)
   end subroutine pad_read

   !> Before and behind the numbers of each axis
   pure function pad_sides(self) result(sides)
      class(pad_type), intent(in) :: self
      integer :: sides(2, max_rank)
      sides = 0
      sides(:, :size(self%pad)/2) = reshape(self%pad, [2, size(self%pad)/2])
   end function pad_sides

   subroutine pad_shape(self, shapes, y, error)
      class(pad_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The extents with what is beside them
      type(shape_type), intent(out) :: y
      !> The batch would be padded, nothing remains, or too little for the other side
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: expected
      integer :: sides(2, max_rank), remain(max_rank)
      y = shapes(1)
      sides = self%sides()
      remain = y%extent + sum(min(sides, 0), 1)
      y%extent = y%extent + sum(sides, 1)
      if (self%circular .and. any(maxval(sides, 1) > remain)) expected = "at most as many numbers as remain"
      if (any(remain < 1)) expected = "one number or more that remains"
      if (size(self%pad)/2 >= y%rank) expected = "others than the batch"
      if (allocated(expected)) call self%refuse("pad "//to_text(self%pad)//" of the input "// &
         & shapes(1)%text(), expected, error)
   end subroutine pad_shape

   !> What stays, then what is put before and behind it along each axis, of all that the axes before it have made
   pure function pad_parts(self, rank, x, y) result(parts)
      class(pad_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:), before(:), behind(:)
      integer :: axis, i, remain(max_rank), sides(2, max_rank)
      sides = self%sides()
      remain = x + sum(min(sides, 0), 1)
      allocate (parts(1))
      parts(1)%extents = remain
      parts(1)%first_x = max(-sides(1, :), 0)
      parts(1)%first_y = max(sides(1, :), 0)
      do axis = 1, merge(rank, 0, self%circular)
         before = parts(:merge(size(parts), 0, sides(1, axis) > 0))
         behind = parts(:merge(size(parts), 0, sides(2, axis) > 0))
         do i = 1, size(before)
            before(i)%extents(axis) = sides(1, axis)
            before(i)%first_x(axis) = x(axis) - max(-sides(2, axis), 0) - sides(1, axis)
            before(i)%first_y(axis) = 0
         end do
         do i = 1, size(behind)
            behind(i)%extents(axis) = sides(2, axis)
            behind(i)%first_x(axis) = max(-sides(1, axis), 0)
            behind(i)%first_y(axis) = y(axis) - sides(2, axis)
         end do
         before%adds = .true.
         behind%adds = .true.
         parts = [parts, before, behind]
      end do
   end function pad_parts

end module cnn_operations_moves
