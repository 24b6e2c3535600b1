! SPDX-License-Identifier: MIT
!> Operations that take one number out of each window of a volume (n, c, d, h, w): one of each plane of it, and of these
!> one along the depth. Three numbers are (depth, height, width).
module cnn_operations_volumes_pooling
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : avg_pool_backward_call, avg_pool_call, max_pool_backward_call, max_pool_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : aligned, extent_of, part_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Windows of a volume, and what padding surrounds it
   type, abstract, extends(operation_type) :: pooling_type
      integer :: kernel(3) = 1, stride(3) = 1, padding(3) = 0
   contains
      procedure, nopass :: reads_y => no
      procedure :: read => pooling_read
      procedure :: find_shape => pooling_shape
      procedure :: scratch_bytes => pooling_scratch
   end type pooling_type

   !> The largest number of each window; its gradient goes to where that stood, of equal ones to the first
   type, extends(pooling_type), public :: max_pool3d_type
   contains
      procedure :: forward => max_forward
      procedure :: backward => max_backward
   end type max_pool3d_type

   !> The mean of each window, in which padding counts as zeros
   type, extends(pooling_type), public :: avg_pool3d_type
   contains
      procedure, nopass :: reads_x => no
      procedure :: forward => avg_forward
      procedure :: backward => avg_backward
   end type avg_pool3d_type

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
      !> (n, c, number of windows in d, in h, in w)
      type(shape_type), intent(out) :: y
      !> No volume, one that is smaller than a window, or a window that may lie outside
      type(error_type), allocatable, intent(out) :: error
      integer :: windows(3)
      associate (x => shapes(1))
         if (x%rank /= 5) then
            call self%refuse("input "//x%text(), "a shape (n, c, d, h, w)", error)
            return
         end if
         if (any(2*self%padding > self%kernel)) then
            call self%refuse("padding "//to_text(self%padding), "at most half of the kernel "// &
               & to_text(self%kernel), error)
            return
         end if
         windows = x%extent([3, 2, 1]) + 2*self%padding - self%kernel
         if (any(windows < 0)) then
            call self%refuse("input "//x%text(), "a volume of the kernel's size "//to_text(self%kernel)//" or more", &
               & error)
            return
         end if
         windows = windows/self%stride + 1
         y = shape_of([windows([3, 2, 1]), x%extent(4:5)])
      end associate
   end subroutine pooling_shape

   !> What all planes become, and the gradient with respect to that
   pure integer(i8) function pooling_scratch(self, in_host_memory, x, y)
      class(pooling_type), intent(in) :: self
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      associate (unused => self, unused_too => in_host_memory)
      end associate
      pooling_scratch = 2*aligned(y%bytes()/y%extent(3)*x%extent(3))
   end function pooling_scratch

   !> The planes of each channel as channels
   pure type(tensor_type) function planes(x)
      !> Volumes
      type(tensor_type), intent(in) :: x
      planes = x
      planes%extent = extent_of([x%extent(:2), x%extent(3)*x%extent(4), x%extent(5)])
   end function planes

   !> The pixels of each plane as one row
   pure type(tensor_type) function rows(x)
      !> Volumes
      type(tensor_type), intent(in) :: x
      rows = x
      rows%extent = extent_of([x%extent(1)*x%extent(2), x%extent(3:5)])
   end function rows

   !> One of the two tensors between planes and output
   type(tensor_type) function between(scratch, number, x, y)
      !> Their memory
      type(tensor_type), intent(in) :: scratch
      !> From 0
      integer, intent(in) :: number
      !> Input
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      between = part_of(scratch, number*aligned(y%bytes()/y%extent(3)*x%extent(3)), [y%extent(:2), x%extent(3:5)])
   end function between

   !> The largest number of each window of planes
   subroutine max_of_planes(self, backend, x, t, error)
      class(max_pool3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Input
      type(tensor_type), intent(in) :: x
      !> They, are overwritten
      type(tensor_type), intent(in) :: t
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, max_pool_call(planes(x), self%kernel(2:), self%stride(2:), self%padding(2:), [1, 1], &
         & planes(t)), error)
   end subroutine max_of_planes

   subroutine max_forward(self, backend, operands, error)
      class(max_pool3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: t
      t = between(operands%scratch, 0, operands%x(1), operands%y)
      call max_of_planes(self, backend, operands%x(1), t, error)
      if (allocated(error)) return
      call self%run(backend, max_pool_call(rows(t), [self%kernel(1), 1], [self%stride(1), 1], [self%padding(1), 0], &
         & [1, 1], rows(operands%y)), error)
   end subroutine max_forward

   subroutine max_backward(self, backend, operands, error)
      class(max_pool3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dt, t
      t = between(operands%scratch, 0, operands%x(1), operands%dy)
      dt = between(operands%scratch, 1, operands%x(1), operands%dy)
      call max_of_planes(self, backend, operands%x(1), t, error)
      if (allocated(error)) return
      call self%run(backend, max_pool_backward_call(rows(t), rows(operands%dy), [self%kernel(1), 1], &
         & [self%stride(1), 1], [self%padding(1), 0], [1, 1], rows(dt)), error)
      if (allocated(error)) return
      call self%run(backend, max_pool_backward_call(planes(operands%x(1)), planes(dt), self%kernel(2:), &
         & self%stride(2:), self%padding(2:), [1, 1], planes(operands%dx(1))), error)
   end subroutine max_backward

   subroutine avg_forward(self, backend, operands, error)
      class(avg_pool3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: t
      t = between(operands%scratch, 0, operands%x(1), operands%y)
      call self%run(backend, avg_pool_call(planes(operands%x(1)), self%kernel(2:), self%stride(2:), &
         & self%padding(2:), product(real(self%kernel(2:), dp)), planes(t)), error)
      if (allocated(error)) return
      call self%run(backend, avg_pool_call(rows(t), [self%kernel(1), 1], [self%stride(1), 1], [self%padding(1), 0], &
         & real(self%kernel(1), dp), rows(operands%y)), error)
   end subroutine avg_forward

   subroutine avg_backward(self, backend, operands, error)
      class(avg_pool3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dt
      dt = between(operands%scratch, 1, operands%dx(1), operands%dy)
      call self%run(backend, avg_pool_backward_call(rows(operands%dy), [self%kernel(1), 1], [self%stride(1), 1], &
         & [self%padding(1), 0], real(self%kernel(1), dp), rows(dt)), error)
      if (allocated(error)) return
      call self%run(backend, avg_pool_backward_call(planes(dt), self%kernel(2:), self%stride(2:), self%padding(2:), &
         & product(real(self%kernel(2:), dp)), planes(operands%dx(1))), error)
   end subroutine avg_backward

end module cnn_operations_volumes_pooling
