! SPDX-License-Identifier: MIT
!> Operations that change the size of an image, along each axis by itself: each row of the output is a sum of rows of
!> the input, with weights of its own, and each column one of columns.
module cnn_operations_resizing
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_loops, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> The pixels of an axis that each pixel of the output is the sum of: (output, one or two)
   type :: sources_type
      !> From 1; 0: none
      integer, allocatable :: index(:, :)
      !> 0 where the index is
      real(dp), allocatable :: weight(:, :)
   end type sources_type

   !> Two sources for each pixel are enough for all of them
   type, abstract, extends(operation_type) :: resizing_type
   contains
      procedure :: find_shape => resizing_shape
      procedure :: forward => resizing_forward
      procedure :: backward => resizing_backward
      procedure(length_), deferred, private :: length
      procedure(find_sources_), deferred, private :: find_sources
   end type resizing_type

   !> Each pixel repeated, or linear interpolation between pixels
   type, extends(resizing_type), public :: upsample2d_type
      !> How many times as large: (height, width)
      integer :: factor(2) = 1
      logical :: is_linear = .false.
      !> Whether the centres of the corner pixels stay where they are, else the corners of the image
      logical :: align_corners = .false.
   contains
      procedure :: read => upsample_read
      procedure, private :: length => upsample_length
      procedure, private :: find_sources => upsample_sources
   end type upsample2d_type

   !> What stands around an image that is padded
   integer, parameter, public :: zeros = 0, replicated = 1, reflected = 2

   !> Pixels added on the sides of an image
   type, extends(resizing_type), public :: pad2d_type
      !> zeros, replicated or reflected
      integer :: mode = zeros
      !> How many: (left, right, top, bottom)
      integer :: padding(4) = 0
   contains
      procedure :: read => pad_read
      procedure, private :: length => pad_length
      procedure, private :: find_sources => pad_sources
   end type pad2d_type

   abstract interface
      !> The length of an axis of the output
      pure real(dp) function length_(self, axis, length)
         import :: dp, resizing_type
         implicit none
         !> The node
         class(resizing_type), intent(in) :: self
         !> 1: height, 2: width
         integer, intent(in) :: axis
         !> Of the input
         integer, intent(in) :: length
      end function length_

      !> Where the pixels of an axis of the output come from
      pure subroutine find_sources_(self, axis, length, sources)
         import :: resizing_type, sources_type
         implicit none
         !> The node
         class(resizing_type), intent(in) :: self
         !> 1: height, 2: width
         integer, intent(in) :: axis
         !> Of the input
         integer, intent(in) :: length
         !> For each pixel
         type(sources_type), intent(out) :: sources
      end subroutine find_sources_
   end interface

contains

   subroutine resizing_shape(self, shapes, y, error)
      !> The node
      class(resizing_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, and what becomes of h and w)
      type(shape_type), intent(out) :: y
      !> No image, too many pixels for an index, or too few to be mirrored
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: height, width
      associate (x => shapes(1))
         if (x%rank /= 4) then
            call self%refuse("input "//x%text(), "a shape (n, c, h, w)", error)
            return
         end if
         height = self%length(1, x%extent(2))
         width = self%length(2, x%extent(1))
         if (max(height, width) > huge(1)) then
            call self%refuse("input "//x%text(), "fewer than 2**31 rows and columns of the output", error)
            return
         end if
         y = shape_of([nint(width), nint(height), x%extent(3:)])
         select type (self)
          class is (pad2d_type)
            if (self%mode == reflected .and. any(self%padding >= x%extent([1, 1, 2, 2]))) then
               call self%refuse("padding "//to_text(self%padding)//" of the input "//x%text(), &
                  & "fewer pixels than the image has", error)
            end if
         end select
      end associate
   end subroutine resizing_shape

   subroutine resizing_forward(self, backend, operands, error)
      !> The node
      class(resizing_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      type(sources_type) :: rows, columns
      call self%require(backend, operands%y, error)
      if (allocated(error)) return
      call self%find_sources(1, operands%x(1)%extent(2), rows)
      call self%find_sources(2, operands%x(1)%extent(1), columns)
      loops = loops_of(operands%y%dtype)
      call loops%resample(operands%x(1), rows%index, rows%weight, columns%index, columns%weight, operands%y)
   end subroutine resizing_forward

   subroutine resizing_backward(self, backend, operands, error)
      !> The node
      class(resizing_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      type(sources_type) :: rows, columns
      call self%require(backend, operands%dy, error)
      if (allocated(error)) return
      call self%find_sources(1, operands%x(1)%extent(2), rows)
      call self%find_sources(2, operands%x(1)%extent(1), columns)
      associate (dx => operands%dx(1))
         loops = loops_of(dx%dtype)
         call loops%resample_backward(operands%dy, rows%index, rows%weight, columns%index, columns%weight, dx)
      end associate
   end subroutine resizing_backward

   subroutine upsample_read(self, given, error)
      !> With its name
      class(upsample2d_type), intent(inout) :: self
      !> scale_factor; of an interpolation also align_corners
      type(attributes_type), intent(inout) :: given
      !> Missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("scale_factor", self%factor, error, 1)
      if (.not. allocated(error) .and. self%is_linear) call given%get_flag("align_corners", self%align_corners, error, &
         & .false.)
   end subroutine upsample_read

   pure real(dp) function upsample_length(self, axis, length)
      !> The node
      class(upsample2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      upsample_length = real(length, dp)*self%factor(axis)
   end function upsample_length

   pure subroutine upsample_sources(self, axis, length, sources)
      !> The node
      class(upsample2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      !> For each pixel
      type(sources_type), intent(out) :: sources
      real(dp) :: place
      integer :: i, n
      n = length*self%factor(axis)
      allocate (sources%index(n, merge(2, 1, self%is_linear)), sources%weight(n, merge(2, 1, self%is_linear)))
      do i = 1, n
         sources%index(i, :) = (i - 1)/self%factor(axis) + 1
         sources%weight(i, :) = 1.0_dp
         if (.not. self%is_linear) cycle
         ! From 0, between the centres of the first and the last pixel
         if (self%align_corners) then
            place = (i - 1)*(real(length - 1, dp)/max(n - 1, 1))
         else
            place = max((i - 0.5_dp)/self%factor(axis) - 0.5_dp, 0.0_dp)
         end if
         sources%index(i, :) = [min(int(place) + 1, length), min(int(place) + 2, length)]
         sources%weight(i, 2) = place - int(place)
         sources%weight(i, 1) = 1.0_dp - sources%weight(i, 2)
      end do
   end subroutine upsample_sources

   subroutine pad_read(self, given, error)
      !> With its name
      class(pad2d_type), intent(inout) :: self
      !> padding
      type(attributes_type), intent(inout) :: given
      !> Missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("padding", self%padding, error, 0)
   end subroutine pad_read

   pure real(dp) function pad_length(self, axis, length)
      !> The node
      class(pad2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      integer :: last
      last = merge(4, 2, axis == 1)
      pad_length = real(length, dp) + self%padding(last - 1) + self%padding(last)
   end function pad_length

   pure subroutine pad_sources(self, axis, length, sources)
      !> The node
      class(pad2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      !> For each pixel
      type(sources_type), intent(out) :: sources
      integer :: i, at, n
      n = nint(self%length(axis, length))
      allocate (sources%index(n, 1), sources%weight(n, 1))
      do i = 1, n
         at = i - self%padding(merge(3, 1, axis == 1))
         sources%weight(i, 1) = 1.0_dp
         if (self%mode == replicated) then
            at = min(max(at, 1), length)
         else if (self%mode == reflected) then
            if (at < 1) at = 2 - at
            if (at > length) at = 2*length - at
         else if (at < 1 .or. at > length) then
            at = 0
            sources%weight(i, 1) = 0.0_dp
         end if
         sources%index(i, 1) = at
      end do
   end subroutine pad_sources

end module cnn_operations_resizing
