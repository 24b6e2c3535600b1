! SPDX-License-Identifier: MIT
!> Operations that give the same numbers another shape, or other places.
module cnn_operations_rearrangement
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : spread_call, sum_to_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : max_rank
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type, largest
   use cnn_operations_joins, only : flatten_type
   use cnn_operations_moves, only : first_axis, fortran_axis, last_axis, moving_type, part_type, read_axis
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> The numbers of each image in another shape
   type, extends(flatten_type), public :: reshape_type
      !> Torch's; -1 is what is left
      integer, allocatable :: extents(:)
      !> Whether the input must have them already
      logical :: fixed = .false.
      !> How many images each becomes; of so many one, if it is negative
      integer :: images = 1
   contains
      procedure :: read => reshape_read
      procedure :: find_shape => reshape_shape
   end type reshape_type

   !> Some indices of a dimension, torch's `x[start:stop:step]`
   type, extends(moving_type), public :: slice_type
      integer :: dim = 1, start = 0, stop = largest, step = 1
   contains
      procedure :: read => slice_read
      procedure :: find_shape => slice_shape
      procedure :: parts => slice_parts
      procedure, private :: range => slice_range
   end type slice_type

   !> Dimensions backwards
   type, extends(moving_type), public :: flip_type
      integer, allocatable :: dims(:)
   contains
      procedure :: read => flip_read
      procedure :: find_shape => flip_shape
      procedure :: parts => flip_parts
   end type flip_type

   !> Dimensions whose numbers go some places on, the last ones to the beginning
   type, extends(flip_type), public :: roll_type
      integer, allocatable :: shifts(:)
   contains
      procedure :: read => roll_read
      procedure :: parts => roll_parts
   end type roll_type

   !> Channels as pixels between the pixels, or back
   type, extends(moving_type), public :: pixel_shuffle_type
      !> Along both sides of an image
      integer :: factor = 1
      !> Whether pixels become channels
      logical :: inverse = .false.
   contains
      procedure :: read => shuffle_read
      procedure :: find_shape => shuffle_shape
      procedure :: viewed => shuffle_viewed
      procedure :: parts => shuffle_parts
   end type pixel_shuffle_type

   !> Dimensions of one number repeated
   type, extends(operation_type), public :: expand_type
      !> Torch's; -1 is what it is
      integer, allocatable :: extents(:)
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: read => expand_read
      procedure :: find_shape => expand_shape
      procedure :: forward => expand_forward
      procedure :: backward => expand_backward
   end type expand_type

contains

   subroutine reshape_read(self, given, error)
      class(reshape_type), intent(inout) :: self
      !> shape, fixed, images
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shape", self%extents, error, max_rank - 1, lowest=-1)
      if (.not. allocated(error)) call given%get_flag("fixed", self%fixed, error, .false.)
      if (.not. allocated(error)) call given%get_index("images", self%images, error, 1)
      if (allocated(error)) return
      if (self%images == 0 .or. (self%fixed .and. self%images /= 1)) then
         call self%refuse("images "//to_text(self%images), "another number than 0, and 1 if it is fixed", error)
         return
      end if
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
      integer :: images, rank
      associate (x => shapes(1))
         rank = size(self%extents)
         images = x%extent(max(x%rank, 1))
         if (self%images < 0 .and. modulo(images, -self%images) /= 0) then
            call self%refuse("input "//x%text(), "as many images as "//to_text(-self%images)//" divides", error)
            return
         end if
         images = merge(images/max(-self%images, 1), images*self%images, self%images < 0)
         y = shape_of([self%extents(rank:1:-1), images])
         elements = product(real(x%extent(:x%rank), dp))/images
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

   subroutine slice_read(self, given, error)
      class(slice_type), intent(inout) :: self
      !> dim, start, stop, step
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim", self%dim, error)
      if (.not. allocated(error)) call given%get_index("start", self%start, error, 0)
      if (.not. allocated(error)) call given%get_index("stop", self%stop, error, largest)
      if (.not. allocated(error)) call given%get_integer("step", self%step, error, 1)
   end subroutine slice_read

   subroutine slice_shape(self, shapes, y, error)
      class(slice_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With fewer indices
      type(shape_type), intent(out) :: y
      !> No such dimension, the batch, or none that is left
      type(error_type), allocatable, intent(out) :: error
      integer :: axis, range(2)
      y = shapes(1)
      axis = fortran_axis(self%dim, y%rank)
      if (axis == 0 .or. axis == y%rank) then
         call self%refuse("dimension "//to_text(self%dim)//" of "//to_text(y%rank), "another than the batch", error)
         return
      end if
      range = self%range(y%extent(axis))
      y%extent(axis) = range(2)
      if (range(2) < 1) call self%refuse("indices from "//to_text(self%start)//" to "//to_text(self%stop)//" of "// &
         & shapes(1)%text(), "one or more", error)
   end subroutine slice_shape

   !> The first index, from 0, and how many there are
   pure function slice_range(self, length) result(range)
      class(slice_type), intent(in) :: self
      !> Of the dimension
      integer, intent(in) :: length
      integer :: range(2), ends(2)
      ends = [self%start, self%stop]
      where (ends < 0) ends = ends + length
      ends = max(0, min(length, ends))
      if (self%stop == largest) ends(2) = length
      range = [ends(1), (ends(2) - ends(1) + self%step - 1)/self%step]
   end function slice_range

   pure function slice_parts(self, rank, x, y) result(parts)
      class(slice_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      integer :: axis, range(2)
      axis = fortran_axis(self%dim, rank)
      range = self%range(x(axis))
      allocate (parts(1))
      parts(1)%extents = y
      parts(1)%step(axis) = self%step
      parts(1)%first_x(axis) = range(1)
   end function slice_parts

   subroutine flip_read(self, given, error)
      class(flip_type), intent(inout) :: self
      !> dims
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("dims", self%dims, error, max_rank, first_axis, last_axis)
   end subroutine flip_read

   subroutine flip_shape(self, shapes, y, error)
      class(flip_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> No such dimensions, one twice, or the batch
      type(error_type), allocatable, intent(out) :: error
      integer :: axes(size(self%dims)), i
      y = shapes(1)
      axes = fortran_axis(self%dims, y%rank)
      if (any(axes == 0 .or. axes == y%rank) .or. any([(count(axes == axes(i)) > 1, i=1, size(axes))])) then
         call self%refuse("dimensions "//to_text(self%dims)//" of "//to_text(y%rank), &
            & "others than the batch, each once", error)
      end if
   end subroutine flip_shape

   pure function flip_parts(self, rank, x, y) result(parts)
      class(flip_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      integer :: axes(size(self%dims))
      axes = fortran_axis(self%dims, rank)
      allocate (parts(1))
      parts(1)%extents = y
      parts(1)%step(axes) = -1
      parts(1)%first_x(axes) = x(axes) - 1
   end function flip_parts

   subroutine roll_read(self, given, error)
      class(roll_type), intent(inout) :: self
      !> shifts, dims
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shifts", self%shifts, error, max_rank, -largest, largest)
      if (.not. allocated(error)) call self%flip_type%read(given, error)
      if (allocated(error)) return
      if (size(self%shifts) /= size(self%dims)) call self%refuse("shifts "//to_text(self%shifts)//" of dimensions "// &
         & to_text(self%dims), "one for each", error)
   end subroutine roll_read

   !> What stays behind along each dimension, and what comes to its beginning
   pure function roll_parts(self, rank, x, y) result(parts)
      class(roll_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:), wrapped(:)
      integer :: axis, i, j, shift
      allocate (parts(1))
      parts(1)%extents = y
      do i = 1, size(self%dims)
         axis = fortran_axis(self%dims(i), rank)
         shift = modulo(self%shifts(i), x(axis))
         if (shift == 0) cycle
         wrapped = parts
         do j = 1, size(parts)
            parts(j)%extents(axis) = y(axis) - shift
            parts(j)%first_y(axis) = shift
            wrapped(j)%extents(axis) = shift
            wrapped(j)%first_x(axis) = y(axis) - shift
         end do
         parts = [parts, wrapped]
      end do
   end function roll_parts

   subroutine shuffle_read(self, given, error)
      class(pixel_shuffle_type), intent(inout) :: self
      !> upscale_factor, or downscale_factor
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer(trim(merge("downscale_factor", "upscale_factor  ", self%inverse)), self%factor, error)
   end subroutine shuffle_read

   subroutine shuffle_shape(self, shapes, y, error)
      class(pixel_shuffle_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> Larger images of fewer channels, or smaller ones of more
      type(shape_type), intent(out) :: y
      !> No images, or numbers that the factor does not divide
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      associate (f => self%factor, extent => shapes(1)%extent)
         if (y%rank /= 4) then
            call self%refuse("input "//y%text(), "a shape (n, c, h, w)", error)
         else if (self%inverse .and. any(mod(extent(:2), f) /= 0)) then
            call self%refuse("input "//y%text(), "a height and a width that "//to_text(f)//" divides", error)
         else if (.not. self%inverse .and. mod(int(extent(3), i8), int(f, i8)**2) /= 0) then
            call self%refuse("input "//y%text(), "as many channels as "//to_text(int(f, i8)**2)//" divides", error)
         else if (merge(real(extent(3), dp)*f*f, real(maxval(extent(:2)), dp)*f, self%inverse) > huge(1)) then
            call self%refuse("a factor of "//to_text(f)//" for "//y%text(), "extents below 2**31", error)
         else if (self%inverse) then
            y%extent(:3) = [extent(:2)/f, extent(3)*f*f]
         else
            y%extent(:3) = [extent(:2)*f, extent(3)/(f*f)]
         end if
      end associate
   end subroutine shuffle_shape

   !> Channels as (w, h of a block, channel), pixels as (w of a block, block, h of a block, block)
   pure function shuffle_viewed(self, extent, is_output) result(viewed)
      class(pixel_shuffle_type), intent(in) :: self
      !> Of a tensor
      integer, intent(in) :: extent(max_rank)
      !> Whether it is the output, or its gradient
      logical, intent(in) :: is_output
      integer :: viewed(max_rank)
      associate (f => self%factor)
         viewed = 1
         if (is_output .eqv. self%inverse) then
            viewed(:6) = [extent(:2), f, f, extent(3)/(f*f), extent(4)]
         else
            viewed(:6) = [f, extent(1)/f, f, extent(2)/f, extent(3:4)]
         end if
      end associate
   end function shuffle_viewed

   pure function shuffle_parts(self, rank, x, y) result(parts)
      class(pixel_shuffle_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      associate (unused => rank, unused_too => x)
      end associate
      allocate (parts(1))
      parts(1)%extents = y
      parts(1)%order(:4) = merge([2, 4, 1, 3], [3, 1, 4, 2], self%inverse)
   end function shuffle_parts

   subroutine expand_read(self, given, error)
      class(expand_type), intent(inout) :: self
      !> shape
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shape", self%extents, error, max_rank - 1, lowest=-1)
      if (allocated(error)) return
      if (any(self%extents == 0)) call self%refuse("shape "//to_text(self%extents), "integers from 1 on, or -1", error)
   end subroutine expand_read

   subroutine expand_shape(self, shapes, y, error)
      class(expand_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, and the extents)
      type(shape_type), intent(out) :: y
      !> Another number of dimensions, or another extent that is not 1
      type(error_type), allocatable, intent(out) :: error
      integer :: rank
      y = shapes(1)
      rank = size(self%extents)
      if (y%rank == rank + 1) then
         y%extent(:rank) = merge(y%extent(:rank), self%extents(rank:1:-1), self%extents(rank:1:-1) < 0)
         if (all(y%extent == shapes(1)%extent .or. shapes(1)%extent == 1)) return
      end if
      call self%refuse("input "//shapes(1)%text(), "images of "//to_text(self%extents)//", or of ones in their place", &
         & error)
   end subroutine expand_shape

   subroutine expand_forward(self, backend, operands, error)
      class(expand_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, spread_call(operands%x(1), 1.0_dp, operands%y), error)
   end subroutine expand_forward

   subroutine expand_backward(self, backend, operands, error)
      class(expand_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, sum_to_call(operands%dy, 1.0_dp, operands%dx(1)), error)
   end subroutine expand_backward

end module cnn_operations_rearrangement
