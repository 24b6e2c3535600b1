! SPDX-License-Identifier: MIT
!> What training needs besides convolutions, by our CUDA Fortran kernels: ReLU backward with the bias gradient, the
!> loss with its gradient, the update of all parameters in one launch.
!>
!> Sums over pixels are float64, folded in a fixed order: the same bits in every run.
module cnn_cuda_operations_training
   use, intrinsic :: iso_c_binding, only : &
      & c_double, c_f_pointer, c_float, c_int, c_int64_t, c_loc, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, i8, sp
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_bindings_cudart_enums, only : cudaMemcpyDeviceToHost
   use cnn_cuda_device_kernels, only : blocks_for, kernel_mse, kernel_relu_backward, kernel_relu_backward_bias, &
      & kernel_sgd, threads_per_block
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_pointwise, only : bias_gradient
   use cnn_cuda_operations_sums, only : fold_sums, most_blocks, most_rows, reserve_row_sums, reserve_sums, sum_bytes, &
      & sums_to_gradient
   implicit none
   private

   public :: loss_of_graph, mse, read_loss, relu_backward, update

   !> cnn_sgd's flags, as in cuda/kernels/kernels.cuf
   integer(c_int), parameter :: flag_momentum = 1, flag_first = 2, flag_nesterov = 4, flag_decay = 8

contains

   !> dy = 2*scale*(y - target), total = sum of (y - target)**2
   subroutine mse(device, y, target, scale, dy, total, error)
      type(cuda_device_type), intent(inout) :: device
      !> Output of the network, *device*
      type(tensor_type), intent(in) :: y
      !> What it should be, *device*, of the same shape
      type(tensor_type), intent(in) :: target
      !> Gradient of the loss with respect to y, *device*
      type(tensor_type), intent(in) :: dy
      !> 1/number of elements for a mean, 1 for a sum
      real(dp), intent(in) :: scale
      !> One float64 number, *device*
      type(tensor_type), intent(in) :: total
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: y_address, t_address, dy_address, partial
      integer(c_int64_t), target :: n
      real(c_float), target :: slope_f32
      real(c_double), target :: slope_f64
      type(c_ptr) :: slope
      integer :: blocks

      blocks = blocks_for(y%count(), most_blocks)
      call reserve_sums(device, int(blocks, i8)*threads_per_block, 1_i8, partial, error)
      if (allocated(error)) return
      n = y%count()
      slope_f64 = 2.0_dp*scale
      slope_f32 = real(slope_f64, sp)
      slope = c_loc(slope_f32)
      if (y%dtype == dtype_float64) slope = c_loc(slope_f64)
      y_address = y%address
      t_address = target%address
      dy_address = dy%address
      call device%kernels%launch_typed(kernel_mse, y%dtype, [blocks, 1], &
         & [c_loc(n), c_loc(y_address), c_loc(t_address), c_loc(dy_address), slope, c_loc(partial)], &
         & device%stream, error)
      if (allocated(error)) return
      call fold_sums(device, partial, int(blocks, i8)*threads_per_block, 1_i8, total%address, error)
   end subroutine mse

   !> Another loss: its gradient, and in total what becomes the loss by the factor
   subroutine loss_of_graph(device, name, tensors, axis, integers, reals, dy, total, error)
      type(cuda_device_type), intent(inout) :: device
      !> Of the kernel
      character(len=*), intent(in) :: name
      !> Output of the network, what it should be, of the same shape, and perhaps more, *device*
      type(tensor_type), intent(in) :: tensors(:)
      !> Of the channels, over which each pixel is one; 0: every element is
      integer, intent(in) :: axis
      !> Settings
      integer, intent(in) :: integers(:)
      !> Weight of a pixel or of an element, and settings
      real(dp), intent(in) :: reals(:)
      !> Gradient of the loss with respect to the output, *device*
      type(tensor_type), intent(in) :: dy
      !> One float64 number, *device*
      type(tensor_type), intent(in) :: total
      type(error_type), allocatable, intent(out) :: error
      integer(i8), allocatable :: channels(:)
      type(c_ptr) :: partial
      integer(i8) :: n
      integer :: blocks

      n = dy%count()
      allocate (channels(0))
      if (axis > 0) then
         channels = [product(int(dy%extent(:axis - 1), i8)), int(dy%extent(axis), i8)]
         n = n/channels(2)
      end if
      blocks = blocks_for(n, most_blocks)
      call reserve_sums(device, int(blocks, i8)*threads_per_block, 1_i8, partial, error)
      if (allocated(error)) return
      call device%kernels%launch_named(name, dy%dtype, [blocks, 1], [n], [tensors%address, dy%address, partial], &
         & [channels, int(integers, i8)], reals, device%stream, error)
      if (allocated(error)) return
      call fold_sums(device, partial, int(blocks, i8)*threads_per_block, 1_i8, total%address, error)
   end subroutine loss_of_graph

   !> The total of a loss as a number; the one place of a step where the host waits
   subroutine read_loss(device, total, loss, error)
      type(cuda_device_type), intent(inout) :: device
      !> The sum that `mse` made, *device*
      type(tensor_type), intent(in) :: total
      !> The total; 0 after an error
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      real(c_double), pointer :: sum_of_squares

      loss = 0.0_dp
      call device%check(device%rt%memcpy_async(device%buffers%loss, total%address, sum_bytes, &
         & cudaMemcpyDeviceToHost, device%stream), "reading the loss", error)
      if (allocated(error)) return
      call device%synchronize(error)
      if (allocated(error)) return
      call c_f_pointer(device%buffers%loss, sum_of_squares)
      loss = sum_of_squares
   end subroutine read_loss

   !> dz = da where z > 0, and db = sums of dz when `db` is not empty
   subroutine relu_backward(device, z, da, dz, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Input of the ReLU or its result (w, h, c, n), *device*
      type(tensor_type), intent(in) :: z
      !> Gradient of its result, *device*
      type(tensor_type), intent(in) :: da
      !> Gradient of its input, *device*; may be z or da
      type(tensor_type), intent(in) :: dz
      !> Bias gradient (c, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: z_address, da_address, dz_address
      integer(c_int64_t), target :: n

      if (db%is_allocated() .and. z%extent(3) <= most_rows) then
         call relu_backward_bias(device, z, da, dz, db, error)
      else
         n = z%count()
         z_address = z%address
         da_address = da%address
         dz_address = dz%address
         call device%kernels%launch_typed(kernel_relu_backward, z%dtype, &
            & [blocks_for(z%count(), most_blocks), 1], &
            & [c_loc(n), c_loc(z_address), c_loc(da_address), c_loc(dz_address)], device%stream, error)
         if (allocated(error)) return
         if (db%is_allocated()) call bias_gradient(device, dz, db, error)
      end if
   end subroutine relu_backward

   subroutine relu_backward_bias(device, z, da, dz, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Input of the ReLU or its result (w, h, c, n), *device*
      type(tensor_type), intent(in) :: z
      !> Gradient of its result, *device*
      type(tensor_type), intent(in) :: da
      !> Gradient of its input, *device*; may be z or da
      type(tensor_type), intent(in) :: dz
      !> Bias gradient (c, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: z_address, da_address, dz_address, partial
      integer(c_int64_t), target :: pixels, channels, batch
      integer(i8) :: threads
      integer :: blocks

      pixels = product(int(z%extent(1:2), i8))
      channels = z%extent(3)
      batch = z%extent(4)
      call reserve_row_sums(device, z%extent, blocks, threads, partial, error)
      if (allocated(error)) return
      z_address = z%address
      da_address = da%address
      dz_address = dz%address
      call device%kernels%launch_typed(kernel_relu_backward_bias, z%dtype, [blocks, z%extent(3)], &
         & [c_loc(pixels), c_loc(channels), c_loc(batch), c_loc(z_address), c_loc(da_address), c_loc(dz_address), &
         & c_loc(partial)], device%stream, error)
      if (allocated(error)) return
      call sums_to_gradient(device, partial, threads, channels, db, error)
   end subroutine relu_backward_bias

   !> One SGD step on all elements of w
   subroutine update(device, sgd, first, w, g, v, error)
      type(cuda_device_type), intent(inout) :: device
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> Whether it is the first step, at which v becomes the gradient
      logical, intent(in) :: first
      !> Parameters, *device*; overwritten
      type(tensor_type), intent(in) :: w
      !> Their gradients, *device*
      type(tensor_type), intent(in) :: g
      !> Their momenta, *device*; empty without momentum
      type(tensor_type), intent(in) :: v
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: w_address, g_address, v_address
      real(c_double), target :: f64(4)
      real(c_float), target :: f32(4)
      integer(c_int64_t), target :: n
      integer(c_int), target :: flags
      type(c_ptr) :: settings(4)
      integer :: i

      f64 = [sgd%lr, sgd%momentum, 1.0_dp - sgd%dampening, sgd%weight_decay]
      f32 = real(f64, sp)
      do i = 1, 4
         settings(i) = c_loc(f64(i))
         if (w%dtype == dtype_float32) settings(i) = c_loc(f32(i))
      end do
      flags = merge(flag_momentum, 0_c_int, v%is_allocated()) + merge(flag_first, 0_c_int, first) + &
         & merge(flag_nesterov, 0_c_int, sgd%nesterov) + merge(flag_decay, 0_c_int, sgd%weight_decay > 0.0_dp)
      n = w%count()
      w_address = w%address
      g_address = g%address
      v_address = c_null_ptr
      if (v%is_allocated()) v_address = v%address
      call device%kernels%launch_typed(kernel_sgd, w%dtype, [blocks_for(w%count(), most_blocks), 1], &
         & [c_loc(n), c_loc(w_address), c_loc(g_address), c_loc(v_address), settings(1), settings(2), settings(3), &
         & settings(4), c_loc(flags)], device%stream, error)
   end subroutine update

end module cnn_cuda_operations_training
