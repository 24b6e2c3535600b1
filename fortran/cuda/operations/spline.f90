! SPDX-License-Identifier: MIT
!> Gradients of the factors of sums of functions (KAN layers) on a CUDA device, by our kernels, summed in a fixed order.
module cnn_cuda_operations_spline
   use, intrinsic :: iso_c_binding, only : c_ptr
   use cnn_core_calls, only : spline_gradients_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : address_after, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : fold_sums, most_rows, reserve_sums, sums_bytes
   implicit none
   private

   public :: spline_gradients

   integer, parameter :: most_blocks = 4096
   !> Threads of all sums, and rows that one of them adds at least
   integer(i8), parameter :: most_parts = 262144_i8, least_rows = 8_i8

contains

   !> From sums over the rows of dy times each function
   subroutine spline_gradients(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*; scales may be empty
      type(spline_gradients_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: partial, sums
      integer(i8) :: pairs, rows, wanted, parts
      pairs = p%dscale_base%count()
      rows = p%x%count()/p%x%extent(1)
      wanted = pairs*(sum(p%form) + 1)
      parts = max(1_i8, min(rows/least_rows, most_parts/wanted))
      if (wanted > most_rows) parts = 1
      call reserve_sums(device, parts, wanted, partial, error)
      if (allocated(error)) return
      call device%kernels%launch_named("spline_sums", p%x%dtype, [blocks_for(wanted*parts, most_blocks), 1], &
         & [wanted*parts], [p%x%address, p%dy%address, partial], &
         & [parts, int([p%x%extent(1), p%dy%extent(1), p%form], i8), rows], [p%low, p%high], device%stream, error)
      if (allocated(error)) return
      sums = partial
      if (parts > 1) then
         sums = address_after(partial, sums_bytes(parts, wanted))
         call fold_sums(device, partial, parts, wanted, sums, error)
         if (allocated(error)) return
      end if
      call device%kernels%launch_named("spline_gradients", p%x%dtype, [blocks_for(pairs, most_blocks), 1], [pairs], &
         & [p%coefficient%address, p%scale_spline%address, sums, p%dscale_spline%address, p%dscale_base%address, &
         & p%dcoefficient%address], [sum(int(p%form, i8)), merge(1_i8, 0_i8, p%scale_spline%is_allocated())], &
         & [real(dp) ::], device%stream, error)
   end subroutine spline_gradients

end module cnn_cuda_operations_spline
