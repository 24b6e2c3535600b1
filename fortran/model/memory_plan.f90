! SPDX-License-Identifier: MIT
!> One piece of memory for many tensors that are not all needed at the same time.
module cnn_model_memory_plan
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : aligned
   implicit none
   private

   public :: place

   !> Memory that is needed from one time to another, both included, and perhaps once more later
   type, public :: buffer_type
      integer(i8) :: bytes = 0_i8
      integer :: first(2) = huge(1), last(2) = -huge(1)
      !> Where it lies, in bytes from the start
      integer(i8) :: offset = 0_i8
   contains
      procedure :: extend
      procedure :: covers
      procedure :: cover
   end type buffer_type

contains

   !> Make a buffer last from this time, or until it
   pure subroutine extend(self, time)
      class(buffer_type), intent(inout) :: self
      !> When it is needed, too
      integer, intent(in) :: time
      self%first(1) = min(self%first(1), time)
      self%last(1) = max(self%last(1), time)
   end subroutine extend

   !> Whether a buffer is needed at a time
   pure logical function covers(self, time)
      class(buffer_type), intent(in) :: self
      !> Any
      integer, intent(in) :: time
      covers = any(self%first <= time .and. time <= self%last)
   end function covers

   !> Make a buffer last as long as another, which is part of it
   pure subroutine cover(self, part)
      class(buffer_type), intent(inout) :: self
      !> The other, which needs no bytes of its own any more
      type(buffer_type), intent(inout) :: part
      self%first = min(self%first, part%first)
      self%last = max(self%last, part%last)
      part%bytes = 0_i8
   end subroutine cover

   !> Offsets of buffers, of which those that are needed at the same time do not overlap: the largest first, each as far
   !> down as it fits. That is "greedy by size" of Y. Pisarchyk and J. Lee, Efficient memory management for deep neural
   !> net inference, arXiv:2001.03288 (2020)
   pure subroutine place(buffers, bytes)
      !> Sizes and times; their offsets are set
      type(buffer_type), intent(inout) :: buffers(:)
      !> Of all together
      integer(i8), intent(out) :: bytes
      integer :: order(size(buffers)), n
      bytes = 0_i8
      call sort_by_size(buffers, order)
      do n = 1, size(buffers)
         call place_one(buffers, order(:n - 1), order(n))
         bytes = max(bytes, buffers(order(n))%offset + aligned(buffers(order(n))%bytes))
      end do
   end subroutine place

   !> The lowest gap between those that are placed already
   pure subroutine place_one(buffers, placed, i)
      !> All
      type(buffer_type), intent(inout) :: buffers(:)
      !> Numbers of those that have offsets
      integer, intent(in) :: placed(:)
      !> Number of the one that gets its offset
      integer, intent(in) :: i
      logical :: moved
      integer :: n
      buffers(i)%offset = 0_i8
      ! It moves up past each that is in its way until none is
      moved = .true.
      do while (moved)
         moved = .false.
         do n = 1, size(placed)
            if (.not. collide(buffers(i), buffers(placed(n)))) cycle
            buffers(i)%offset = buffers(placed(n))%offset + aligned(buffers(placed(n))%bytes)
            moved = .true.
         end do
      end do
   end subroutine place_one

   !> Whether two buffers have memory in common while both are needed
   pure logical function collide(a, b)
      !> One
      type(buffer_type), intent(in) :: a
      !> The other
      type(buffer_type), intent(in) :: b
      integer :: i
      collide = any([(a%first(i) <= b%last .and. b%first <= a%last(i), i=1, 2)]) .and. &
         & a%offset < b%offset + aligned(b%bytes) .and. b%offset < a%offset + aligned(a%bytes)
   end function collide

   !> Numbers of buffers, the largest first, of equal ones the first (insertion sort: there are few)
   pure subroutine sort_by_size(buffers, order)
      !> With sizes
      type(buffer_type), intent(in) :: buffers(:)
      !> Their numbers
      integer, intent(out) :: order(:)
      integer :: i, j
      do i = 1, size(buffers)
         j = i
         do while (j > 1)
            if (buffers(order(j - 1))%bytes >= buffers(i)%bytes) exit
            order(j) = order(j - 1)
            j = j - 1
         end do
         order(j) = i
      end do
   end subroutine sort_by_size

end module cnn_model_memory_plan
