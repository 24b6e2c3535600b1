! SPDX-License-Identifier: MIT
!> Normalisation of each channel on a CUDA device, by our kernels; statistics are float64, summed in a fixed order.
module cnn_cuda_operations_normalization
   use, intrinsic :: iso_c_binding, only : c_ptr
   use cnn_core_calls, only : batch_norm_backward_call, batch_norm_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : address_after, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : find_rows, fold_sums, reserve_sums, sum_bytes, sums_bytes
   implicit none
   private

   public :: batch_norm, batch_norm_backward

   integer, parameter :: most_blocks = 4096

   !> What the passes work on
   type :: work_type
      !> Images (w, h, c, n)
      type(tensor_type) :: x
      integer :: blocks = 1
      integer(i8) :: threads = 1_i8
      !> Of each thread and channel two sums, and of each channel two totals of them
      type(c_ptr) :: partial, totals
      !> What is kept of each channel: means, and 1 / sqrt(variance + eps)
      type(c_ptr) :: means, scales
   contains
      procedure :: reserve
      procedure :: sizes
      procedure :: per_channel
   end type work_type

contains

   !> y from x, weight, bias, and the running statistics, which follow in training where there are any
   subroutine batch_norm(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(batch_norm_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      call work%reserve(device, p%x, p%kept, error)
      if (allocated(error)) return
      call find_statistics(device, work, p, error)
      if (allocated(error)) return
      call device%kernels%launch_named("normalize", p%x%dtype, [work%blocks, p%x%extent(3)], work%sizes(), &
         & [p%x%address, p%weight%address, p%bias%address, work%means, work%scales, p%y%address], [integer(i8) ::], &
         & [real(dp) ::], device%stream, error)
   end subroutine batch_norm

   !> The gradients of weight, bias and x
   subroutine batch_norm_backward(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(batch_norm_backward_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      integer(i8) :: sizes(3)
      call work%reserve(device, p%x, p%kept, error)
      if (allocated(error)) return
      sizes = work%sizes()
      call device%kernels%launch_named("norm_gradients", p%x%dtype, [work%blocks, p%x%extent(3)], sizes, &
         & [p%x%address, p%dy%address, work%means, work%scales, work%partial], [integer(i8) ::], [real(dp) ::], &
         & device%stream, error)
      if (allocated(error)) return
      call fold_sums(device, work%partial, work%threads, 2*sizes(2), work%totals, error)
      if (allocated(error)) return
      call device%kernels%launch_named("normalize_backward", p%x%dtype, [work%blocks, p%x%extent(3)], sizes, &
         & [p%x%address, p%weight%address, p%dy%address, work%means, work%scales, work%totals, &
         & p%dweight%address, p%dbias%address, p%dx%address], &
         & [merge(1_i8, 0_i8, p%training)], [work%per_channel()], device%stream, error)
   end subroutine batch_norm_backward

   !> Memory for the sums, and where the numbers of each channel lie in what is kept
   subroutine reserve(self, device, x, kept, error)
      class(work_type), intent(out) :: self
      type(cuda_device_type), intent(inout) :: device
      !> Images (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Means, and scales in the other half, float64, *device*
      type(tensor_type), intent(in) :: kept
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: rows
      self%x = x
      self%means = kept%address
      self%scales = address_after(kept%address, kept%bytes()/2)
      call find_rows(x%extent, self%blocks, self%threads)
      rows = 2*even(x%extent(3))
      call reserve_sums(device, self%threads, rows, self%partial, error)
      self%totals = address_after(self%partial, sums_bytes(self%threads, rows))
   end subroutine reserve

   !> Mean and scale of each channel, of the batch, which running ones follow where there are any, or the running ones
   subroutine find_statistics(device, work, p, error)
      type(cuda_device_type), intent(in) :: device
      !> With its memory; means and scales are overwritten
      type(work_type), intent(in) :: work
      !> With the running ones, which may be empty in training
      type(batch_norm_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: totals(2)
      integer(i8) :: sizes(3)
      integer :: order
      sizes = work%sizes()
      totals = [work%totals, address_after(work%totals, even(work%x%extent(3))*sum_bytes)]
      do order = 1, merge(2, 0, p%training)
         call device%kernels%launch_named("moments", work%x%dtype, [work%blocks, work%x%extent(3)], sizes, &
            & [work%x%address, totals(1), work%partial], [int(order, i8)], [work%per_channel()], device%stream, error)
         if (allocated(error)) return
         call fold_sums(device, work%partial, work%threads, sizes(2), totals(order), error)
         if (allocated(error)) return
      end do
      call device%kernels%launch_named("statistics", work%x%dtype, [blocks_for(sizes(2), most_blocks), 1], &
         & [sizes(2)], [totals, p%running_mean%address, p%running_variance%address, work%means, work%scales], &
         & merge(1_i8, 0_i8, [p%training, p%training .and. p%running_mean%is_allocated()]), [work%per_channel(), &
         & p%eps, p%momentum], device%stream, error)
   end subroutine find_statistics

   !> So many numbers, or one more: then what is behind them begins where any array may
   pure integer(i8) function even(channels)
      !> Number of channels
      integer, intent(in) :: channels
      even = channels + mod(channels, 2)
   end function even

   !> Pixels, channels, images
   pure function sizes(self)
      class(work_type), intent(in) :: self
      integer(i8) :: sizes(3)
      sizes = int([1, self%x%extent(3:4)], i8)
      sizes(1) = product(int(self%x%extent(:2), i8))
   end function sizes

   !> Elements of a channel
   pure real(dp) function per_channel(self)
      class(work_type), intent(in) :: self
      per_channel = product(real(self%x%extent([1, 2, 4]), dp))
   end function per_channel

end module cnn_cuda_operations_normalization
