! SPDX-License-Identifier: MIT
!> Operations that take one number out of each window of an image. Pairs are (height, width).
module cnn_operations_pooling
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : avg_pool_backward_call, avg_pool_call, extreme_backward_call, extreme_call, &
      & max_pool_backward_call, max_pool_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Windows of an image, and what padding surrounds it
   type, abstract, extends(operation_type) :: pooling_type
      !> A kernel of 0 is that of windows that all pixels are in
      integer :: kernel(2) = 1, stride(2) = 1, padding(2) = 0, dilation(2) = 1
      !> Whether there is one more window, which reaches beyond the padding
      logical :: ceil_mode = .false.
   contains
      procedure, nopass :: reads_y => no
      procedure :: read => pooling_read
      procedure :: find_shape => pooling_shape
   end type pooling_type

   !> The largest number of each window; its gradient goes to where that stood, of equal ones to the first
   type, extends(pooling_type), public :: max_pool2d_type
   contains
      procedure :: read => max_read
      procedure :: forward => max_forward
      procedure :: backward => max_backward
   end type max_pool2d_type

   !> The same of as many windows as wanted
   type, extends(max_pool2d_type), public :: adaptive_max_pool2d_type
      !> How many: (height, width)
      integer :: output_size(2) = 1
   contains
      procedure, nopass :: reads_y => yes
      procedure :: read => adaptive_read
      procedure :: find_shape => adaptive_shape
      procedure :: forward => adaptive_forward
      procedure :: backward => adaptive_backward
   end type adaptive_max_pool2d_type

   !> The mean of each window, in which padding counts as zeros
   type, extends(pooling_type), public :: avg_pool2d_type
      !> Whether it counts
      logical :: count_include_pad = .true.
      !> In the place of the count; 0: there is none
      integer :: divisor_override = 0
   contains
      procedure, nopass :: reads_x => no
      procedure :: read => avg_read
      procedure :: forward => avg_forward
      procedure :: backward => avg_backward
      procedure, private :: divisor => avg_divisor
   end type avg_pool2d_type

   !> The mean of each channel, (n, c, 1, 1): one window, as large as the image
   type, extends(operation_type), public :: global_avg_pool2d_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: find_shape => global_shape
      procedure :: forward => global_forward
      procedure :: backward => global_backward
   end type global_avg_pool2d_type

contains

   subroutine pooling_read(self, given, error)
      class(pooling_type), intent(inout) :: self
      !> kernel_size, stride, padding, ceil_mode
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("kernel_size", self%kernel, error, 1)
      if (.not. allocated(error)) call given%get_integers("stride", self%stride, error, 1)
      if (.not. allocated(error)) call given%get_integers("padding", self%padding, error, 0, default=0)
      if (.not. allocated(error)) call given%get_flag("ceil_mode", self%ceil_mode, error, .false.)
   end subroutine pooling_read

   subroutine max_read(self, given, error)
      class(max_pool2d_type), intent(inout) :: self
      !> Those of all windows, and dilation
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call pooling_read(self, given, error)
      if (.not. allocated(error)) call given%get_integers("dilation", self%dilation, error, 1, default=1)
   end subroutine max_read

   subroutine adaptive_read(self, given, error)
      class(adaptive_max_pool2d_type), intent(inout) :: self
      !> output_size
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      self%kernel = 0
      call given%get_integers("output_size", self%output_size, error, 1)
   end subroutine adaptive_read

   subroutine avg_read(self, given, error)
      class(avg_pool2d_type), intent(inout) :: self
      !> Those of all windows, count_include_pad, divisor_override
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      integer :: found(1)
      call pooling_read(self, given, error)
      if (.not. allocated(error)) call given%get_flag("count_include_pad", self%count_include_pad, error, .true.)
      if (allocated(error)) return
      call given%get_integers("divisor_override", found, error, 0, default=0)
      self%divisor_override = found(1)
   end subroutine avg_read

   subroutine pooling_shape(self, shapes, y, error)
      class(pooling_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, number of windows in h, in w)
      type(shape_type), intent(out) :: y
      !> No image, one that is smaller than a window, or a window that may lie outside
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: room(2)
      integer :: windows(2), beyond(2)
      associate (x => shapes(1))
         if (x%rank /= 4) then
            call self%refuse("input "//x%text(), "a shape (n, c, h, w)", error)
            return
         end if
         if (any(2*self%padding > self%kernel)) then
            call self%refuse("padding "//to_text(self%padding), "at most half of the kernel "// &
               & to_text(self%kernel), error)
            return
         end if
         beyond = merge(self%stride - 1, 0, self%ceil_mode)
         room = x%extent([2, 1]) + 2_i8*self%padding - int(self%dilation, i8)*(self%kernel - 1) - 1 + beyond
         if (any(room < 0)) then
            call self%refuse("input "//x%text(), "an image of the kernel's size "//to_text(self%kernel)// &
               & " or more", error)
            return
         end if
         if (any(self%padding > 0 .and. self%dilation > x%extent([2, 1]))) then
            call self%refuse("input "//x%text(), "an image of the size of the dilation "//to_text(self%dilation)// &
               & " or more", error)
            return
         end if
         windows = int(room/self%stride) + 1
         where (self%ceil_mode .and. (windows - 1)*self%stride >= x%extent([2, 1]) + self%padding) windows = windows - 1
         y = shape_of([windows(2), windows(1), x%extent(3), x%extent(4)])
      end associate
   end subroutine pooling_shape

   subroutine adaptive_shape(self, shapes, y, error)
      class(adaptive_max_pool2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, and the size)
      type(shape_type), intent(out) :: y
      !> No image
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank == 4) then
         y = shape_of([self%output_size(2), self%output_size(1), shapes(1)%extent(3:4)])
      else
         call self%refuse("input "//shapes(1)%text(), "a shape (n, c, h, w)", error)
      end if
   end subroutine adaptive_shape

   subroutine max_forward(self, backend, operands, error)
      class(max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, max_pool_call(operands%x(1), self%kernel, self%stride, self%padding, self%dilation, &
         & operands%y), error)
   end subroutine max_forward

   subroutine max_backward(self, backend, operands, error)
      class(max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, max_pool_backward_call(operands%x(1), operands%dy, self%kernel, self%stride, &
         & self%padding, self%dilation, operands%dx(1)), error)
   end subroutine max_backward

   !> Of the whole image as other reductions are
   subroutine adaptive_forward(self, backend, operands, error)
      class(adaptive_max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (all(self%output_size == 1)) then
         call self%run(backend, extreme_call(operands%x(1), 1, operands%y), error)
      else
         call max_forward(self, backend, operands, error)
      end if
   end subroutine adaptive_forward

   subroutine adaptive_backward(self, backend, operands, error)
      class(adaptive_max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy, x and y
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (all(self%output_size == 1)) then
         call self%run(backend, extreme_backward_call(operands%x(1), operands%y, operands%dy, .true., operands%dx(1)), &
            & error)
      else
         call max_backward(self, backend, operands, error)
      end if
   end subroutine adaptive_backward

   !> What sums are divided by, if it is the same for all; 0: what is inside the image counts, -1: the padding, too
   pure real(dp) function avg_divisor(self, images, windows)
      class(avg_pool2d_type), intent(in) :: self
      !> Extents (w, h)
      integer, intent(in) :: images(2)
      !> How many (q, p)
      integer, intent(in) :: windows(2)
      integer :: around(2)
      avg_divisor = self%divisor_override
      if (self%divisor_override > 0) return
      avg_divisor = merge(-1.0_dp, 0.0_dp, self%count_include_pad)
      around = merge(self%padding, 0, self%count_include_pad)
      ! No window begins before what counts, and none ends behind it
      if (all(around == self%padding .and. (windows([2, 1]) - 1)*self%stride + self%kernel <= images([2, 1]) + &
         & 2*self%padding)) avg_divisor = product(real(self%kernel, dp))
   end function avg_divisor

   subroutine avg_forward(self, backend, operands, error)
      class(avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, avg_pool_call(operands%x(1), self%kernel, self%stride, self%padding, &
         & self%divisor(operands%x(1)%extent(:2), operands%y%extent(:2)), operands%y), error)
   end subroutine avg_forward

   subroutine avg_backward(self, backend, operands, error)
      class(avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, avg_pool_backward_call(operands%dy, self%kernel, self%stride, self%padding, &
         & self%divisor(operands%dx(1)%extent(:2), operands%dy%extent(:2)), operands%dx(1)), error)
   end subroutine avg_backward

   subroutine global_shape(self, shapes, y, error)
      class(global_avg_pool2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, 1, 1)
      type(shape_type), intent(out) :: y
      !> No image
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank == 4) then
         y = shape_of([1, 1, shapes(1)%extent(3:4)])
      else
         call self%refuse("input "//shapes(1)%text(), "a shape (n, c, h, w)", error)
      end if
   end subroutine global_shape

   subroutine global_forward(self, backend, operands, error)
      class(global_avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (whole => operands%x(1)%extent([2, 1]))
         call self%run(backend, avg_pool_call(operands%x(1), whole, [1, 1], [0, 0], product(real(whole, dp)), &
            & operands%y), error)
      end associate
   end subroutine global_forward

   subroutine global_backward(self, backend, operands, error)
      class(global_avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (whole => operands%dx(1)%extent([2, 1]))
         call self%run(backend, avg_pool_backward_call(operands%dy, whole, [1, 1], [0, 0], product(real(whole, dp)), &
            & operands%dx(1)), error)
      end associate
   end subroutine global_backward

end module cnn_operations_pooling
