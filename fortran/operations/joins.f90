! SPDX-License-Identifier: MIT
!> Operations that join branches of a network.
module cnn_operations_joins
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : copy_call, from_channels_call, to_channels_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : part_of, same_memory, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_moves, only : fortran_axis, read_axis
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Two or more inputs one behind the other along a dimension, the channels where none is given
   type, extends(operation_type), public :: concat_type
      !> Torch's
      integer :: dim = 1
   contains
      procedure :: read => concat_read
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: is_light => yes
      procedure, nopass :: joins_channels => yes
      procedure, nopass :: arity => any_number
      procedure :: find_shape => concat_shape
      procedure :: forward => concat_forward
      procedure :: backward => concat_backward
   end type concat_type

   !> All but the first of torch's axes as one
   type, extends(operation_type), public :: flatten_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure :: find_shape => flatten_shape
      procedure :: forward => flatten_forward
      procedure :: backward => flatten_backward
   end type flatten_type

contains

   pure integer function any_number()
      any_number = 0
   end function any_number

   subroutine concat_read(self, given, error)
      class(concat_type), intent(inout) :: self
      !> dim
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim", self%dim, error, 1)
   end subroutine concat_read

   subroutine concat_shape(self, shapes, y, error)
      class(concat_type), intent(in) :: self
      !> Of its inputs
      type(shape_type), intent(in) :: shapes(:)
      !> The first with the numbers of all along the dimension
      type(shape_type), intent(out) :: y
      !> They differ elsewhere, or there is no such dimension but the batch's
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: what
      integer :: i, axis
      what = "shapes that differ in their channels"
      if (self%dim /= 1) what = "shapes that differ in dimension "//to_text(self%dim)
      y = shapes(1)
      axis = max(fortran_axis(self%dim, y%rank), 1)
      if (y%rank > 1 .and. (fortran_axis(self%dim, y%rank) == 0 .or. axis == y%rank)) then
         call self%refuse("dimension "//to_text(self%dim)//" of "//to_text(y%rank), "another than the batch", error)
         return
      end if
      do i = 1, size(shapes)
         associate (one => shapes(i))
            if (one%rank < 2 .or. one%rank /= y%rank .or. any(one%extent(:axis - 1) /= y%extent(:axis - 1)) .or. &
               & any(one%extent(axis + 1:) /= y%extent(axis + 1:))) then
               call self%refuse("the shape "//one%text()//" of "//self%inputs(i)%text//" beside "// &
                  & shapes(1)%text()//" of "//self%inputs(1)%text, what//" alone", error)
               return
            end if
            if (i > 1) y%extent(axis) = y%extent(axis) + one%extent(axis)
         end associate
      end do
   end subroutine concat_shape

   subroutine concat_forward(self, backend, operands, error)
      class(concat_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      integer :: i, axis, first
      axis = channel_axis(operands)
      first = 0
      do i = 1, size(operands%x)
         if (.not. lies_in(operands%x(i), operands%y, axis, first)) then
            call self%run(backend, to_channels_call(operands%x(i), axis, first, operands%y), error)
            if (allocated(error)) return
         end if
         first = first + operands%x(i)%extent(axis)
      end do
   end subroutine concat_forward

   !> Each input's channels of dy
   subroutine concat_backward(self, backend, operands, error)
      class(concat_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      integer :: i, axis, first
      axis = channel_axis(operands)
      first = 0
      do i = 1, size(operands%dx)
         if (.not. lies_in(operands%dx(i), operands%dy, axis, first)) then
            call self%run(backend, from_channels_call(operands%dy, axis, first, operands%dx(i)), error)
            if (allocated(error)) return
         end if
         first = first + operands%dx(i)%extent(axis)
      end do
   end subroutine concat_backward

   !> Whether channels are in their place in the whole already
   logical function lies_in(part, whole, axis, first)
      !> Some channels
      type(tensor_type), intent(in) :: part
      !> All of them
      type(tensor_type), intent(in) :: whole
      !> Of the channels, in Fortran order
      integer, intent(in) :: axis
      !> Number of channels before those of the part
      integer, intent(in) :: first
      integer(i8) :: before
      before = product(int(whole%extent(:axis - 1), i8))*first*bytes_of(whole%dtype)
      lies_in = same_memory(part, part_of(whole, before, part%extent))
   end function lies_in

   !> Fortran's axis along which the inputs add up to the output
   pure integer function channel_axis(operands)
      !> Of a concatenation
      type(operands_type), intent(in) :: operands
      channel_axis = findloc(operands%y%extent /= operands%x(1)%extent, .true., 1)
   end function channel_axis

   subroutine flatten_shape(self, shapes, y, error)
      class(flatten_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, all other elements)
      type(shape_type), intent(out) :: y
      !> A scalar, or too many elements for an index
      type(error_type), allocatable, intent(out) :: error
      associate (x => shapes(1))
         if (x%rank < 1) then
            call self%refuse("a scalar", "one dimension or more", error)
         else if (product(real(x%extent(:x%rank - 1), dp)) > huge(1)) then
            call self%refuse("input "//x%text(), "fewer than 2**31 elements of an image", error)
         else
            y = shape_of([product(x%extent(:x%rank - 1)), x%extent(x%rank)])
         end if
      end associate
   end subroutine flatten_shape

   subroutine flatten_forward(self, backend, operands, error)
      class(flatten_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (same_memory(operands%x(1), operands%y)) return
      call self%run(backend, copy_call(operands%x(1), operands%y), error)
   end subroutine flatten_forward

   subroutine flatten_backward(self, backend, operands, error)
      class(flatten_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (same_memory(operands%dy, operands%dx(1))) return
      call self%run(backend, copy_call(operands%dy, operands%dx(1)), error)
   end subroutine flatten_backward

end module cnn_operations_joins
