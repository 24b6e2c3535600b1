! SPDX-License-Identifier: MIT
!> Convolutions of 3 x 3 on a CUDA device, by kernels of our own: the sums that they are, in float32.
!>
!> Why.       With few channels memory is the limit, or nearly, and cuDNN is far from it: it pads channels, or its
!>            engines want many of them. And its gradients with the same bits in every run, without transforms, are
!>            slower than ours, those of filters several times. docs/gpu-bench.md has the times, cnn_cuda_plans_direct
!>            the choice.
!> Precision. Operands are float32 in each `math`, which only allows a lower precision, and products are not rounded.
!>            Sums over pixels end in float64.
!> Order.     Every sum has an order of its own, whatever the GPU does first.
module cnn_cuda_operations_direct
   use, intrinsic :: iso_c_binding, only : c_int, c_loc, c_null_ptr, c_ptr, c_size_t
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, i8
   use cnn_core_tensor, only : address_after, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_direct, kernel_direct_arrange, kernel_direct_filter, &
      & kernel_direct_filter_quads, kernel_direct_masked, threads_per_block
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : reserve_sums, sums_to_gradient
   use cnn_cuda_plans_direct, only : filters_together, most_parts, reads_fours, together
   use cnn_cuda_plans_request, only : conv_data, conv_forward
   implicit none
   private

   public :: arranged_bytes, direct_data, direct_filter, direct_forward, direct_masked, turn_filters

   !> Pixels below each other that a thread makes of one channel, and of 16, at a time
   integer, parameter :: below(2) = [8, 4]
   !> Threads of a warp, the columns that it takes, and the rows that it goes down at most before it takes others
   integer, parameter :: warp = 32, strip = 128, most_rows = 63, fewest_rows = 3
   !> How often a GPU may be full of blocks of a filter gradient, one after the other
   integer, parameter :: most_waves = 4

contains

   !> y = conv(x, w) + bias, then max(y, 0) with `relu`; no bias when it is empty
   subroutine direct_forward(device, conv, x, w, bias, relu, y, error)
      type(cuda_device_type), intent(inout) :: device
      !> Padding
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: bias
      !> Whether negative results become 0
      logical, intent(in) :: relu
      !> Result (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: filters(2)
      call arrange(device, w, bias, conv_forward, filters, error)
      if (.not. allocated(error)) call convolve(device, x, filters, [conv%pad_w, conv%pad_h], relu, y, error)
   end subroutine direct_forward

   !> dx from w and dy: a convolution of dy with w turned by 180 degrees
   subroutine direct_data(device, conv, w, dy, dx, error)
      type(cuda_device_type), intent(inout) :: device
      !> Padding
      type(conv_type), intent(in) :: conv
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Gradient of y (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Gradient of x (w, h, c, n), *device*
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: filters(2)
      call arrange(device, w, tensor_type(), conv_data, filters, error)
      if (.not. allocated(error)) call convolve(device, dy, filters, 2 - [conv%pad_w, conv%pad_h], .false., dx, error)
   end subroutine direct_data

   !> The gradient of the input of the ReLU that gave `a`, which the convolution took, in the place of `a`; and db = its
   !> sums when that is not empty
   subroutine direct_masked(device, conv, w, dy, a, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Padding
      type(conv_type), intent(in) :: conv
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Gradient of the convolution's output (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Result of the ReLU (w, h, c, n), *device*; overwritten
      type(tensor_type), intent(in) :: a
      !> Bias gradient (c, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: addresses(5)
      integer(c_int), target :: n(9)
      type(c_ptr) :: filters(2)
      integer(i8) :: threads
      integer :: blocks, i, kind

      call arrange(device, w, tensor_type(), conv_data, filters, error)
      if (allocated(error)) return
      kind = kind_for(a%extent(3))
      n = geometry(dy, a, kind, 2 - [conv%pad_w, conv%pad_h])
      ! One after the other: a thread sums what it makes of many tiles
      blocks = blocks_for(int(n(1), i8), max(1, device%processors/(a%extent(3)/together(kind))))
      threads = int(blocks, i8)*threads_per_block
      call reserve_sums(device, threads, int(a%extent(3), i8), addresses(5), error)
      if (allocated(error)) return
      addresses(:4) = [dy%address, filters, a%address]
      call device%kernels%launch_plain(kernel_direct_masked(kind), [blocks, a%extent(3)/together(kind)], &
         & [(c_loc(n(i)), i=1, size(n)), (c_loc(addresses(i)), i=1, size(addresses))], device%stream, error)
      if (allocated(error) .or. .not. db%is_allocated()) return
      call sums_to_gradient(device, addresses(5), threads, int(a%extent(3), i8), db, error)
   end subroutine direct_masked

   !> dw from x and dy
   subroutine direct_filter(device, name, conv, x, dy, dw, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Padding
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Gradient of y (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Gradient of w (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: dw
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: addresses(3)
      integer(c_int), target :: n(13)
      type(tensor_type) :: window, wide
      integer :: blocks, counts, i, kernel, parts, padding(2)
      logical :: turned

      ! A thread takes one channel of the one and several of the other
      turned = mod(dy%extent(3), filters_together) /= 0
      window = x
      wide = dy
      padding = [conv%pad_w, conv%pad_h]
      if (turned) then
         window = dy
         wide = x
         padding = 2 - padding
      end if
      call divide(device, window%extent, wide%extent, most_parts(window%extent(3)*wide%extent(3), name), blocks, n(:4))
      parts = blocks*(threads_per_block/warp)/window%extent(3)
      if (reads_fours(window%extent, wide%extent)) then
         kernel = kernel_direct_filter_quads
         counts = 10
         n(:counts) = [n(1), n(3:4), wide%extent(:2), window%extent(2:3), wide%extent(3), padding(2), &
            & merge(1, 0, turned)]
      else
         kernel = kernel_direct_filter
         counts = 13
         n(5:) = [wide%extent(:2), window%extent(:3), wide%extent(3), padding, merge(1, 0, turned)]
      end if
      call reserve_sums(device, int(parts, i8)*warp, dw%count(), addresses(3), error)
      if (allocated(error)) return
      addresses(:2) = [window%address, wide%address]
      call device%kernels%launch_plain(kernel, [blocks, wide%extent(3)/filters_together], &
         & [(c_loc(n(i)), i=1, counts), (c_loc(addresses(i)), i=1, size(addresses))], device%stream, error)
      if (allocated(error)) return
      call sums_to_gradient(device, addresses(3), int(parts, i8)*warp, dw%count(), dw, error)
   end subroutine direct_filter

   !> How the images are divided among the warps that take the same channels, and how many blocks these are
   subroutine divide(device, window, wide, most, blocks, n)
      type(cuda_device_type), intent(in) :: device
      !> Extents (w, h, c, n) of what a thread takes one channel of
      integer, intent(in) :: window(4)
      !> Extents of what it takes several channels of
      integer, intent(in) :: wide(4)
      !> Parts of each sum that there may be
      integer, intent(in) :: most
      !> Of one group of these channels
      integer, intent(out) :: blocks
      !> Pieces of all images, each for a warp, or of four columns for a thread; strips of an image, pieces of these,
      !> rows of a piece
      integer(c_int), intent(out) :: n(4)
      integer, parameter :: warps = threads_per_block/warp
      integer(i8) :: lines, pieces
      integer :: groups, least, parts, rows, strips
      logical :: fours
      fours = reads_fours(window, wide)
      strips = merge(wide(1)/4, (wide(1) + strip - 1)/strip, fours)
      ! Rows of strips that warps take
      lines = int(strips, i8)*wide(2)*wide(4)
      if (fours) lines = (lines + warp - 1)/warp
      groups = wide(3)/filters_together
      parts = parts_of(2*device%processors, window(3)*groups, most)
      ! If there is work for all; some pieces for each
      rows = int(max(int(fewest_rows, i8), min(int(most_rows, i8), lines/(8*parts))))
      n = [0, strips, (wide(2) + rows - 1)/rows, rows]
      n(1) = n(2)*n(3)*wide(4)
      pieces = n(1)
      if (fours) pieces = (pieces + warp - 1)/warp
      least = (window(3) + warps - 1)/warps
      blocks = max(int(min(int((parts*window(3) + warps - 1)/warps, i8), (pieces*window(3) + warps - 1)/warps)), least)
   end subroutine divide

   !> How many parts each sum has: as many warps as a GPU holds at a time. Where the last blocks would leave much of it
   !> idle for as long as all others took, more of them, each with less to do.
   pure integer function parts_of(held, warps, most)
      !> Blocks that a GPU holds at a time
      integer, intent(in) :: held
      !> Warps of one part of all sums
      integer, intent(in) :: warps
      !> Parts that there may be
      integer, intent(in) :: most
      !> Of the time with fewer, what more may take to be worth their sums
      real, parameter :: worth = 0.9
      integer :: parts, waves
      real :: time, least
      parts_of = 1
      least = huge(1.0)
      do waves = 1, most_waves
         parts = min(most, int(int(waves, i8)*held*(threads_per_block/warp)/warps))
         if (parts < 1) cycle
         time = real(waves)/parts
         if (time < worth*least) then
            parts_of = parts
            least = time
         end if
      end do
   end function parts_of

   !> y = conv(x, f) + bias, then max(y, 0) with `relu`
   subroutine convolve(device, x, filters, padding, relu, y, error)
      type(cuda_device_type), intent(in) :: device
      !> Input (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Filters and biases of `arrange`, *device*
      type(c_ptr), intent(in) :: filters(2)
      !> Beside x and above it
      integer, intent(in) :: padding(2)
      !> Whether negative results become 0
      logical, intent(in) :: relu
      !> Result (q, p, k, n), *device*
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: addresses(4)
      integer(c_int), target :: n(10)
      integer :: i, kind
      kind = kind_for(y%extent(3))
      n = [geometry(x, y, kind, padding), merge(1_c_int, 0_c_int, relu)]
      addresses = [x%address, filters, y%address]
      call device%kernels%launch_plain(kernel_direct(kind), &
         & [blocks_for(int(n(1), i8), huge(1)), y%extent(3)/together(kind)], &
         & [(c_loc(n(i)), i=1, size(n)), (c_loc(addresses(i)), i=1, size(addresses))], device%stream, error)
   end subroutine convolve

   !> Tiles, columns and rows of y, those of x, channels of x and y, padding
   pure function geometry(x, y, kind, padding)
      !> What is read (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> What is written (q, p, k, n)
      type(tensor_type), intent(in) :: y
      !> Of the kernel
      integer, intent(in) :: kind
      !> Beside x and above it
      integer, intent(in) :: padding(2)
      integer(c_int) :: geometry(9)
      geometry(1) = y%extent(1)*((y%extent(2) + below(kind) - 1)/below(kind))*y%extent(4)
      geometry(2:) = [y%extent(:2), x%extent(:2), x%extent(3), y%extent(3), padding]
   end function geometry

   !> Which kernel makes so many channels
   pure integer function kind_for(channels)
      !> 1 or more
      integer, intent(in) :: channels
      kind_for = merge(2, 1, mod(channels, together(2)) == 0)
   end function kind_for

   !> Filters as the kernels read them, and as many biases, in the device's scratch memory
   subroutine arrange(device, w, bias, operation, filters, error)
      type(cuda_device_type), intent(inout) :: device
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1), *device*; empty: zeros
      type(tensor_type), intent(in) :: bias
      !> `conv_forward` or `conv_data`
      integer, intent(in) :: operation
      !> Where filters and biases are, *device*
      type(c_ptr), intent(out) :: filters(2)
      type(error_type), allocatable, intent(out) :: error
      call device%reserve_scratch(arranged_bytes(w), filters(1), error)
      if (allocated(error)) return
      filters(2) = address_after(filters(1), bytes_of_filters(w))
      call arrange_to(device, w, bias, operation, together(kind_for(w%extent(merge(3, 4, operation == conv_data)))), &
         & filters(1), error)
   end subroutine arrange

   !> w turned by 180 degrees, its channels exchanged: the filters of a data gradient, as any convolution takes them
   subroutine turn_filters(device, w, address, error)
      type(cuda_device_type), intent(in) :: device
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Where they go, (3, 3, k, c) in `arranged_bytes`, *device*
      type(c_ptr), intent(in) :: address
      type(error_type), allocatable, intent(out) :: error
      call arrange_to(device, w, tensor_type(), conv_data, 1, address, error)
   end subroutine turn_filters

   !> Filters, and behind them biases, where they are wanted
   subroutine arrange_to(device, w, bias, operation, in_group, address, error)
      type(cuda_device_type), intent(in) :: device
      !> Filter (3, 3, c, k), *device*
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1), *device*; empty: zeros
      type(tensor_type), intent(in) :: bias
      !> `conv_forward`, or `conv_data`: then turned by 180 degrees, and channels exchanged
      integer, intent(in) :: operation
      !> Outputs that lie next to each other
      integer, intent(in) :: in_group
      !> Where they go, *device*
      type(c_ptr), intent(in) :: address
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: addresses(3)
      integer(c_int), target :: n(10)
      integer :: channels(2), i, steps(2)

      ! Channels that are read and that are written, and the steps from one to the next
      channels = w%extent(3:4)
      steps = [9, 9*w%extent(3)]
      n(5:7) = [0, 1, 3]
      if (operation == conv_data) then
         channels = channels([2, 1])
         steps = steps([2, 1])
         n(5:7) = [8, -1, -3]
      end if
      n(1:4) = [int(w%count()), in_group, channels]
      n(8:) = [steps, merge(1, 0, bias%is_allocated())]
      addresses = [w%address, bias%address, address]
      if (.not. bias%is_allocated()) addresses(2) = c_null_ptr
      call device%kernels%launch_plain(kernel_direct_arrange, [blocks_for(int(n(1) + channels(2), i8), 1024), 1], &
         & [(c_loc(n(i)), i=1, size(n)), (c_loc(addresses(i)), i=1, size(addresses))], device%stream, error)
   end subroutine arrange_to

   !> Of filters and the biases behind them
   pure integer(c_size_t) function arranged_bytes(w)
      !> Filter (3, 3, c, k)
      type(tensor_type), intent(in) :: w
      arranged_bytes = bytes_of_filters(w) + maxval(w%extent(3:4))*bytes_of(w%dtype)
   end function arranged_bytes

   !> The biases begin at a multiple of four numbers
   pure integer(c_size_t) function bytes_of_filters(w)
      !> Filter (3, 3, c, k)
      type(tensor_type), intent(in) :: w
      bytes_of_filters = int((w%count() + 3)/4*4*bytes_of(w%dtype), c_size_t)
   end function bytes_of_filters

end module cnn_cuda_operations_direct
