! SPDX-License-Identifier: MIT
!> Element-wise work of a convolution layer on a CUDA device, by cuDNN; bias gradients; conversions of element types.
!>
!> Source.  cuDNN 9 API reference: cudnnAddTensor, cudnnActivationForward, cudnnConvolutionBackwardBias.
module cnn_cuda_operations_pointwise
   use, intrinsic :: iso_c_binding, only : c_int, c_int64_t, c_loc, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dtype_bfloat16, dtype_float16, dtype_float32, dtype_name, i8
   use cnn_core_tensor, only : address_after, aligned, tensor_type
   use cnn_cuda_bindings_cudnn_factors, only : one, zero
   use cnn_cuda_device_kernels, only : blocks_for, kernel_bf16_to_f32, kernel_bias_gradient, kernel_f16_to_f32, &
      & kernel_f32_to_bf16, kernel_f32_to_f16
   use cnn_cuda_device_memory, only : copy_device
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : most_rows, reserve_row_sums, sums_to_gradient
   implicit none
   private

   public :: add_bias, bias_gradient, convert, relu_forward

   !> Blocks of a kernel that only goes through its elements
   integer, parameter :: most_blocks = 4096

contains

   !> y(n,k,:,:) = y(n,k,:,:) + bias(k)
   subroutine add_bias(device, bias, y, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Bias (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: bias
      !> Result of the convolution (w, h, k, n), *device*
      type(tensor_type), intent(in) :: y
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: of_bias, of_y
      call describe(device, bias_as_channels(bias), y, of_bias, of_y, error)
      if (allocated(error)) return
      call device%dnn%check(device%dnn%add_tensor(device%dnn_handle, &
         & one(y%dtype), of_bias, bias%address, one(y%dtype), of_y, y%address), "adding the bias", error)
   end subroutine add_bias

   !> db(k) = sum of dy(n,k,:,:). bfloat16, of which neither cuDNN nor we have one, is widened, summed, and rounded
   subroutine bias_gradient(device, dy, db, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: wide_dy, wide_db
      integer(c_size_t) :: bytes

      if (dy%dtype /= dtype_bfloat16) then
         call sum_channels(device, dy, db, error)
         return
      end if
      wide_dy = dy
      wide_db = db
      wide_dy%dtype = dtype_float32
      wide_db%dtype = dtype_float32
      bytes = aligned(wide_db%bytes())
      call device%reserve_scratch(bytes + int(wide_dy%bytes(), c_size_t), wide_db%address, error)
      if (allocated(error)) return
      wide_dy%address = address_after(wide_db%address, bytes)
      call convert(device, dy, wide_dy, error)
      if (allocated(error)) return
      call sum_channels(device, wide_dy, wide_db, error)
      if (allocated(error)) return
      call convert(device, wide_db, db, error)
   end subroutine bias_gradient

   !> By our kernel, whose sums are float64, in a fixed order, and by many blocks also for one channel; else by cuDNN
   subroutine sum_channels(device, dy, db, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: of_dy, of_db
      if (dy%extent(3) <= most_rows .and. bytes_of(dy%dtype) >= 4) then
         call sum_by_kernel(device, dy, db, error)
         return
      end if
      call describe(device, dy, bias_as_channels(db), of_dy, of_db, error)
      if (allocated(error)) return
      call device%dnn%check(device%dnn%convolution_backward_bias(device%dnn_handle, &
         & one(dy%dtype), of_dy, dy%address, zero(dy%dtype), of_db, db%address), "bias gradient", error)
   end subroutine sum_channels

   subroutine sum_by_kernel(device, dy, db, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Gradient of the convolution's result (w, h, k, n), *device*
      type(tensor_type), intent(in) :: dy
      !> Bias gradient (k, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      !> No device memory, or a kernel launch that failed
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

   !> a = max(z, 0); NaN stays NaN; a may be z
   subroutine relu_forward(device, z, a, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Input, *device*
      type(tensor_type), intent(in) :: z
      !> Result of the same shape, *device*
      type(tensor_type), intent(in) :: a
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: of_z, of_a
      call describe(device, z, a, of_z, of_a, error)
      if (allocated(error)) return
      call device%dnn%check(device%dnn%activation_forward(device%dnn_handle, device%relu, &
         & one(z%dtype), of_z, z%address, zero(z%dtype), of_a, a%address), "ReLU", error)
   end subroutine relu_forward

   !> to = from in another element type, rounded to nearest; a copy when the types agree
   subroutine convert(device, from, to, error)
      !> An entered device, on whose stream the work is queued
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

   !> A bias [k, 1, 1, 1] as cuDNN wants it: one value for each channel
   pure function bias_as_channels(bias) result(channels)
      !> Bias (k, 1, 1, 1)
      type(tensor_type), intent(in) :: bias
      type(tensor_type) :: channels
      channels = bias
      channels%extent = [1, 1, bias%extent(1), 1]
   end function bias_as_channels

   subroutine describe(device, a, b, of_a, of_b, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Any tensor
      type(tensor_type), intent(in) :: a
      !> Another tensor
      type(tensor_type), intent(in) :: b
      !> A `cudnnTensorDescriptor_t` for a
      type(c_ptr), intent(out) :: of_a
      !> A `cudnnTensorDescriptor_t` for b
      type(c_ptr), intent(out) :: of_b
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      of_b = c_null_ptr
      call device%descriptors%find(device%dnn, a%dtype, a%extent, of_a, error)
      if (allocated(error)) return
      call device%descriptors%find(device%dnn, b%dtype, b%extent, of_b, error)
   end subroutine describe

end module cnn_cuda_operations_pointwise
