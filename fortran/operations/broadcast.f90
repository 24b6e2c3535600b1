! SPDX-License-Identifier: MIT
!> Sums of host tensors whose extents agree or are 1, in either precision.
module cnn_operations_broadcast
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use cnn_core_kinds, only : dp, dtype_float32, sp
   use cnn_core_tensor, only : as_vector, tensor_type
   use cnn_operations_loops_f32, only : accumulate_f32 => accumulate_loop, &
      & add_f32 => add_loops, sum_f32 => sum_loops
   use cnn_operations_loops_f64, only : accumulate_f64 => accumulate_loop, &
      & add_f64 => add_loops, sum_f64 => sum_loops
   implicit none
   private

   public :: accumulate, add_broadcast, sum_to

contains

   !> y = y + x
   subroutine accumulate(x, y)
      !> What is added, of the shape of y
      type(tensor_type), intent(in) :: x
      !> What it is added to
      type(tensor_type), intent(in) :: y
      real(sp), pointer, contiguous :: x4(:), y4(:)
      real(dp), pointer, contiguous :: x8(:), y8(:)
      if (y%dtype == dtype_float32) then
         call as_vector(x, x4)
         call as_vector(y, y4)
         call accumulate_f32(x4, y4)
      else
         call as_vector(x, x8)
         call as_vector(y, y8)
         call accumulate_f64(x8, y8)
      end if
   end subroutine accumulate

   !> y = a + b; an operand's only element along an axis stands for all
   subroutine add_broadcast(a, b, y)
      !> Extents of y, or 1
      type(tensor_type), intent(in) :: a
      !> Extents of y, or 1
      type(tensor_type), intent(in) :: b
      !> The sum, is overwritten
      type(tensor_type), intent(in) :: y
      real(sp), pointer, contiguous :: a4(:, :, :, :), b4(:, :, :, :), y4(:, :, :, :)
      real(dp), pointer, contiguous :: a8(:, :, :, :), b8(:, :, :, :), y8(:, :, :, :)
      if (y%dtype == dtype_float32) then
         call c_f_pointer(a%address, a4, a%extent)
         call c_f_pointer(b%address, b4, b%extent)
         call c_f_pointer(y%address, y4, y%extent)
         call add_f32(a4, b4, y4)
      else
         call c_f_pointer(a%address, a8, a%extent)
         call c_f_pointer(b%address, b8, b%extent)
         call c_f_pointer(y%address, y8, y%extent)
         call add_f64(a8, b8, y8)
      end if
   end subroutine add_broadcast

   !> Sums of y over the axes along which x has only one element
   subroutine sum_to(y, x)
      !> What is summed
      type(tensor_type), intent(in) :: y
      !> The sums, are overwritten; extents of y, or 1
      type(tensor_type), intent(in) :: x
      real(sp), pointer, contiguous :: x4(:, :, :, :), y4(:, :, :, :)
      real(dp), pointer, contiguous :: x8(:, :, :, :), y8(:, :, :, :)
      if (y%dtype == dtype_float32) then
         call c_f_pointer(x%address, x4, x%extent)
         call c_f_pointer(y%address, y4, y%extent)
         call sum_f32(y4, x4)
      else
         call c_f_pointer(x%address, x8, x%extent)
         call c_f_pointer(y%address, y8, y%extent)
         call sum_f64(y8, x8)
      end if
   end subroutine sum_to

end module cnn_operations_broadcast
