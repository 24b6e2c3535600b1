! SPDX-License-Identifier: MIT
!> Gradients of the factors of sums of functions (KAN layers) on a CUDA device, by our kernels, summed in a fixed order.
module cnn_cuda_operations_spline
   use, intrinsic :: iso_c_binding, only : c_ptr
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
   subroutine spline_gradients(device, t, form, ends, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> x, coefficient, scale_spline, dy, dscale_spline, dscale_base, dcoefficient, *device*; scales may be empty
      type(tensor_type), intent(in) :: t(7)
      !> Degree, intervals
      integer, intent(in) :: form(2)
      !> Where the first interval begins, and where the last one ends
      real(dp), intent(in) :: ends(2)
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: partial, sums
      integer(i8) :: pairs, rows, wanted, parts
      pairs = t(6)%count()
      rows = t(1)%count()/t(1)%extent(1)
      wanted = pairs*(sum(form) + 1)
      parts = max(1_i8, min(rows/least_rows, most_parts/wanted))
      if (wanted > most_rows) parts = 1
      call reserve_sums(device, parts, wanted, partial, error)
      if (allocated(error)) return
      call device%kernels%launch_named("spline_sums", t(1)%dtype, [blocks_for(wanted*parts, most_blocks), 1], &
         & [wanted*parts], [t([1, 4])%address, partial], &
         & [parts, int([t(1)%extent(1), t(4)%extent(1), form], i8), rows], ends, device%stream, error)
      if (allocated(error)) return
      sums = partial
      if (parts > 1) then
         sums = address_after(partial, sums_bytes(parts, wanted))
         call fold_sums(device, partial, parts, wanted, sums, error)
         if (allocated(error)) return
      end if
      call device%kernels%launch_named("spline_gradients", t(1)%dtype, [blocks_for(pairs, most_blocks), 1], [pairs], &
         & [t(2:3)%address, sums, t(5:7)%address], [sum(int(form, i8)), merge(1_i8, 0_i8, t(3)%is_allocated())], &
         & [real(dp) ::], device%stream, error)
   end subroutine spline_gradients

end module cnn_cuda_operations_spline
