! SPDX-License-Identifier: MIT
!> Operations that change the size of an image.
module cnn_operations_resizing
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_loops_f32, only : repeat_backward_f32 => repeat_backward_loops, repeat_f32 => repeat_loops
   use cnn_operations_loops_f64, only : repeat_backward_f64 => repeat_backward_loops, repeat_f64 => repeat_loops
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Each pixel repeated
   type, extends(operation_type), public :: upsample_nearest2d_type
      !> How often: (height, width)
      integer :: factor(2) = 1
   contains
      procedure :: read => upsample_read
      procedure :: find_shape => upsample_shape
      procedure :: forward => upsample_forward
      procedure :: backward => upsample_backward
   end type upsample_nearest2d_type

contains

   subroutine upsample_read(self, given, error)
      !> With its name
      class(upsample_nearest2d_type), intent(inout) :: self
      !> scale_factor
      type(attributes_type), intent(inout) :: given
      !> Missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      call given%get_pair("scale_factor", self%factor, error, 1)
   end subroutine upsample_read

   subroutine upsample_shape(self, shapes, y, error)
      !> The node
      class(upsample_nearest2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, h and w times the factors)
      type(shape_type), intent(out) :: y
      !> No image, or too many pixels for an index
      type(error_type), allocatable, intent(out) :: error
      associate (x => shapes(1))
         if (x%rank /= 4) then
            call self%refuse("input "//x%text(), "a shape (n, c, h, w)", error)
         else if (any(real(x%extent(:2), dp)*self%factor([2, 1]) > huge(1))) then
            call self%refuse("input "//x%text(), "fewer than 2**31 rows and columns of the output", error)
         else
            y = shape_of([x%extent(:2)*self%factor([2, 1]), x%extent(3:)])
         end if
      end associate
   end subroutine upsample_shape

   subroutine upsample_forward(self, backend, operands, error)
      !> The node
      class(upsample_nearest2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%require(backend, operands%y, error)
      if (allocated(error)) return
      if (operands%y%dtype == dtype_float32) then
         call repeat_f32(operands%x(1), self%factor, operands%y)
      else
         call repeat_f64(operands%x(1), self%factor, operands%y)
      end if
   end subroutine upsample_forward

   subroutine upsample_backward(self, backend, operands, error)
      !> The node
      class(upsample_nearest2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      call self%require(backend, operands%dy, error)
      if (allocated(error)) return
      if (operands%dy%dtype == dtype_float32) then
         call repeat_backward_f32(operands%dy, self%factor, operands%dx(1))
      else
         call repeat_backward_f64(operands%dy, self%factor, operands%dx(1))
      end if
   end subroutine upsample_backward

end module cnn_operations_resizing
