! SPDX-License-Identifier: MIT
!> Normalisation of rows of numbers on a CUDA device, by our kernels; statistics are float64, summed in a fixed order.
module cnn_cuda_operations_row_norms
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_null_ptr, c_ptr, c_size_t
   use cnn_core_calls, only : row_norm_backward_call, row_norm_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : address_after, aligned, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_narrow
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : fold_sums, most_rows, sum_bytes, sums_bytes
   implicit none
   private

   public :: row_norm, row_norm_backward

   integer, parameter :: most_blocks = 4096
   !> Threads that add up one tensor, and numbers that one of them adds at least
   integer(i8), parameter :: most_parts = 262144_i8, least_terms = 8_i8
   !> The totals of each row: sums, squares, means, scales; and of each column of each group
   integer, parameter :: first = 1, second = 2, means = 3, scales = 4, of_columns = 5

   !> What the passes work on
   type :: work_type
      !> Rows
      type(tensor_type) :: x
      !> inner, columns, groups, rows
      integer(i8) :: form(4) = 1_i8
      type(c_ptr) :: partial, totals(5)
   end type work_type

contains

   !> y from x, weight, bias, of which the latter may be empty
   subroutine row_norm(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(row_norm_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      call find_statistics(device, p%x, p%form, p%eps, work, error)
      if (allocated(error)) return
      call device%kernels%launch_named("row_normalize", p%x%dtype, [blocks_for(p%x%count(), most_blocks), 1], &
         & [p%x%count()], [p%x%address, p%weight%address, p%bias%address, work%totals(means), &
         & work%totals(scales), p%y%address], &
         & [work%form(:3), merge(1_i8, 0_i8, [p%weight%is_allocated(), p%bias%is_allocated()])], [real(dp) ::], &
         & device%stream, error)
   end subroutine row_norm

   !> The gradients of weight and bias, where there are any, and x
   subroutine row_norm_backward(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(row_norm_backward_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      type(tensor_type) :: sums(2)
      integer :: i
      call find_statistics(device, p%x, p%form, p%eps, work, error)
      if (allocated(error)) return
      do i = 1, 2
         call sum_rows(device, work, p%weight, p%dy, i + 2, work%totals(i), error)
         if (allocated(error)) return
      end do
      sums = [p%dbias, p%dweight]
      do i = 1, 2
         if (.not. sums(i)%is_allocated()) cycle
         call sum_columns(device, work, p%dy, i + 4, sums(i), error)
         if (allocated(error)) return
      end do
      call device%kernels%launch_named("row_normalize_backward", p%x%dtype, &
         & [blocks_for(p%x%count(), most_blocks), 1], [p%x%count()], &
         & [p%x%address, p%weight%address, p%dy%address, work%totals([means, scales, first, second]), p%dx%address], &
         & [work%form(:3), merge(1_i8, 0_i8, p%weight%is_allocated())], [real(dp) ::], device%stream, error)
   end subroutine row_norm_backward

   !> Mean and 1 / sqrt(variance + eps) of each row
   subroutine find_statistics(device, x, form, eps, work, error)
      type(cuda_device_type), intent(inout) :: device
      !> Rows, *device*
      type(tensor_type), intent(in) :: x
      !> inner, columns, groups
      integer, intent(in) :: form(3)
      !> Added to the variance
      real(dp), intent(in) :: eps
      !> With means and scales
      type(work_type), intent(out) :: work
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: length
      work%x = x
      length = int(form(1), i8)*form(2)
      work%form = [int(form, i8), x%count()/length]
      call reserve(device, work, error)
      if (allocated(error)) return
      call sum_rows(device, work, tensor_type(), tensor_type(), 1, work%totals(first), error)
      if (allocated(error)) return
      call sum_rows(device, work, tensor_type(), tensor_type(), 2, work%totals(second), error)
      if (allocated(error)) return
      call device%kernels%launch_named("statistics", x%dtype, [blocks_for(work%form(4), most_blocks), 1], &
         & [work%form(4)], [work%totals([first, second]), c_null_ptr, c_null_ptr, work%totals([means, scales])], &
         & [1_i8, 0_i8], [real(length, dp), eps, 0.0_dp], device%stream, error)
   end subroutine find_statistics

   !> Memory for all sums
   subroutine reserve(device, work, error)
      type(cuda_device_type), intent(inout) :: device
      !> With its rows
      type(work_type), intent(inout) :: work
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: partial, total
      integer(i8) :: rows, columns
      integer :: i
      rows = work%form(4)
      columns = work%form(2)*work%form(3)
      partial = aligned(max(sums_bytes(parts_of(work, rows), rows), sums_bytes(parts_of(work, columns), columns)))
      total = aligned(max(rows, columns)*sum_bytes)
      call device%reserve(partial + size(work%totals)*total, work%partial, error)
      if (allocated(error)) return
      do i = 1, size(work%totals)
         work%totals(i) = address_after(work%partial, partial + (i - 1)*total)
      end do
   end subroutine reserve

   !> Threads for each of so many sums of all numbers
   pure integer(i8) function parts_of(work, sums)
      !> With its rows
      type(work_type), intent(in) :: work
      !> How many
      integer(i8), intent(in) :: sums
      parts_of = max(1_i8, min(work%x%count()/sums/least_terms, most_parts/sums))
      if (sums > most_rows) parts_of = 1
   end function parts_of

   !> The sums of each row
   subroutine sum_rows(device, work, weight, dy, order, totals, error)
      type(cuda_device_type), intent(in) :: device
      !> With memory
      type(work_type), intent(in) :: work
      !> Factors, *device*, or empty
      type(tensor_type), intent(in) :: weight
      !> Gradient of the output, *device*; empty in the orders 1 and 2
      type(tensor_type), intent(in) :: dy
      !> Of the kernel's `term`
      integer, intent(in) :: order
      !> Where they go, *device*
      type(c_ptr), intent(in) :: totals
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: parts
      type(c_ptr) :: to, mean
      parts = parts_of(work, work%form(4))
      to = work%partial
      if (parts == 1) to = totals
      mean = work%totals(merge(first, means, order == 2))
      call device%kernels%launch_named("row_sums", work%x%dtype, [blocks_for(work%form(4)*parts, most_blocks), 1], &
         & [work%form(4)*parts], [work%x%address, weight%address, dy%address, mean, work%totals(scales), to], &
         & [parts, work%form(:3), int(order, i8), merge(1_i8, 0_i8, weight%is_allocated())], [real(dp) ::], &
         & device%stream, error)
      if (allocated(error) .or. parts == 1) return
      call fold_sums(device, work%partial, parts, work%form(4), totals, error)
   end subroutine sum_rows

   !> The sums of each column of each group, as a gradient
   subroutine sum_columns(device, work, dy, order, gradient, error)
      type(cuda_device_type), intent(in) :: device
      !> With means and scales
      type(work_type), intent(in) :: work
      !> Gradient of the output, *device*
      type(tensor_type), intent(in) :: dy
      !> Of the kernel's `term`
      integer, intent(in) :: order
      !> With respect to factors or shifts, *device*
      type(tensor_type), intent(in) :: gradient
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: columns, parts
      integer(c_int64_t), target :: n
      type(c_ptr), target :: from, to
      columns = work%form(2)*work%form(3)
      parts = parts_of(work, columns)
      from = work%partial
      call device%kernels%launch_named("column_sums", work%x%dtype, [blocks_for(columns*parts, most_blocks), 1], &
         & [columns*parts], [work%x%address, dy%address, work%totals(means), work%totals(scales), from], &
         & [parts, work%form, int(order, i8)], [real(dp) ::], device%stream, error)
      if (allocated(error)) return
      if (parts > 1) then
         from = work%totals(of_columns)
         call fold_sums(device, work%partial, parts, columns, from, error)
         if (allocated(error)) return
      end if
      n = columns
      to = gradient%address
      call device%kernels%launch_typed(kernel_narrow, gradient%dtype, [blocks_for(columns, most_blocks), 1], &
         & [c_loc(n), c_loc(from), c_loc(to)], device%stream, error)
   end subroutine sum_columns

end module cnn_cuda_operations_row_norms
