! SPDX-License-Identifier: MIT
!> How convolutions of channels_last tensors are cut: panels of results, tiles of pixels, bands of filter gradients.
!>
!> Layout.  Channels are the fastest index in memory, (c, w, h, n) in Fortran order: torch's channels_last, cuDNN's
!>          NHWC.
!> Order.   Pairs are (width, height); vectors, units and rows count from 0.
module cnn_cpu_plan_channels_last
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   public :: band_of_sums, cut_row, panel_vectors, weight_steps

   !> Pixels whose products are summed in the tensor's precision, and of a row of a band
   integer, parameter :: most_summed = 1024
   !> Pixels of the tiles of 1, 2 and 4 vectors
   integer, parameter :: widths(9) = [24, 16, 12, 8, 6, 4, 3, 2, 1]

contains

   !> Vectors of the panel that begins at vector `first`: 4, 2 or 1
   pure integer function panel_vectors(first, vectors, most)
      !> Vectors before the panel
      integer, intent(in) :: first
      !> Vectors of a group
      integer, intent(in) :: vectors
      !> Vectors of the largest tile, 2 or 4
      integer, intent(in) :: most
      panel_vectors = most
      do while (panel_vectors > vectors - first)
         panel_vectors = panel_vectors/2
      end do
   end function panel_vectors

   !> How a row is cut into tiles: large ones, and two last ones of which none is much smaller than the other
   pure subroutine cut_row(pixels, most, tiles, count)
      !> Pixels of the row
      integer, intent(in) :: pixels
      !> Pixels of the largest tile of so many vectors
      integer, intent(in) :: most
      !> Pixels of each tile, as many elements as the row has pixels
      integer, intent(out) :: tiles(:)
      !> Number of tiles
      integer, intent(out) :: count
      integer :: left
      left = pixels
      count = 0
      do while (left > 0)
         count = count + 1
         if (left > most .and. left < 2*most) then
            tiles(count) = minval(widths, mask=2*widths >= left)
         else
            tiles(count) = maxval(widths, mask=widths <= min(left, most))
         end if
         left = left - tiles(count)
      end do
   end subroutine cut_row

   !> Columns and rows of results whose products a filter gradient sums in the tensor's precision
   pure function band_of_sums(extent) result(band)
      !> Columns and rows of the output
      integer, intent(in) :: extent(2)
      integer :: band(2)
      band(1) = min(extent(1), most_summed)
      band(2) = max(1, min(extent(2), most_summed/band(1)))
   end function band_of_sums

   !> Elements of the filters from one tap, input channel and output channel to the next
   pure function weight_steps(w) result(steps)
      !> Filters (s, r, c/groups, k), of which the extents and the layout matter
      type(tensor_type), intent(in) :: w
      integer(i8) :: steps(3)
      integer(i8) :: taps
      taps = product(int(w%extent(1:2), i8))
      steps = [1_i8, taps, taps*w%extent(3)]
      if (w%channels_last) steps(1:2) = [int(w%extent(3), i8), 1_i8]
   end function weight_steps

end module cnn_cpu_plan_channels_last
