! SPDX-License-Identifier: MIT
!> The boxes of a tensor that become one number each, where another tensor has one element along some of its axes. A box
!> consists of rows along the first of the merged axes. Where boxes lie beside each other along it, a strip of them is
!> gone through together.
module cnn_core_boxes
   use cnn_core_axes, only : axes_type, merged, most_tensors, strides_in, strides_of
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : max_rank, tensor_type
   implicit none
   private

   public :: boxes_of

   !> Of up to four tensors: the whole, what its boxes become, and two others of the extents of the whole, or 1
   type, public :: boxes_type
      !> Whether there is more than one number in a box
      logical :: sums = .false.
      !> Whether the first axis is one of a box
      logical :: is_along = .false.
      !> Rows of a box
      integer(i8) :: rows = 1_i8
      !> From element to element along the first axis
      integer(i8) :: strides(most_tensors) = 1_i8
      integer(i8), private :: length = 1_i8, strip = 1_i8, strips = 1_i8
      type(axes_type), private :: kept, reduced
   contains
      procedure :: count => boxes_count
      procedure :: find
      procedure :: offsets
   end type boxes_type

contains

   !> The boxes of a tensor
   pure type(boxes_type) function boxes_of(whole, one, strip, third, fourth) result(boxes)
      !> What consists of boxes
      type(tensor_type), intent(in) :: whole
      !> Of its extents, or 1: what they become
      type(tensor_type), intent(in) :: one
      !> Most elements of a strip
      integer, intent(in) :: strip
      !> Another
      type(tensor_type), intent(in), optional :: third
      !> Another
      type(tensor_type), intent(in), optional :: fourth
      integer(i8) :: strides(max_rank, most_tensors)
      type(axes_type) :: axes, rows
      strides = 0
      strides(:, 1) = strides_of(whole%extent)
      strides(:, 2) = strides_in(one%extent, whole%extent)
      if (present(third)) strides(:, 3) = strides_in(third%extent, whole%extent)
      if (present(fourth)) strides(:, 4) = strides_in(fourth%extent, whole%extent)
      axes = merged(whole%extent, strides)
      rows = axes%rows()
      boxes%sums = any(one%extent /= whole%extent)
      boxes%strides = axes%stride(1, :)
      boxes%is_along = boxes%strides(2) == 0
      boxes%length = axes%extent(1)
      boxes%strip = merge(boxes%length, int(strip, i8), boxes%is_along)
      boxes%strips = (boxes%length - 1)/boxes%strip + 1
      boxes%kept = rows%chosen(rows%stride(:rows%rank, 2) /= 0)
      boxes%reduced = rows%chosen(rows%stride(:rows%rank, 2) == 0)
      boxes%rows = boxes%reduced%count()
   end function boxes_of

   !> Boxes, or strips of them
   pure integer(i8) function boxes_count(self)
      class(boxes_type), intent(in) :: self
      boxes_count = self%kept%count()*self%strips
   end function boxes_count

   !> Where a box or a strip begins
   pure subroutine find(self, i, at, n)
      class(boxes_type), intent(in) :: self
      !> Its number, from 0
      integer(i8), intent(in) :: i
      !> Number of its first element in the vector of each tensor
      integer(i8), intent(out) :: at(most_tensors)
      !> Elements along the first axis
      integer(i8), intent(out) :: n
      integer(i8) :: box, first
      box = i/self%strips
      first = (i - box*self%strips)*self%strip
      n = min(self%strip, self%length - first)
      at = 1 + self%kept%places(box) + first*self%strides
   end subroutine find

   !> From the first row of a box to another
   pure function offsets(self, row)
      class(boxes_type), intent(in) :: self
      !> From 0
      integer(i8), intent(in) :: row
      integer(i8) :: offsets(most_tensors)
      offsets = self%reduced%places(row)
   end function offsets

end module cnn_core_boxes
