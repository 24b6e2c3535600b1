! SPDX-License-Identifier: MIT
!> Passes of one image after the other: where the images of a tensor are not one behind the other in memory.
module cnn_model_by_image
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : part_of, tensor_type
   use cnn_operations_operation, only : operands_type, operation_type
   implicit none
   private

   public :: run_by_image

contains

   !> A pass of an operation that has neither parameters nor state
   subroutine run_by_image(operation, backend, operands, apart, backward, error)
      !> One that `is_light`
      class(operation_type), intent(in) :: operation
      class(backend_type), intent(in) :: backend
      !> Images of rank 4
      type(operands_type), intent(in) :: operands
      !> Bytes from one image of the output to the next, and of its gradient; those of others lie one behind the other
      integer(i8), intent(in) :: apart
      !> Which pass
      logical, intent(in) :: backward
      type(error_type), allocatable, intent(out) :: error
      type(operands_type) :: one
      integer :: i, j
      one = operands
      do i = 1, operands%y%extent(4)
         one%y = image_of(operands%y, i, apart)
         one%dy = image_of(operands%dy, i, apart)
         do j = 1, size(operands%x)
            one%x(j) = image_of(operands%x(j), i)
            one%dx(j) = image_of(operands%dx(j), i)
         end do
         if (backward) then
            call operation%backward(backend, one, error)
         else
            call operation%forward(backend, one, error)
         end if
         if (allocated(error)) return
      end do
   end subroutine run_by_image

   !> One image of a tensor
   type(tensor_type) function image_of(tensor, i, apart)
      !> Images (w, h, c, n)
      type(tensor_type), intent(in) :: tensor
      !> Its number, from 1
      integer, intent(in) :: i
      !> Bytes from one image to the next; those of one image where there is nothing between them
      integer(i8), intent(in), optional :: apart
      integer(i8) :: bytes
      bytes = tensor%bytes()/tensor%extent(4)
      if (present(apart)) bytes = apart
      image_of = part_of(tensor, (i - 1)*bytes, [tensor%extent(:3), 1])
   end function image_of

end module cnn_model_by_image
