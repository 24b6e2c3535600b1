! SPDX-License-Identifier: MIT
!> The axes along which a loop goes through several tensors at once: neighbours that all of them have one behind the
!> other are one axis, so that there are few long ones. A stride is a number of elements; 0 where an only element stands
!> for all.
module cnn_core_axes
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : max_rank
   implicit none
   private

   public :: merged, moves, strides_in, strides_of

   !> Most tensors of a loop
   integer, parameter, public :: most_tensors = 4

   type, public :: axes_type
      !> Number of axes, from 1 on
      integer :: rank = 1
      integer(i8) :: extent(max_rank) = 1_i8
      !> (axis, tensor)
      integer(i8) :: stride(max_rank, most_tensors) = 0_i8
   contains
      procedure :: count => axes_count
      procedure :: places
      procedure :: chosen
      procedure :: rows
   end type axes_type

contains

   !> The axes of a loop without those of one element; one of one element where no other is
   pure type(axes_type) function merged(extent, strides) result(axes)
      !> Of the loop
      integer, intent(in) :: extent(max_rank)
      !> (axis, tensor)
      integer(i8), intent(in) :: strides(:, :)
      integer :: i, n
      n = size(strides, 2)
      axes%rank = 0
      do i = 1, max_rank
         if (extent(i) == 1) cycle
         if (axes%rank > 0) then
            if (all(strides(i, :) == axes%stride(axes%rank, :n)*axes%extent(axes%rank))) then
               axes%extent(axes%rank) = axes%extent(axes%rank)*extent(i)
               cycle
            end if
         end if
         axes%rank = axes%rank + 1
         axes%extent(axes%rank) = extent(i)
         axes%stride(axes%rank, :n) = strides(i, :)
      end do
      if (axes%rank > 0) return
      axes%rank = 1
      axes%stride(1, :n) = 1
   end function merged

   !> From element to element of a tensor along each axis
   pure function strides_of(extent) result(strides)
      !> Its extents
      integer, intent(in) :: extent(max_rank)
      integer(i8) :: strides(max_rank)
      integer :: i
      strides(1) = 1
      do i = 2, max_rank
         strides(i) = strides(i - 1)*extent(i - 1)
      end do
   end function strides_of

   !> Those of a tensor along the axes of another, 0 where its only element stands for all
   pure function strides_in(extent, whole) result(strides)
      !> Extents of the whole, or 1
      integer, intent(in) :: extent(max_rank)
      !> Extents of the other
      integer, intent(in) :: whole(max_rank)
      integer(i8) :: strides(max_rank)
      strides = merge(0_i8, strides_of(extent), extent == 1 .and. whole > 1)
   end function strides_in

   !> The axes of a loop that brings numbers of one tensor to places in another
   pure type(axes_type) function moves(from, order, from_step, extents, to, to_step)
      !> Extents of the memory that is read
      integer, intent(in) :: from(max_rank)
      !> Which of its axes is gone along, for each axis of the loop
      integer, intent(in) :: order(max_rank)
      !> Elements from one to the next there; 0: always the same, negative: backwards
      integer, intent(in) :: from_step(max_rank)
      !> Of the loop
      integer, intent(in) :: extents(max_rank)
      !> Extents of the memory that is written, whose axes are the loop's
      integer, intent(in) :: to(max_rank)
      !> Elements from one to the next there
      integer, intent(in) :: to_step(max_rank)
      integer(i8) :: strides(max_rank, 2)
      strides(:, 1) = strides_of(from)
      strides(:, 1) = strides(order, 1)*from_step
      strides(:, 2) = strides_of(to)*to_step
      moves = merged(extents, strides)
   end function moves

   !> Elements of the loop
   pure integer(i8) function axes_count(self)
      class(axes_type), intent(in) :: self
      axes_count = product(self%extent(:self%rank))
   end function axes_count

   !> Where an element of the loop is in the memory of each tensor, from 0
   pure function places(self, number)
      class(axes_type), intent(in) :: self
      !> Of the element, from 0
      integer(i8), intent(in) :: number
      integer(i8) :: places(most_tensors)
      integer(i8) :: left, further
      integer :: i
      places = 0
      left = number
      do i = 1, self%rank - 1
         further = left/self%extent(i)
         places = places + (left - further*self%extent(i))*self%stride(i, :)
         left = further
      end do
      places = places + left*self%stride(self%rank, :)
   end function places

   !> Some of the axes, in their order; one of one element where there are none
   pure type(axes_type) function chosen(self, wanted)
      class(axes_type), intent(in) :: self
      !> Of each axis whether it is one of them
      logical, intent(in) :: wanted(:)
      integer :: i
      chosen%rank = 0
      do i = 1, min(self%rank, size(wanted))
         if (.not. wanted(i)) cycle
         chosen%rank = chosen%rank + 1
         chosen%extent(chosen%rank) = self%extent(i)
         chosen%stride(chosen%rank, :) = self%stride(i, :)
      end do
      chosen%rank = max(chosen%rank, 1)
   end function chosen

   !> All axes but the first: each of their elements is a row
   pure type(axes_type) function rows(self)
      class(axes_type), intent(in) :: self
      integer :: i
      rows = self%chosen([(i > 1, i=1, max_rank)])
   end function rows

end module cnn_core_axes
