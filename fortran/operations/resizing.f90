! SPDX-License-Identifier: MIT
!> Operations that change the size of an image, along each axis by itself: each row of the output is a sum of rows of
!> the input, with weights of its own, and each column one of columns.
module cnn_operations_resizing
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : interpolate_backward_call, interpolate_call, resample_backward_call, resample_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, sp
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> How the pixels of an axis of the output follow from those of the input, as in formulas.inc
   type, abstract, extends(operation_type) :: resizing_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: is_light => yes
      procedure :: find_shape => resizing_shape
      procedure :: forward => resizing_forward
      procedure :: backward => resizing_backward
      procedure(length_), deferred, private :: length
      procedure(rule_), deferred, private :: rule
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
      procedure, private :: rule => upsample_rule
   end type upsample2d_type

   !> Images of any size, by a polynomial between pixels
   type, extends(operation_type), public :: interpolate_type
      !> Of the polynomial: 0, 1 or 3
      integer :: degree = 0
      !> (height, width); 0 where it is not given
      integer :: size(2) = 0
      !> How many times as large, where that is given: (height, width)
      real(dp) :: factor(2) = 0.0_dp
      !> Whether the centres of the corner pixels stay where they are, whether the nearest one is to the centre
      logical :: align_corners = .false., exact = .false.
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: read => interpolate_read
      procedure :: find_shape => interpolate_shape
      procedure :: forward => interpolate_forward
      procedure :: backward => interpolate_backward
      procedure, private :: mode => interpolate_mode
      procedure, private :: scale => interpolate_scale
   end type interpolate_type

   !> The means of as many windows as wanted
   type, extends(resizing_type), public :: adaptive_avg_pool2d_type
      !> How many: (height, width)
      integer :: output_size(2) = 1
   contains
      procedure :: read => adaptive_read
      procedure, private :: length => adaptive_length
      procedure, private :: rule => adaptive_rule
   end type adaptive_avg_pool2d_type

   !> The rules, of which those of paddings say what stands around an image
   integer, parameter, public :: nearest = 1, linear = 2, linear_aligned = 3, averaged = 7
   integer, parameter, public :: zeros = 4, replicated = 5, reflected = 6

   !> Pixels added on the sides of an image
   type, extends(resizing_type), public :: pad2d_type
      !> zeros, replicated or reflected
      integer :: mode = zeros
      !> How many: (left, right, top, bottom)
      integer :: padding(4) = 0
   contains
      procedure :: read => pad_read
      procedure, private :: length => pad_length
      procedure, private :: rule => pad_rule
   end type pad2d_type

   abstract interface
      !> The length of an axis of the output
      pure real(dp) function length_(self, axis, length)
         import :: dp, resizing_type
         implicit none
         class(resizing_type), intent(in) :: self
         !> 1: height, 2: width
         integer, intent(in) :: axis
         !> Of the input
         integer, intent(in) :: length
      end function length_

      !> One of the rules, and what it needs to know of the height and of the width
      pure function rule_(self) result(rule)
         import :: resizing_type
         implicit none
         class(resizing_type), intent(in) :: self
         integer :: rule(3)
      end function rule_
   end interface

contains

   subroutine resizing_shape(self, shapes, y, error)
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
         y = shape_of([nint(width), nint(height), x%extent(3:4)])
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
      class(resizing_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      integer :: rule(3)
      rule = self%rule()
      call self%run(backend, resample_call(operands%x(1), rule(1), rule(2:3), operands%y), error)
   end subroutine resizing_forward

   subroutine resizing_backward(self, backend, operands, error)
      class(resizing_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      integer :: rule(3)
      rule = self%rule()
      call self%run(backend, resample_backward_call(operands%dy, rule(1), rule(2:3), operands%dx(1)), error)
   end subroutine resizing_backward

   subroutine upsample_read(self, given, error)
      class(upsample2d_type), intent(inout) :: self
      !> scale_factor; of an interpolation also align_corners
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("scale_factor", self%factor, error, 1)
      if (.not. allocated(error) .and. self%is_linear) call given%get_flag("align_corners", self%align_corners, error, &
         & .false.)
   end subroutine upsample_read

   pure real(dp) function upsample_length(self, axis, length)
      class(upsample2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      upsample_length = real(length, dp)*self%factor(axis)
   end function upsample_length

   pure function upsample_rule(self) result(rule)
      class(upsample2d_type), intent(in) :: self
      integer :: rule(3)
      rule = [nearest, self%factor]
      if (self%is_linear) rule(1) = merge(linear_aligned, linear, self%align_corners)
   end function upsample_rule

   subroutine adaptive_read(self, given, error)
      class(adaptive_avg_pool2d_type), intent(inout) :: self
      !> output_size
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("output_size", self%output_size, error, 1)
   end subroutine adaptive_read

   pure real(dp) function adaptive_length(self, axis, length)
      class(adaptive_avg_pool2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      associate (unused => length)
      end associate
      adaptive_length = self%output_size(axis)
   end function adaptive_length

   pure function adaptive_rule(self) result(rule)
      class(adaptive_avg_pool2d_type), intent(in) :: self
      integer :: rule(3)
      rule = [averaged, self%output_size]
   end function adaptive_rule

   subroutine pad_read(self, given, error)
      class(pad2d_type), intent(inout) :: self
      !> padding
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("padding", self%padding, error, 0)
   end subroutine pad_read

   pure real(dp) function pad_length(self, axis, length)
      class(pad2d_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the input
      integer, intent(in) :: length
      integer :: last
      last = merge(4, 2, axis == 1)
      pad_length = real(length, dp) + self%padding(last - 1) + self%padding(last)
   end function pad_length

   pure function pad_rule(self) result(rule)
      class(pad2d_type), intent(in) :: self
      integer :: rule(3)
      rule = [self%mode, self%padding(3), self%padding(1)]
   end function pad_rule

   subroutine interpolate_read(self, given, error)
      class(interpolate_type), intent(inout) :: self
      !> degree, size or scale_factor, align_corners, exact
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      real(dp), allocatable :: factors(:)
      integer :: found(1)
      call given%get_integers("degree", found, error, 0)
      if (.not. allocated(error)) call given%get_integers("size", self%size, error, 0, default=0)
      if (.not. allocated(error)) call given%get_reals("scale_factor", factors, error)
      if (.not. allocated(error)) call given%get_flag("align_corners", self%align_corners, error, .false.)
      if (.not. allocated(error)) call given%get_flag("exact", self%exact, error, .false.)
      if (allocated(error)) return
      self%degree = found(1)
      if (size(factors) == 2) self%factor = factors
      if (all(self%degree /= [0, 1, 3])) then
         call self%refuse("degree "//to_text(self%degree), "0, 1 or 3", error)
      else if (all(size(factors) /= [0, 2]) .or. (any(self%size > 0) .eqv. any(self%factor > 0.0_dp)) .or. &
         & .not. (all(self%size > 0) .or. all(self%factor > 0.0_dp))) then
         call self%refuse("size "//to_text(self%size)//" and scale_factor", "one of them, of two numbers", error)
      end if
   end subroutine interpolate_read

   subroutine interpolate_shape(self, shapes, y, error)
      class(interpolate_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, and what becomes of h and w)
      type(shape_type), intent(out) :: y
      !> No image, none or too many pixels of the output
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: wanted(2)
      associate (x => shapes(1))
         if (x%rank /= 4) then
            call self%refuse("input "//x%text(), "a shape (n, c, h, w)", error)
            return
         end if
         wanted = real(self%size, dp)
         if (all(self%size == 0)) wanted = aint(x%extent([2, 1])*self%factor)
         if (any(wanted < 1.0_dp .or. wanted > huge(1))) then
            call self%refuse("input "//x%text(), "1 or more rows and columns of the output, less than 2**31", error)
            return
         end if
         y = shape_of([nint(wanted([2, 1])), x%extent(3:4)])
      end associate
   end subroutine interpolate_shape

   !> See `interpolated_place` in formulas.inc
   pure integer function interpolate_mode(self)
      class(interpolate_type), intent(in) :: self
      interpolate_mode = merge(2, 1, self%exact)
      if (self%degree == 1) interpolate_mode = merge(4, 3, self%align_corners)
      if (self%degree == 3) interpolate_mode = merge(6, 5, self%align_corners)
   end function interpolate_mode

   !> Pixels of an axis for each of the resized one; of the nearest pixels in float32, in which as many pixels, and
   !> twice as many, are copies whatever the factor was; between two pixels as many are
   pure real(dp) function interpolate_scale(self, axis, length, resized)
      class(interpolate_type), intent(in) :: self
      !> 1: height, 2: width
      integer, intent(in) :: axis
      !> Of the axis
      integer, intent(in) :: length
      !> Of the resized one
      integer, intent(in) :: resized
      if (self%degree == 0) then
         interpolate_scale = real(length, sp)/real(resized, sp)
         if (self%size(axis) == 0 .and. (self%exact .or. all(resized /= [length, 2*length]))) then
            interpolate_scale = real(1.0_dp/self%factor(axis), sp)
         end if
      else if (self%degree == 1 .and. length == resized) then
         interpolate_scale = 1.0_dp
      else if (self%align_corners) then
         interpolate_scale = real(length - 1, dp)/max(resized - 1, 1)
      else if (self%size(axis) == 0) then
         interpolate_scale = 1.0_dp/self%factor(axis)
      else
         interpolate_scale = real(length, dp)/resized
      end if
   end function interpolate_scale

   subroutine interpolate_forward(self, backend, operands, error)
      class(interpolate_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (x => operands%x(1), y => operands%y)
         call self%run(backend, interpolate_call(x, self%mode(), [self%scale(1, x%extent(2), y%extent(2)), &
            & self%scale(2, x%extent(1), y%extent(1))], y), error)
      end associate
   end subroutine interpolate_forward

   subroutine interpolate_backward(self, backend, operands, error)
      class(interpolate_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (dx => operands%dx(1), dy => operands%dy)
         call self%run(backend, interpolate_backward_call(dy, self%mode(), [self%scale(1, dx%extent(2), dy%extent(2)), &
            & self%scale(2, dx%extent(1), dy%extent(1))], dx), error)
      end associate
   end subroutine interpolate_backward

end module cnn_operations_resizing
