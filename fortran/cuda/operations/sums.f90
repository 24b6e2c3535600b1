! SPDX-License-Identifier: MIT
!> Sums over pixels on a CUDA device: each thread of a kernel leaves a partial sum, and these are added in a fixed
!> order, so that every run gives the same bits. All are float64.
module cnn_cuda_operations_sums
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : address_after, aligned, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_fold, kernel_narrow, threads_per_block
   use cnn_cuda_device_type, only : cuda_device_type
   implicit none
   private

   public :: find_rows, fold_sums, reserve_row_sums, reserve_sums, sums_bytes, sums_to_gradient

   !> Blocks: enough to fill a GPU, few enough that the partial sums of all threads are small
   integer, parameter, public :: most_blocks = 1024
   !> CUDA's limit of blocks in y, which are our channels
   integer, parameter, public :: most_rows = 65535
   !> Bytes of a sum
   integer(c_size_t), parameter, public :: sum_bytes = 8_c_size_t
   !> Partial sums that one thread adds in one pass
   integer(i8), parameter :: fold_length = 64_i8
   !> Rows that are folded in blocks of their own, at most
   integer(i8), parameter :: few_rows = 4096_i8

contains

   !> Workspace for partial sums of `n` threads in each of `rows` rows, for folding them, and for the totals
   subroutine reserve_sums(device, n, rows, address, error)
      type(cuda_device_type), intent(inout) :: device
      !> Partial sums of each row
      integer(i8), intent(in) :: n
      !> How many sums are wanted
      integer(i8), intent(in) :: rows
      !> Where they start, *device*
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call device%reserve(sums_bytes(n, rows) + int(rows, c_size_t)*sum_bytes, address, error)
   end subroutine reserve_sums

   !> The same for a kernel with a row of `blocks` blocks, `n` threads, for each channel of a tensor (w, h, c, n)
   subroutine reserve_row_sums(device, extent, blocks, n, address, error)
      type(cuda_device_type), intent(inout) :: device
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> Blocks of each channel
      integer, intent(out) :: blocks
      !> Threads of each channel, each with a partial sum
      integer(i8), intent(out) :: n
      !> Where they start, *device*
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call find_rows(extent, blocks, n)
      call reserve_sums(device, n, int(extent(3), i8), address, error)
   end subroutine reserve_row_sums

   !> Blocks and threads for a row of blocks for each channel
   subroutine find_rows(extent, blocks, n)
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> Blocks of each channel
      integer, intent(out) :: blocks
      !> Threads of each channel
      integer(i8), intent(out) :: n
      blocks = blocks_for(product(int(extent([1, 2, 4]), i8)), max(1, most_blocks/extent(3)))
      n = int(blocks, i8)*threads_per_block
   end subroutine find_rows

   !> Both memories between which sums are folded begin where any array may
   pure integer(c_size_t) function sums_bytes(n, rows)
      !> Partial sums of each row
      integer(i8), intent(in) :: n
      !> How many sums are wanted
      integer(i8), intent(in) :: rows
      sums_bytes = aligned(int(n*rows, c_size_t)*sum_bytes) + aligned(int(folded(n)*rows, c_size_t)*sum_bytes)
   end function sums_bytes

   !> How many sums are left after one pass
   pure integer(i8) function folded(n)
      !> Sums before it
      integer(i8), intent(in) :: n
      folded = (n + fold_length - 1)/fold_length
   end function folded

   !> totals(r) = sum of partial(:, r), in passes to and fro between the partial sums and the memory behind them
   subroutine fold_sums(device, partial, n, rows, totals, error)
      type(cuda_device_type), intent(in) :: device
      !> float64 (n, rows), *device*, of `reserve_sums`; overwritten
      type(c_ptr), intent(in) :: partial
      !> float64 (rows), *device*
      type(c_ptr), intent(in) :: totals
      !> Partial sums of each row
      integer(i8), intent(in) :: n
      !> How many sums are wanted
      integer(i8), intent(in) :: rows
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: from, to, other
      integer(c_int64_t), target :: count, left, next
      integer(i8) :: slices

      count = rows
      slices = max(1_i8, merge(rows, 1_i8, rows <= few_rows))
      from = partial
      other = address_after(partial, aligned(int(n*rows, c_size_t)*sum_bytes))
      left = n
      do
         next = folded(left)
         to = other
         if (next == 1) to = totals
         call device%kernels%launch_plain(kernel_fold, [blocks_for(next*(rows/slices), most_blocks), int(slices)], &
            & [c_loc(left), c_loc(count), c_loc(from), c_loc(next), c_loc(to)], device%stream, error)
         if (allocated(error) .or. next == 1) return
         other = from
         from = to
         left = next
      end do
   end subroutine fold_sums

   !> db(c) = sum of partial(:, c), rounded; `partial` is of `reserve_sums`
   subroutine sums_to_gradient(device, partial, n, channels, db, error)
      type(cuda_device_type), intent(in) :: device
      !> float64 (n, channels), *device*; overwritten
      type(c_ptr), intent(in) :: partial
      !> Partial sums of each channel
      integer(i8), intent(in) :: n
      !> How many there are
      integer(i8), intent(in) :: channels
      !> Bias gradient (channels, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: totals, address
      integer(c_int64_t), target :: count

      ! Behind the places that folding uses
      totals = address_after(partial, sums_bytes(n, channels))
      call fold_sums(device, partial, n, channels, totals, error)
      if (allocated(error)) return
      count = channels
      address = db%address
      call device%kernels%launch_typed(kernel_narrow, db%dtype, [blocks_for(channels, most_blocks), 1], &
         & [c_loc(count), c_loc(totals), c_loc(address)], device%stream, error)
   end subroutine sums_to_gradient

end module cnn_cuda_operations_sums
