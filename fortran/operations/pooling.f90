! SPDX-License-Identifier: MIT
!> Operations that take one number out of each window of an image. Pairs are (height, width).
module cnn_operations_pooling
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : avg_pool_backward_call, avg_pool_call, max_pool_backward_call, max_pool_call
   use cnn_core_error, only : error_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Windows of an image, and what padding surrounds it
   type, abstract, extends(operation_type) :: pooling_type
      integer :: kernel(2) = 1, stride(2) = 1, padding(2) = 0
   contains
      procedure :: read => pooling_read
      procedure :: find_shape => pooling_shape
   end type pooling_type

   !> The largest number of each window; its gradient goes to where that stood, of equal ones to the first
   type, extends(pooling_type), public :: max_pool2d_type
   contains
      procedure, nopass :: reads_y => no
      procedure :: forward => max_forward
      procedure :: backward => max_backward
   end type max_pool2d_type

   !> The mean of each window, in which padding counts as zeros
   type, extends(pooling_type), public :: avg_pool2d_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure :: forward => avg_forward
      procedure :: backward => avg_backward
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
      !> kernel_size, stride, padding
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integers("kernel_size", self%kernel, error, 1)
      if (.not. allocated(error)) call given%get_integers("stride", self%stride, error, 1)
      if (.not. allocated(error)) call given%get_integers("padding", self%padding, error, 0, default=0)
   end subroutine pooling_read

   subroutine pooling_shape(self, shapes, y, error)
      class(pooling_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, number of windows in h, in w)
      type(shape_type), intent(out) :: y
      !> No image, one that is smaller than a window, or a window that may lie outside
      type(error_type), allocatable, intent(out) :: error
      integer :: windows(2)
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
         windows = x%extent([2, 1]) + 2*self%padding - self%kernel
         if (any(windows < 0)) then
            call self%refuse("input "//x%text(), "an image of the kernel's size "//to_text(self%kernel)// &
               & " or more", error)
            return
         end if
         windows = windows/self%stride + 1
         y = shape_of([windows(2), windows(1), x%extent(3), x%extent(4)])
      end associate
   end subroutine pooling_shape

   subroutine max_forward(self, backend, operands, error)
      class(max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, max_pool_call(operands%x(1), self%kernel, self%stride, self%padding, operands%y), error)
   end subroutine max_forward

   subroutine max_backward(self, backend, operands, error)
      class(max_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, max_pool_backward_call(operands%x(1), operands%dy, self%kernel, self%stride, &
         & self%padding, operands%dx(1)), error)
   end subroutine max_backward

   subroutine avg_forward(self, backend, operands, error)
      class(avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, avg_pool_call(operands%x(1), self%kernel, self%stride, self%padding, operands%y), error)
   end subroutine avg_forward

   subroutine avg_backward(self, backend, operands, error)
      class(avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, avg_pool_backward_call(operands%dy, self%kernel, self%stride, self%padding, &
         & operands%dx(1)), error)
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
      call self%run(backend, avg_pool_call(operands%x(1), operands%x(1)%extent([2, 1]), [1, 1], [0, 0], operands%y), &
         & error)
   end subroutine global_forward

   subroutine global_backward(self, backend, operands, error)
      class(global_avg_pool2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, avg_pool_backward_call(operands%dy, operands%dx(1)%extent([2, 1]), [1, 1], [0, 0], &
         & operands%dx(1)), error)
   end subroutine global_backward

end module cnn_operations_pooling
