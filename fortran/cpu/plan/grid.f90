! SPDX-License-Identifier: MIT
!> A convolution as sums over shifted, packed rows: what the direct CPU kernels go through.
!>
!> Rows of the source image are packed one behind the other, with the zeros of the padding, at a fixed `pitch`.
!> Then the pixel of the result at place j of its own rows (same pitch) is a sum of source pixels at j + offset, with
!> one offset for each tap: whole rows, and bands of rows, become one long strip without borders.
!>
!> Stride.   Forward, the source is packed as `stride_h*stride_w` planes, one for each phase, that are contiguous
!>           again. Backward, the result falls into as many parts, each with taps of its own.
!> Order.    Pairs are (width, height); places, shifts and phases count from 0, planes and taps from 1.
module cnn_cpu_plan_grid
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   public :: backward_grid, forward_grid, planes_are_few

   !> Result pixels first + step_out*u for grid points u, and the taps that they gather
   type, public :: part_type
      integer :: first(2) = 0
      !> (2, taps): how far right and down of the grid point a tap reads
      integer, allocatable :: shift(:, :)
      !> The plane it reads from
      integer, allocatable :: plane(:)
      !> Its place in the filter, 1 + s + r*width
      integer, allocatable :: tap(:)
   end type part_type

   type, public :: grid_type
      !> Grid points
      integer :: extent(2) = 0
      !> Between neighbours of the grid: source pixels, result pixels
      integer :: step_in(2) = 1, step_out(2) = 1
      !> The largest shifts
      integer :: halo(2) = 0
      !> (2, planes): source pixel of grid point (0, 0) with shift (0, 0)
      integer, allocatable :: origin(:, :)
      type(part_type), allocatable :: parts(:)
      !> Grid points that are packed at once
      integer :: band(2) = 0
      !> Channels of the result, not pixels, are in the vector lanes (cpu/kernels/channels_last/channels_last.inc)
      logical :: channels_in_lanes = .false.
   contains
      procedure :: bands
      procedure :: choose_band
      procedure :: lead
      procedure :: pitch
      procedure :: plane_elements
   end type grid_type

   !> Pixels of a band whose products are summed for a filter gradient in the tensor's precision
   integer, parameter, public :: most_summed = 16384

   !> More phases than this are not worth packing
   integer, parameter :: most_planes = 16

contains

   !> Whether strides are small enough for a plane, or a part, of each phase
   pure logical function planes_are_few(conv)
      !> Strides of the convolution
      type(conv_type), intent(in) :: conv
      planes_are_few = int(conv%stride_h, i8)*conv%stride_w <= most_planes
   end function planes_are_few

   !> y(n,k,p,q) from x: grid points are output pixels. Extents in Fortran order
   pure subroutine forward_grid(conv, w, y, grid)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Extents of the filters
      integer, intent(in) :: w(4)
      !> Extents of the output
      integer, intent(in) :: y(4)
      !> Planes and taps; the band is not chosen yet
      type(grid_type), intent(out) :: grid
      integer :: stride(2), reach(2), phase(2), origins(2, product(w(1:2))), s, r, t, planes

      stride = [conv%stride_w, conv%stride_h]
      grid%extent = y(1:2)
      grid%step_in = stride
      allocate (grid%parts(1))
      allocate (grid%parts(1)%shift(2, product(w(1:2))), grid%parts(1)%plane(product(w(1:2))))
      grid%parts(1)%tap = [(t, t=1, product(w(1:2)))]
      planes = 0
      do r = 0, w(2) - 1
         do s = 0, w(1) - 1
            t = 1 + s + r*w(1)
            reach = [s*conv%dilation_w, r*conv%dilation_h]
            phase = mod(reach, stride) - [conv%pad_w, conv%pad_h]
            grid%parts(1)%shift(:, t) = reach/stride
            grid%parts(1)%plane(t) = place_of(phase, origins(:, :planes))
            if (grid%parts(1)%plane(t) <= planes) cycle
            planes = planes + 1
            origins(:, planes) = phase
         end do
      end do
      grid%origin = origins(:, :planes)
      grid%halo = maxval(grid%parts(1)%shift, dim=2)
   end subroutine forward_grid

   !> dx(n,c,h,w) from dy: each part is the input pixels of one phase, and gathers the taps that fall on it
   pure subroutine backward_grid(conv, w, x, grid)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Extents of the filters
      integer, intent(in) :: w(4)
      !> Extents of the input
      integer, intent(in) :: x(4)
      !> Planes and taps; the band is not chosen yet
      type(grid_type), intent(out) :: grid
      integer :: stride(2), pad(2), dilation(2), first(2), a, b, i

      stride = [conv%stride_w, conv%stride_h]
      pad = [conv%pad_w, conv%pad_h]
      dilation = [conv%dilation_w, conv%dilation_h]
      ! Input pixel first*stride + phase - pad is the first that is not outside
      first = pad/stride
      grid%extent = (x(1:2) - 1 + pad)/stride - first + 1
      grid%step_out = stride
      grid%halo = (w(1:2) - 1)*dilation/stride
      grid%origin = reshape(first - grid%halo, [2, 1])
      allocate (grid%parts(product(stride)))
      i = 0
      do b = 0, stride(2) - 1
         do a = 0, stride(1) - 1
            i = i + 1
            grid%parts(i)%first = first*stride + [a, b] - pad
            call gather_taps([a, b], stride, dilation, w(1:2), grid%halo, grid%parts(i))
         end do
      end do
   end subroutine backward_grid

   !> The taps of one phase: they read dy at the grid point less (reach - phase)/stride
   pure subroutine gather_taps(phase, stride, dilation, kernel, halo, part)
      !> Column and row of the phase, from 0
      integer, intent(in) :: phase(2)
      !> Stride across and down
      integer, intent(in) :: stride(2)
      !> Dilation across and down
      integer, intent(in) :: dilation(2)
      !> Columns and rows of the filter
      integer, intent(in) :: kernel(2)
      !> Largest shift across and down
      integer, intent(in) :: halo(2)
      !> Part whose shifts, planes and taps are set
      type(part_type), intent(inout) :: part
      integer :: shifts(2, product(kernel)), taps(product(kernel)), reach(2), s, r, n
      n = 0
      do r = 0, kernel(2) - 1
         do s = 0, kernel(1) - 1
            reach = [s, r]*dilation
            if (any(mod(reach, stride) /= phase)) cycle
            n = n + 1
            shifts(:, n) = halo - reach/stride
            taps(n) = 1 + s + r*kernel(1)
         end do
      end do
      part%shift = shifts(:, :n)
      part%tap = taps(:n)
      allocate (part%plane(n), source=1)
   end subroutine gather_taps

   !> Column of `list` that is `pair`; one more than there are when there is none
   pure integer function place_of(pair, list)
      !> Pair to be found
      integer, intent(in) :: pair(2)
      !> Pairs to be searched (2, pairs)
      integer, intent(in) :: list(:, :)
      do place_of = 1, size(list, 2)
         if (all(list(:, place_of) == pair)) return
      end do
   end function place_of

   !> Set `band`: as much as keeps what is packed in a core's second-level cache.
   !> `width` is the bytes of one pixel in all channels and planes; `images` counts what can be worked on apart from
   !> each other. The number of threads has no say, so that results do not depend on it
   pure subroutine choose_band(self, width, images)
      class(grid_type), intent(inout) :: self
      !> Bytes of one pixel in all channels and planes
      integer(i8), intent(in) :: width
      !> Number of pieces that can be worked on apart: images times groups
      integer(i8), intent(in) :: images
      real(dp), parameter :: cache_bytes = 786432.0_dp
      !> Columns of a band: fewer than this only when not even a few rows of them fit
      integer, parameter :: wide = 1024, narrow = 64, least_rows = 4, least_bands = 8
      !> Pixels of a band: fewer are not worth going through all filters for
      integer, parameter :: least_pixels = 768
      real(dp) :: pixels
      integer(i8) :: rows

      pixels = cache_bytes/real(width, dp)
      self%band(1) = min(self%extent(1), wide)
      do while (self%band(1) > narrow .and. (self%band(1) + self%halo(1))* &
         & real(min(least_rows, self%extent(2)) + self%halo(2), dp) > pixels)
         self%band(1) = (self%band(1) + 1)/2
      end do
      rows = int(min(pixels/(self%band(1) + self%halo(1)), real(huge(1), dp)), i8) - self%halo(2)
      ! Enough bands for several threads, as long as what neighbours share stays small
      rows = min(rows, max(int(self%extent(2), i8)*images/least_bands, 4_i8*self%halo(2) + 4, &
         & int(least_pixels/self%band(1), i8)))
      self%band(2) = int(max(1_i8, min(rows, int(self%extent(2), i8))))
      self%band(2) = balanced_rows(self%extent(2), self%band(2), images)
   end subroutine choose_band

   !> Rows of a band, so many or fewer, that leave 2 and 4 threads least to wait for each other
   pure integer function balanced_rows(extent, most, images) result(rows)
      !> Rows of an image
      integer, intent(in) :: extent
      !> Rows of a band at most
      integer, intent(in) :: most
      !> Number of images
      integer(i8), intent(in) :: images
      !> Bands of all images: of so many one more or less does not matter
      integer, parameter :: many = 32
      !> Part of the time that a smaller band must save
      real(dp), parameter :: worth = 0.02_dp
      real(dp) :: least, found
      integer :: fewest, down, other
      fewest = (extent - 1)/most + 1
      rows = (extent - 1)/fewest + 1
      if (fewest == 1 .or. fewest*images >= many) return
      least = time_of(rows)
      do down = fewest + 1, min(2*fewest, extent)
         other = (extent - 1)/down + 1
         found = time_of(other)
         if (found > least - worth) cycle
         least = found
         rows = other
      end do
   contains
      !> Of 2 and 4 threads, each of which takes the next band when it is done with one; 2 where no one waits
      pure real(dp) function time_of(rows)
         !> Of a band
         integer, intent(in) :: rows
         integer :: threads
         time_of = sum([(longest(rows, threads)*threads/(real(extent, dp)*images), threads=2, 4, 2)])
      end function time_of

      !> Rows of the thread that ends last
      pure real(dp) function longest(rows, threads)
         !> Of a band
         integer, intent(in) :: rows
         !> Number of threads
         integer, intent(in) :: threads
         integer :: done(threads), image, first, next
         done = 0
         do image = 1, int(images)
            do first = 0, extent - 1, rows
               next = minloc(done, 1)
               done(next) = done(next) + min(rows, extent - first)
            end do
         end do
         longest = maxval(done)
      end function longest
   end function balanced_rows

   !> Bands across and down
   pure function bands(self)
      class(grid_type), intent(in) :: self
      integer :: bands(2)
      bands = (self%extent + self%band - 1)/self%band
   end function bands

   !> Elements from one packed row to the next: whole cache lines, where that adds little
   pure integer function pitch(self)
      class(grid_type), intent(in) :: self
      integer, parameter :: line = 16
      integer :: whole
      pitch = self%band(1) + self%halo(1)
      whole = (pitch + line - 1)/line*line
      if (whole - pitch <= pitch/32) pitch = whole
   end function pitch

   !> Elements to leave free before the first packed row of a band, so that copies of rows begin at cache lines
   pure integer function lead(self, place, line)
      class(grid_type), intent(in) :: self
      !> First grid point of the band, column and row from 0
      integer, intent(in) :: place(2)
      !> Elements of a cache line
      integer, intent(in) :: line
      lead = modulo(self%origin(1, 1) + place(1)*self%step_in(1), line)
      if (place(1) > 0) lead = 0
   end function lead

   !> Elements from one packed plane to the next, with room for what a tile reads behind the last row: an odd number of
   !> cache lines, so that the same place of many planes does not fall into one set of the cache
   pure integer(i8) function plane_elements(self, line)
      class(grid_type), intent(in) :: self
      !> Elements of a cache line
      integer, intent(in) :: line
      plane_elements = int(self%pitch(), i8)*(self%band(2) + self%halo(2)) + self%halo(1) + line
      plane_elements = (plane_elements/line + 1)/2*2*line + line
   end function plane_elements

end module cnn_cpu_plan_grid
