! SPDX-License-Identifier: MIT
!> How convolutions of channels_last tensors are cut: panels of results, tiles of pixels, bands of filter gradients.
!>
!> Layout.  Channels are the fastest index in memory, (c, w, h, n) in Fortran order: torch's channels_last, cuDNN's
!>          NHWC.
!> Order.   Pairs are (width, height); vectors, units and rows count from 0.
module cnn_cpu_plan_channels_last
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   public :: adds_up_lanes, band_of_sums, cut_row, images_of_sums, is_depthwise, is_lanewise, join_pixels, &
      & lanes_of_source, merged_groups, panel_vectors, short_are_as_few, weight_steps

   !> Pixels whose products are summed in the tensor's precision, and of a row of a band
   integer, parameter :: most_summed = 1024
   !> Pixels of the tiles of 1, 2 and 4 vectors
   integer, parameter :: widths(9) = [24, 16, 12, 8, 6, 4, 3, 2, 1]
   !> Elements of a row at most, so that places in it are integers
   integer(i8), parameter :: most_joined = 2_i8**31 - 1
   !> Adding up the lanes of a vector takes as long as so many of its multiply-adds
   integer, parameter :: lane_sum = 12

contains

   !> Images as one long row, where filters of one pixel go over each pixel by itself
   pure subroutine join_pixels(conv, w, x, y)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters, of which the extents matter
      type(tensor_type), intent(in) :: w
      !> Input, whose extents may change
      type(tensor_type), intent(inout) :: x
      !> Output, whose extents may change
      type(tensor_type), intent(inout) :: y
      integer(i8) :: pixels
      pixels = x%count()/x%extent(3)
      if (any(w%extent(1:2) /= 1) .or. any([conv%stride_w, conv%stride_h] /= 1) .or. &
         & any([conv%pad_w, conv%pad_h] /= 0) .or. max(x%count(), y%count()) > most_joined) return
      x%extent(:4) = [int(pixels), 1, x%extent(3), 1]
      y%extent(:4) = [int(pixels), 1, y%extent(3), 1]
   end subroutine join_pixels

   !> Groups that are computed as one, with zeros for the products between them: their results fill one vector
   pure integer function merged_groups(groups, results, lanes)
      !> Number of groups
      integer, intent(in) :: groups
      !> Results of a group, of which each has a lane
      integer, intent(in) :: results
      !> Elements of a vector
      integer, intent(in) :: lanes
      merged_groups = max(1, min(groups, lanes/results))
      do while (mod(groups, merged_groups) /= 0)
         merged_groups = merged_groups - 1
      end do
   end function merged_groups

   !> Whether the results of a group are better computed one by one, with channels of the source in the lanes
   pure logical function adds_up_lanes(channels, results, taps, lanes)
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Results in a group
      integer, intent(in) :: results
      !> Taps of a filter
      integer, intent(in) :: taps
      !> Elements of a vector
      integer, intent(in) :: lanes
      adds_up_lanes = 2*results <= lanes .and. &
         & results*(taps*vectors(channels, lanes) + lane_sum) < channels*real(taps, dp)
   end function adds_up_lanes

   !> Whether every channel is a group of its own
   pure logical function is_depthwise(groups, channels, results)
      !> Number of groups
      integer, intent(in) :: groups
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Results in a group
      integer, intent(in) :: results
      is_depthwise = groups > 1 .and. channels == 1 .and. results == 1
   end function is_depthwise

   !> Whether groups lie side by side in vectors, one channel of each at a time, repeated for all results of its group:
   !> no lane has a product that is not wanted, and the source is spread as it is packed. Depthwise it is not even that
   pure logical function is_lanewise(groups, channels, results, taps, lanes)
      !> Number of groups
      integer, intent(in) :: groups
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Results in a group
      integer, intent(in) :: results
      !> Taps of a filter
      integer, intent(in) :: taps
      !> Elements of a vector
      integer, intent(in) :: lanes
      real(dp) :: others
      is_lanewise = is_depthwise(groups, channels, results)
      if (is_lanewise .or. groups == 1 .or. 2*results > lanes) return
      others = channels*real(taps, dp)
      if (adds_up_lanes(channels, results, taps, lanes)) others = results*(taps*vectors(channels, lanes) + lane_sum)
      is_lanewise = taps*lanewise_cost(groups, channels, results, taps, lanes) < others
   end function is_lanewise

   !> Multiply-adds of vectors for each pixel and tap of a group, or what takes as long: to load a vector for each,
   !> mostly from the second-level cache, and to spread the source. Fitted to times of groups of 1 to 8 channels
   pure real(dp) function lanewise_cost(groups, channels, results, taps, lanes)
      !> Number of groups
      integer, intent(in) :: groups
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Results in a group
      integer, intent(in) :: results
      !> Taps of a filter
      integer, intent(in) :: taps
      !> Elements of a vector
      integer, intent(in) :: lanes
      real(dp), parameter :: load = 2.4_dp
      integer :: together
      together = min(groups, lanes/results)
      lanewise_cost = channels*(load + real(together, dp)/taps)/together
   end function lanewise_cost

   !> Whether vectors half as long are as few: then many lanes of long ones would have no result. Two short ones take as
   !> long as a long one where the units are 256 bits wide, and one does elsewhere
   pure logical function short_are_as_few(groups, channels, results, taps, lanes)
      !> Groups of channels
      integer, intent(in) :: groups
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Results in a group
      integer, intent(in) :: results
      !> Taps of a filter whose products are added up in the lanes, too, where that is less; 0 for a filter gradient
      integer, intent(in) :: taps
      !> Elements of the longer vector
      integer, intent(in) :: lanes
      short_are_as_few = cost(lanes/2) <= cost(lanes)
   contains
      !> Multiply-adds of vectors for each pixel and tap of a group
      pure real(dp) function cost(length)
         !> Elements of a vector
         integer, intent(in) :: length
         cost = channels*vectors(results, length)
         if (is_depthwise(groups, channels, results)) then
            cost = vectors(groups, length)
         else if (taps == 0) then
            cost = min(cost, results*vectors(channels, length))
         else if (is_lanewise(groups, channels, results, taps, length)) then
            cost = lanewise_cost(groups, channels, results, taps, length)
         else if (adds_up_lanes(channels, results, taps, length)) then
            cost = results*(vectors(channels, length) + real(lane_sum, dp)/taps)
         end if
      end function cost
   end function short_are_as_few

   !> Whether a filter gradient has channels of the input in the lanes, and not those of the output
   pure logical function lanes_of_source(channels, results, lanes)
      !> Channels of the input in a group
      integer, intent(in) :: channels
      !> Channels of the output in a group
      integer, intent(in) :: results
      !> Elements of a vector
      integer, intent(in) :: lanes
      lanes_of_source = 2*results <= lanes .and. results*vectors(channels, lanes) < channels*vectors(results, lanes)
   end function lanes_of_source

   !> Vectors that hold so many elements, as a real number, of which products do not overflow
   pure real(dp) function vectors(elements, lanes)
      !> Number of elements
      integer, intent(in) :: elements
      !> Elements of a vector
      integer, intent(in) :: lanes
      vectors = (elements + lanes - 1)/lanes
   end function vectors

   !> Vectors of the panel that begins at vector `first`: 4, 2 or 1
   pure integer function panel_vectors(first, all_vectors, most)
      !> Vectors before the panel
      integer, intent(in) :: first
      !> Vectors of a group
      integer, intent(in) :: all_vectors
      !> Vectors of the largest tile, 2 or 4
      integer, intent(in) :: most
      panel_vectors = most
      do while (panel_vectors > all_vectors - first)
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

   !> Whole images whose products a filter gradient sums in the tensor's precision
   pure integer function images_of_sums(extent, most, elements)
      !> Columns and rows of the output
      integer, intent(in) :: extent(2)
      !> Images at most
      integer(i8), intent(in) :: most
      !> Elements that are packed of an image
      integer(i8), intent(in) :: elements
      !> Packed elements that stay in the second-level cache beside dy
      integer(i8), parameter :: most_packed = 65536_i8
      images_of_sums = int(max(1_i8, min(int(most_summed, i8)/product(int(extent, i8)), most, &
         & most_packed/max(1_i8, elements))))
   end function images_of_sums

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
