! SPDX-License-Identifier: MIT
!> Which way a convolution goes on the CPU: directly, unless its packed rows would be too many or too large.
module cnn_conv_choice
   use cnn_conv_geometry, only : conv_type
   use cnn_conv_grid, only : backward_grid, forward_grid, grid_type, planes_are_few
   use cnn_kinds, only : bytes_of, i8
   use cnn_tensor, only : tensor_type
   use cnn_text, only : to_text
   implicit none
   private

   public :: choose_backward, choose_filter, choose_forward, way_text

   !> Packed elements of a band: far more than any cache holds, far less than 32 bits count
   integer(i8), parameter :: most_elements = 16777216_i8

contains

   !> How to compute y from x: `direct`, along `grid`, or as im2col and BLAS
   subroutine choose_forward(conv, x, w, y, grid, direct)
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, y
      type(grid_type), intent(out) :: grid
      logical, intent(out) :: direct
      direct = planes_are_few(conv)
      if (.not. direct) return
      call forward_grid(conv, w%extent, y%extent, grid)
      call choose_band(grid, conv%groups, x, y%extent(4))
      direct = packed_elements(grid, conv%groups, x) < most_elements
   end subroutine choose_forward

   !> How to compute dx from dy
   subroutine choose_backward(conv, w, dy, dx, grid, direct)
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: w, dy, dx
      type(grid_type), intent(out) :: grid
      logical, intent(out) :: direct
      direct = planes_are_few(conv)
      if (.not. direct) return
      call backward_grid(conv, w%extent, dx%extent, grid)
      call choose_band(grid, conv%groups, dy, dx%extent(4))
      direct = packed_elements(grid, conv%groups, dy) < most_elements
   end subroutine choose_backward

   !> How to compute dw from x and dy: directly, along the forward grid, or `swapped` along the backward grid
   subroutine choose_filter(conv, x, dy, dw, grid, direct, swapped)
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, dy, dw
      type(grid_type), intent(out) :: grid
      logical, intent(out) :: direct, swapped
      swapped = conv%stride_h == 1 .and. conv%stride_w == 1 .and. dy%extent(3) < x%extent(3)
      if (swapped) then
         call choose_backward(conv, dw, dy, x, grid, direct)
      else
         call choose_forward(conv, x, dw, dy, grid, direct)
      end if
   end subroutine choose_filter

   !> The choice in words
   function way_text(grid, direct) result(text)
      type(grid_type), intent(in) :: grid
      logical, intent(in) :: direct
      character(len=:), allocatable :: text
      text = "im2col and BLAS"
      if (direct) text = "direct, in bands of "//to_text(grid%band(2))//" rows of "//to_text(grid%band(1))//" pixels"
   end function way_text

   subroutine choose_band(grid, groups, source, images)
      type(grid_type), intent(inout) :: grid
      integer, intent(in) :: groups, images
      type(tensor_type), intent(in) :: source
      call grid%choose_band(planes_of(grid, groups, source)*bytes_of(source%dtype), int(images, i8)*groups)
   end subroutine choose_band

   pure integer(i8) function packed_elements(grid, groups, source)
      type(grid_type), intent(in) :: grid
      integer, intent(in) :: groups
      type(tensor_type), intent(in) :: source
      packed_elements = planes_of(grid, groups, source)*grid%plane_elements(16)
   end function packed_elements

   !> Planes of all channels of a group
   pure integer(i8) function planes_of(grid, groups, source)
      type(grid_type), intent(in) :: grid
      integer, intent(in) :: groups
      type(tensor_type), intent(in) :: source
      planes_of = int(source%extent(3)/groups, i8)*size(grid%origin, 2)
   end function planes_of

end module cnn_conv_choice
