! SPDX-License-Identifier: MIT
!> The plan of a filter gradient with channels in the vector lanes (cpu/kernels/channel_lanes): what is
!> packed at once, and where pixels and points are in it.
!>
!> One of x and dy, the *transposed* tensor, has its channels side by side: a vector is many channels of one pixel. The
!> other, the *source*, keeps its rows, with the zeros of the padding, and gives one factor at a time: element `place`
!> of the pixel plus `offset` of the point, a point being a channel with a tap. The pixels of a band are a list of
!> places, so strides leave elements out, and a band may have many small images.
!>
!> Order.  Pairs are (width, height). Rows, columns, places and offsets count from 0.
module cnn_cpu_plan_channel_lanes
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   public :: plan_outer

   type, public :: outer_type
      !> dy is the source, and x is transposed; strides are 1
      logical :: swapped = .false.
      integer :: groups = 1, images = 0
      !> Channels of each group
      integer :: source_channels = 0, transposed_channels = 0
      !> Of the filter, of the transposed tensor, of the source
      integer :: kernel(2) = 0, extent(2) = 0, source(2) = 0
      !> Source pixel of the first packed element of the image, and from one packed element to the next
      integer :: origin(2) = 0, step(2) = 1
      !> Packed elements from one transposed pixel to the next, and from tap to tap
      integer :: stride(2) = 1, reach(2) = 0
      !> Rows of an image that are packed at once; many whole images when these are all
      integer :: rows = 0, band_images = 1
   contains
      procedure :: cost
      procedure :: image_elements
      procedure :: list_pixels
      procedure :: list_points
      procedure :: packed_extent
      procedure :: pixels
      procedure :: plane_elements
      procedure :: list_shifted
      procedure :: points
      procedure :: shifted_pixels
      procedure :: shifts
      procedure :: units
   end type outer_type

   !> A band: images and rows from those with these numbers, from 0, on
   type, public :: outer_band_type
      integer :: image = 0, row = 0, images = 0, rows = 0
      !> Its pixels in a plane of the transposed tensor: so many together in each image, so many before them
      integer :: run = 0, before = 0
      !> In all images, and their places in the packed source
      integer :: pixels = 0
      integer, allocatable :: places(:)
   end type outer_band_type

   !> Pixels, about, of a band, and at most; many where there are so many sums that it is better to add them rarely
   integer, parameter :: usual_pixels = 1024, most_pixels = 4096
   integer(i8), parameter :: many_sums = 524288_i8
   !> Elements that are packed at once: with many products for each they are worth a trip to the third-level cache
   integer(i8), parameter :: most_packed = 2097152_i8

contains

   !> Extents are in Fortran order
   pure subroutine plan_outer(conv, swapped, x, y, dw, plan)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Whether dy is the source and x is transposed
      logical, intent(in) :: swapped
      !> Extents of the input
      integer, intent(in) :: x(4)
      !> Extents of the output
      integer, intent(in) :: y(4)
      !> Extents of the filters
      integer, intent(in) :: dw(4)
      !> Plan of bands
      type(outer_type), intent(out) :: plan
      plan%swapped = swapped
      plan%groups = conv%groups
      plan%images = x(4)
      plan%kernel = dw(1:2)
      plan%reach = [conv%dilation_w, conv%dilation_h]
      if (swapped) then
         plan%source_channels = y(3)/conv%groups
         plan%transposed_channels = x(3)/conv%groups
         plan%extent = x(1:2)
         plan%source = y(1:2)
         plan%origin = [conv%pad_w, conv%pad_h] - (plan%kernel - 1)*plan%reach
      else
         plan%source_channels = x(3)/conv%groups
         plan%transposed_channels = y(3)/conv%groups
         plan%extent = y(1:2)
         plan%source = x(1:2)
         plan%origin = -[conv%pad_w, conv%pad_h]
         plan%stride = [conv%stride_w, conv%stride_h]
      end if
      ! Along an axis with one tap only what it touches is packed
      where (plan%kernel == 1)
         plan%step = plan%stride
         plan%stride = 1
         plan%reach = 0
      end where
      call choose_band(plan)
   end subroutine plan_outer

   !> Set `rows` and `band_images`: whole images, or rows of one. The number of threads has no say, so that results do
   !> not depend on it
   pure subroutine choose_band(plan)
      !> Plan whose `rows` and `band_images` are set
      type(outer_type), intent(inout) :: plan
      integer :: parts, wanted, halo
      ! Rows that two bands pack are to be few
      halo = (plan%kernel(2) - 1)*plan%reach(2)
      wanted = max(usual_pixels, int(min(int(most_pixels, i8), 8_i8*halo*plan%extent(1)/plan%stride(2))))
      if (int(plan%points(), i8)*plan%transposed_channels*plan%groups >= many_sums) wanted = most_pixels
      plan%rows = plan%extent(2)
      plan%band_images = max(1, min(plan%images, wanted/product(plan%extent)))
      do while (plan%band_images > 1 .and. plan%plane_elements()*plan%source_channels > most_packed)
         plan%band_images = (plan%band_images + 1)/2
      end do
      ! Of equal size
      parts = (plan%images + plan%band_images - 1)/plan%band_images
      plan%band_images = (plan%images + parts - 1)/parts
      if (plan%band_images > 1) return
      parts = max(1, nint(real(product(plan%extent))/wanted))
      plan%rows = (plan%extent(2) + parts - 1)/parts
      do while (plan%rows > 1 .and. plan%plane_elements()*plan%source_channels > most_packed)
         plan%rows = (plan%rows + 1)/2
      end do
   end subroutine choose_band

   !> Cycles for a product, about, of one core with so many lanes: fitted to measured times
   pure real(dp) function cost(self, lanes)
      class(outer_type), intent(in) :: self
      !> Elements of a vector
      integer, intent(in) :: lanes
      !> Multiply-adds of a vector in a cycle: one vector by itself, with its shifts, several side by side; cycles to
      !> copy an element, to begin with a row, to put a sum in its place
      real(dp), parameter :: rate_1 = 1.1_dp, rate_shifted = 1.5_dp, rate = 1.7_dp, copy = 0.35_dp, row = 12.0_dp, &
         & place = 3.0_dp
      !> Points of the narrowest tile; a shift that most kernels stay below
      integer, parameter :: narrow = 4, most_shift = 96
      integer :: vectors, points
      real(dp) :: source, speed, util
      vectors = (self%transposed_channels + lanes - 1)/lanes
      points = self%points()
      speed = merge(rate_1, rate, vectors == 1)
      if (vectors == 1 .and. self%shifts(most_shift)) then
         points = points/self%kernel(1)
         speed = rate_shifted*self%extent(1)/(self%extent(1) + (self%kernel(1) - 1)*self%reach(1))
      end if
      util = real(points, dp)/((points + narrow - 1)/narrow*narrow)
      source = real(product(self%packed_extent()), dp)/(self%extent(1)*self%rows)
      cost = real(vectors, dp)/(speed*util*self%transposed_channels) + &
         & (copy + row/(self%extent(1)*self%rows))/self%points() + &
         & source*(copy + row/self%source(1))/self%transposed_channels + &
         & place/(real(product(self%extent), dp)*self%images)
   end function cost

   !> Columns and rows of a packed band of one image
   pure function packed_extent(self)
      class(outer_type), intent(in) :: self
      integer :: packed_extent(2)
      packed_extent = ([self%extent(1), self%rows] - 1)*self%stride + (self%kernel - 1)*self%reach + 1
   end function packed_extent

   !> From one packed image of a channel to the next
   pure integer(i8) function image_elements(self)
      class(outer_type), intent(in) :: self
      image_elements = product(int(self%packed_extent(), i8))
   end function image_elements

   !> From one packed channel to the next: an odd number of cache lines, where that adds little
   pure integer(i8) function plane_elements(self)
      class(outer_type), intent(in) :: self
      integer(i8), parameter :: line = 16_i8
      integer(i8) :: odd
      plane_elements = self%image_elements()*self%band_images
      odd = (plane_elements + line - 1)/line
      odd = (odd + 1 - mod(odd, 2_i8))*line
      if (odd - plane_elements <= plane_elements/8) plane_elements = odd
   end function plane_elements

   !> Pixels of a band
   pure integer function pixels(self)
      class(outer_type), intent(in) :: self
      pixels = self%extent(1)*self%rows*self%band_images
   end function pixels

   !> Channels with a tap
   pure integer function points(self)
      class(outer_type), intent(in) :: self
      points = self%source_channels*product(self%kernel)
   end function points

   !> Bands of all images
   pure integer function units(self)
      class(outer_type), intent(in) :: self
      units = (self%images + self%band_images - 1)/self%band_images*((self%extent(2) + self%rows - 1)/self%rows)
   end function units

   !> Where the source of each point of so many channels begins: taps first, as in dw
   pure subroutine list_points(self, channels, offsets)
      class(outer_type), intent(in) :: self
      !> Number of channels of the source
      integer, intent(in) :: channels
      !> Distance of each point from a pixel's place, in elements
      integer(i8), intent(out) :: offsets(:)
      integer :: c, r, s, taps, tap(2), extent(2)
      extent = self%packed_extent()
      taps = product(self%kernel)
      do r = 0, self%kernel(2) - 1
         do s = 0, self%kernel(1) - 1
            tap = [s, r]
            ! From a pixel of x, the output that a tap goes to lies the other way
            if (self%swapped) tap = self%kernel - 1 - tap
            tap = tap*self%reach
            offsets(1 + s + r*self%kernel(1)) = int(tap(2), i8)*extent(1) + tap(1)
         end do
      end do
      do c = 1, channels - 1
         offsets(c*taps + 1:(c + 1)*taps) = offsets(:taps) + c*self%plane_elements()
      end do
   end subroutine list_points

   !> Band number `unit`, from 0
   pure subroutine list_pixels(self, unit, band)
      class(outer_type), intent(in) :: self
      !> Number of the band, from 0
      integer, intent(in) :: unit
      !> Band that is set; its list of places may be there from another
      type(outer_band_type), intent(inout) :: band
      integer :: bands, n, i, j, pixel, extent(2)
      extent = self%packed_extent()
      bands = (self%extent(2) + self%rows - 1)/self%rows
      band%image = unit/bands*self%band_images
      band%row = mod(unit, bands)*self%rows
      band%images = min(self%band_images, self%images - band%image)
      band%rows = min(self%rows, self%extent(2) - band%row)
      band%run = self%extent(1)*band%rows
      band%before = self%extent(1)*band%row
      band%pixels = band%run*band%images
      if (.not. allocated(band%places)) allocate (band%places(self%pixels()))
      pixel = 0
      do n = 0, band%images - 1
         do i = 0, band%rows - 1
            do j = 0, self%extent(1) - 1
               pixel = pixel + 1
               band%places(pixel) = n*product(extent) + i*self%stride(2)*extent(1) + j*self%stride(1)
            end do
         end do
      end do
   end subroutine list_pixels

   !> Whether taps of a row may be taken as shifts of the transposed tensor by at most so many pixels
   pure logical function shifts(self, most)
      class(outer_type), intent(in) :: self
      !> Largest distance allowed, in pixels
      integer, intent(in) :: most
      shifts = self%kernel(1) > 1 .and. self%stride(1) == 1 .and. (self%kernel(1) - 1)*self%reach(1) <= most
   end function shifts

   !> Pixels of a band when its rows have the zeros behind them that shifts need
   pure integer function shifted_pixels(self, band)
      class(outer_type), intent(in) :: self
      !> Images and rows of the band
      type(outer_band_type), intent(in) :: band
      shifted_pixels = (self%extent(1) + (self%kernel(1) - 1)*self%reach(1))*band%rows*band%images
   end function shifted_pixels

   !> Their places in the packed source
   pure subroutine list_shifted(self, band, places)
      class(outer_type), intent(in) :: self
      !> Images and rows of the band
      type(outer_band_type), intent(in) :: band
      !> Place of each pixel in the packed source, in elements
      integer, intent(out) :: places(:)
      integer :: n, i, j, pixel, extent(2)
      extent = self%packed_extent()
      pixel = 0
      do n = 0, band%images - 1
         do i = 0, band%rows - 1
            do j = 0, extent(1) - 1
               pixel = pixel + 1
               places(pixel) = n*product(extent) + i*self%stride(2)*extent(1) + j
            end do
         end do
      end do
   end subroutine list_shifted

end module cnn_cpu_plan_channel_lanes
