! SPDX-License-Identifier: MIT
!> Normalisation of each channel on a CUDA device, by our kernels; statistics are float64, summed in a fixed order.
module cnn_cuda_operations_normalization
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_bias_gradient, kernel_narrow
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : fold_sums, reserve_totals
   implicit none
   private

   public :: batch_norm, batch_norm_backward

   integer, parameter :: most_blocks = 4096
   !> The totals of each channel: means, scales, and two sums
   integer, parameter :: means = 1, scales = 2, first = 3, second = 4

   !> What the passes work on
   type :: work_type
      !> Images (w, h, c, n)
      type(tensor_type) :: x
      integer :: blocks = 1
      integer(i8) :: threads = 1_i8
      type(c_ptr) :: partial, totals(4)
   contains
      procedure :: sizes
      procedure :: per_channel
   end type work_type

contains

   !> y from x, weight, bias, and the running statistics, which follow in training where there are any
   subroutine batch_norm(device, t, training, settings, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> x, weight, bias, running mean and variance, y, *device*
      type(tensor_type), intent(in) :: t(6)
      !> Whether mean and variance are the batch's
      logical, intent(in) :: training
      !> eps, momentum
      real(dp), intent(in) :: settings(2)
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      integer(i8) :: sizes(3)
      call find_statistics(device, t(1), t(4:5), training, training .and. t(4)%is_allocated(), settings, work, error)
      if (allocated(error)) return
      sizes = work%sizes()
      call device%kernels%launch_named("normalize", t(1)%dtype, [work%blocks, t(1)%extent(3)], sizes, &
         & [t(1:3)%address, work%totals(means), work%totals(scales), t(6)%address], [integer(i8) ::], &
         & [real(dp) ::], device%stream, error)
   end subroutine batch_norm

   !> The gradients of weight, bias and x
   subroutine batch_norm_backward(device, t, training, settings, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> x, weight, running mean and variance, dy, dweight, dbias, dx, *device*
      type(tensor_type), intent(in) :: t(8)
      !> Whether mean and variance are the batch's
      logical, intent(in) :: training
      !> eps
      real(dp), intent(in) :: settings(1)
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      integer(i8) :: sizes(3)
      call find_statistics(device, t(1), t(3:4), training, .false., [settings, 0.0_dp], work, error)
      if (allocated(error)) return
      sizes = work%sizes()
      call device%kernels%launch_named("norm_products", t(1)%dtype, [work%blocks, t(1)%extent(3)], sizes, &
         & [t(1)%address, t(5)%address, work%totals(means), work%totals(scales), work%partial], &
         & [integer(i8) ::], [real(dp) ::], device%stream, error)
      if (allocated(error)) return
      call fold_sums(device, work%partial, work%threads, sizes(2), work%totals(first), error)
      if (allocated(error)) return
      call sum_gradient(device, t(5), work, error)
      if (allocated(error)) return
      call narrow(device, work%totals(first), t(6), error)
      if (allocated(error)) return
      call narrow(device, work%totals(second), t(7), error)
      if (allocated(error)) return
      call device%kernels%launch_named("normalize_backward", t(1)%dtype, [work%blocks, t(1)%extent(3)], sizes, &
         & [t(1)%address, t(2)%address, t(5)%address, work%totals, t(8)%address], [merge(1_i8, 0_i8, training)], &
         & [work%per_channel()], device%stream, error)
   end subroutine batch_norm_backward

   !> Mean and scale of each channel, of the batch or the running ones
   subroutine find_statistics(device, x, running, training, follow, settings, work, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Images (w, h, c, n), *device*
      type(tensor_type), intent(in) :: x
      !> Mean and variance, *device*; may be empty in training
      type(tensor_type), intent(in) :: running(2)
      !> Whether they are the batch's
      logical, intent(in) :: training
      !> Whether the running ones follow the batch's
      logical, intent(in) :: follow
      !> eps, momentum
      real(dp), intent(in) :: settings(2)
      !> With means and scales
      type(work_type), intent(out) :: work
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: sizes(3)
      integer :: order
      work%x = x
      call reserve_totals(device, x%extent, work%blocks, work%threads, work%partial, work%totals, error)
      if (allocated(error)) return
      sizes = work%sizes()
      do order = 1, merge(2, 0, training)
         call device%kernels%launch_named("moments", x%dtype, [work%blocks, x%extent(3)], sizes, [x%address, &
            & work%totals(first), work%partial], [int(order, i8)], [work%per_channel()], device%stream, error)
         if (allocated(error)) return
         call fold_sums(device, work%partial, work%threads, sizes(2), work%totals(merge(first, second, order == 1)), &
            & error)
         if (allocated(error)) return
      end do
      call device%kernels%launch_named("statistics", x%dtype, [blocks_for(sizes(2), most_blocks), 1], [sizes(2)], &
         & [work%totals(first), work%totals(second), running%address, work%totals(means), work%totals(scales)], &
         & merge(1_i8, 0_i8, [training, follow]), [work%per_channel(), settings], device%stream, error)
   end subroutine find_statistics

   !> The second total becomes the sums of dy
   subroutine sum_gradient(device, dy, work, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> Gradient of the output (w, h, c, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Of tensors of its shape
      type(work_type), intent(in) :: work
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: sizes(3)
      type(c_ptr), target :: address, partial
      sizes = work%sizes()
      address = dy%address
      partial = work%partial
      call device%kernels%launch_typed(kernel_bias_gradient, dy%dtype, [work%blocks, dy%extent(3)], [c_loc(sizes(1)), &
         & c_loc(sizes(2)), c_loc(sizes(3)), c_loc(address), c_loc(partial)], device%stream, error)
      if (allocated(error)) return
      call fold_sums(device, work%partial, work%threads, sizes(2), work%totals(second), error)
   end subroutine sum_gradient

   !> A vector of totals, rounded
   subroutine narrow(device, totals, vector, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> float64, *device*
      type(c_ptr), intent(in) :: totals
      !> As many, *device*
      type(tensor_type), intent(in) :: vector
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: n
      type(c_ptr), target :: from, to
      n = vector%count()
      from = totals
      to = vector%address
      call device%kernels%launch_typed(kernel_narrow, vector%dtype, [blocks_for(vector%count(), most_blocks), 1], &
         & [c_loc(n), c_loc(from), c_loc(to)], device%stream, error)
   end subroutine narrow

   !> Pixels, channels, images
   pure function sizes(self)
      !> With x
      class(work_type), intent(in) :: self
      integer(i8) :: sizes(3)
      sizes = int([1, self%x%extent(3:)], i8)
      sizes(1) = product(int(self%x%extent(:2), i8))
   end function sizes

   !> Elements of a channel
   pure real(dp) function per_channel(self)
      !> With x
      class(work_type), intent(in) :: self
      per_channel = product(real(self%x%extent([1, 2, 4]), dp))
   end function per_channel

end module cnn_cuda_operations_normalization
