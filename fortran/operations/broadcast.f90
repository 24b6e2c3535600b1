! SPDX-License-Identifier: MIT
!> Sums of host tensors whose extents agree or are 1, in either precision.
module cnn_operations_broadcast
   use cnn_core_tensor, only : tensor_type
   use cnn_operations_loops, only : loops_of
   use cnn_operations_loops_table, only : loops_type
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
      type(loops_type) :: loops
      loops = loops_of(y%dtype)
      call loops%accumulate(x, y)
   end subroutine accumulate

   !> y = a + b; an operand's only element along an axis stands for all
   subroutine add_broadcast(a, b, y)
      !> Extents of y, or 1
      type(tensor_type), intent(in) :: a
      !> Extents of y, or 1
      type(tensor_type), intent(in) :: b
      !> The sum, is overwritten
      type(tensor_type), intent(in) :: y
      type(loops_type) :: loops
      loops = loops_of(y%dtype)
      call loops%add(a, b, y)
   end subroutine add_broadcast

   !> Sums of y over the axes along which x has only one element
   subroutine sum_to(y, x)
      !> What is summed
      type(tensor_type), intent(in) :: y
      !> The sums, are overwritten; extents of y, or 1
      type(tensor_type), intent(in) :: x
      type(loops_type) :: loops
      loops = loops_of(y%dtype)
      call loops%sum_to(y, x)
   end subroutine sum_to

end module cnn_operations_broadcast
