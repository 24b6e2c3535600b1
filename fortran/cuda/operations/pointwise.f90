! SPDX-License-Identifier: MIT
!> Element-wise work of a convolution layer on a CUDA device, by our kernels; bias gradients; conversions of element
!> types.
module cnn_cuda_operations_pointwise
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr, c_size_t
   use cnn_core_calls, only : add_bias_call, sum_to_call
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, dtype_bfloat16, dtype_float16, dtype_float32, dtype_name, i8
   use cnn_core_tensor, only : address_after, aligned, extent_of, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_bf16_to_f32, kernel_bias_gradient, kernel_f16_to_f32, &
      & kernel_f32_to_bf16, kernel_f32_to_f16, kernel_relu_backward
   use cnn_cuda_device_memory, only : copy_device
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_primitives, only : compute
   use cnn_cuda_operations_sums, only : most_rows, reserve_row_sums, sums_to_gradient
   implicit none
   private

   public :: add_bias, bias_gradient, convert, relu_forward

   !> Blocks of a kernel that only goes through its elements
   integer, parameter :: most_blocks = 4096

   abstract interface
      !> b from a, both of float32 or both of float64
      subroutine kernels_(device, a, b, error)
         import :: cuda_device_type, error_type, tensor_type
         implicit none
         type(cuda_device_type), intent(inout) :: device
         !> What is read, *device*
         type(tensor_type), intent(in) :: a
         !> What is written, and perhaps read, *device*
         type(tensor_type), intent(in) :: b
         type(error_type), allocatable, intent(out) :: error
      end subroutine kernels_
   end interface

contains

   !> y(n,k,:,:) = y(n,k,:,:) + bias(k)
   subroutine add_bias(device, bias, y, error)
      type(cuda_device_type), intent(inout) :: device
      !> Bias (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: bias
      !> Result of the convolution (w, h, k, n), *device*
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      call widened(device, bias, y, .true., add_to_channels, error)
   end subroutine add_bias

   !> db(k) = sum of dy(n,k,:,:): float64, in a fixed order, by many blocks also for one channel
   subroutine bias_gradient(device, dy, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      call widened(device, dy, db, .false., sum_channels, error)
   end subroutine bias_gradient

   !> a = max(z, 0); NaN stays NaN; a may be z
   subroutine relu_forward(device, z, a, error)
      type(cuda_device_type), intent(inout) :: device
      !> Input, *device*
      type(tensor_type), intent(in) :: z
      !> Result of the same shape, *device*
      type(tensor_type), intent(in) :: a
      type(error_type), allocatable, intent(out) :: error
      call widened(device, z, a, .false., keep_positive, error)
   end subroutine relu_forward

   !> Run kernels on a and b; of 16 bits, for which there are none, on float32 copies, whose result is rounded
   subroutine widened(device, a, b, reads_b, kernels, error)
      type(cuda_device_type), intent(inout) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: a
      !> What is written, *device*, of the same type
      type(tensor_type), intent(in) :: b
      !> Whether b is read, too
      logical, intent(in) :: reads_b
      !> What they do
      procedure(kernels_) :: kernels
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: wide_a, wide_b
      integer(c_size_t) :: bytes

      if (bytes_of(b%dtype) >= 4) then
         call kernels(device, a, b, error)
         return
      end if
      wide_a = a
      wide_b = b
      wide_a%dtype = dtype_float32
      wide_b%dtype = dtype_float32
      bytes = aligned(wide_b%bytes())
      call device%reserve_scratch(bytes + int(wide_a%bytes(), c_size_t), wide_b%address, error)
      if (allocated(error)) return
      wide_a%address = address_after(wide_b%address, bytes)
      call convert(device, a, wide_a, error)
      if (.not. allocated(error) .and. reads_b) call convert(device, b, wide_b, error)
      if (allocated(error)) return
      call kernels(device, wide_a, wide_b, error)
      if (.not. allocated(error)) call convert(device, wide_b, b, error)
   end subroutine widened

   subroutine add_to_channels(device, bias, y, error)
      type(cuda_device_type), intent(inout) :: device
      !> Bias (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: bias
      !> What it is added to (w, h, k, n), *device*
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      call compute(device, add_bias_call(bias, y), error)
   end subroutine add_to_channels

   !> The kernel of the gradient keeps of one array what is not negative or 0 in the other: here both are the input
   subroutine keep_positive(device, z, a, error)
      type(cuda_device_type), intent(inout) :: device
      !> Input, *device*
      type(tensor_type), intent(in) :: z
      !> Result, *device*; may be z
      type(tensor_type), intent(in) :: a
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: z_address, a_address
      integer(c_int64_t), target :: n
      n = z%count()
      z_address = z%address
      a_address = a%address
      call device%kernels%launch_typed(kernel_relu_backward, z%dtype, [blocks_for(z%count(), most_blocks), 1], &
         & [c_loc(n), c_loc(z_address), c_loc(z_address), c_loc(a_address)], device%stream, error)
   end subroutine keep_positive

   !> A grid has no more rows than `most_rows`: with more channels a thread adds up one of them
   subroutine sum_channels(device, dy, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: channels
      if (dy%extent(3) <= most_rows) then
         call sum_by_kernel(device, dy, db, error)
      else
         channels = db
         channels%extent = extent_of([1, 1, db%extent(1)])
         call compute(device, sum_to_call(dy, 1.0_dp, channels), error)
      end if
   end subroutine sum_channels

   subroutine sum_by_kernel(device, dy, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: address, partial
      integer(c_int64_t), target :: pixels, channels, batch
      integer(i8) :: threads
      integer :: blocks

      pixels = product(int(dy%extent(1:2), i8))
      channels = dy%extent(3)
      batch = dy%extent(4)
      call reserve_row_sums(device, dy%extent, blocks, threads, partial, error)
      if (allocated(error)) return
      address = dy%address
      call device%kernels%launch_typed(kernel_bias_gradient, dy%dtype, [blocks, dy%extent(3)], &
         & [c_loc(pixels), c_loc(channels), c_loc(batch), c_loc(address), c_loc(partial)], device%stream, error)
      if (allocated(error)) return
      call sums_to_gradient(device, partial, threads, channels, db, error)
   end subroutine sum_by_kernel

   !> to = from in another element type, rounded to nearest; a copy when the types agree
   subroutine convert(device, from, to, error)
      type(cuda_device_type), intent(in) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, *device*, of the same extents
      type(tensor_type), intent(in) :: to
      !> No such conversion, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: n
      type(c_ptr), target :: source, destination
      integer :: kernel

      if (from%dtype == to%dtype) then
         call copy_device(device, from%address, to%address, int(from%bytes(), c_size_t), error)
         return
      end if
      kernel = conversion(from%dtype, to%dtype)
      if (kernel == 0) then
         call fail(error, "device cuda: no conversion from "//dtype_name(from%dtype)//" to "//dtype_name(to%dtype))
      else
         n = from%count()
         source = from%address
         destination = to%address
         call device%kernels%launch_plain(kernel, [blocks_for(from%count(), most_blocks), 1], &
            & [c_loc(n), c_loc(source), c_loc(destination)], device%stream, error)
      end if
   end subroutine convert

   pure integer function conversion(from, to)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: from
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: to
      conversion = 0
      if (from == dtype_float32 .and. to == dtype_float16) conversion = kernel_f32_to_f16
      if (from == dtype_float32 .and. to == dtype_bfloat16) conversion = kernel_f32_to_bf16
      if (from == dtype_float16 .and. to == dtype_float32) conversion = kernel_f16_to_f32
      if (from == dtype_bfloat16 .and. to == dtype_float32) conversion = kernel_bf16_to_f32
   end function conversion

end module cnn_cuda_operations_pointwise
