! SPDX-License-Identifier: MIT
!> The work of cnn_cuda_operations_training by calls of cuBLAS and cuDNN, for builds without our kernels.
!>
!> More passes over memory, and the loss of float32 tensors is summed in float32; the same results but for rounding.
!>
!> Source.  cuBLAS reference: axpy, dot, scal; cuDNN 9 API reference: cudnnActivationBackward, cudnnOpTensor.
module cnn_cuda_operations_fallback
   use, intrinsic :: iso_c_binding, only : c_double, c_float, c_int, c_loc, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float64, sp
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : shape_text, tensor_type
   use cnn_cuda_bindings_cublas, only : CUBLAS_POINTER_MODE_DEVICE, CUBLAS_POINTER_MODE_HOST
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, CUDNN_OP_TENSOR_ADD, &
      & CUDNN_PROPAGATE_NAN
   use cnn_cuda_bindings_cudnn_factors, only : minus_one, one, zero
   use cnn_cuda_device_memory, only : copy_device
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_pointwise, only : bias_gradient
   implicit none
   private

   public :: mse_by_library, relu_backward_by_library, sgd_by_library

contains

   !> dz = da where z > 0, by cuDNN, which takes z for the ReLU's input and output: only its sign matters
   subroutine relu_backward_by_library(device, z, da, dz, db, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Input of the ReLU or its result (w, h, c, n), *device*
      type(tensor_type), intent(in) :: z
      !> Gradient of its result, *device*
      type(tensor_type), intent(in) :: da
      !> Gradient of its input, *device*
      type(tensor_type), intent(in) :: dz
      !> Bias gradient (c, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: db
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: descriptor

      call device%descriptors%find(device%dnn, z%dtype, z%extent, descriptor, error)
      if (.not. allocated(error)) call device%dnn%check(device%dnn%activation_backward(device%dnn_handle, &
         & device%relu, one(z%dtype), descriptor, z%address, descriptor, da%address, descriptor, z%address, &
         & zero(z%dtype), descriptor, dz%address), "ReLU backward", error)
      if (.not. allocated(error) .and. db%is_allocated()) call bias_gradient(device, dz, db, error)
   end subroutine relu_backward_by_library

   !> dy = y - target, total = dy . dy, then dy = 2*scale*dy
   subroutine mse_by_library(device, y, target, scale, dy, total, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Output of the network, *device*
      type(tensor_type), intent(in) :: y
      !> What it should be, *device*
      type(tensor_type), intent(in) :: target
      !> Gradient of the loss with respect to y, *device*
      type(tensor_type), intent(in) :: dy
      !> One number, *device*
      type(tensor_type), intent(in) :: total
      !> 1/number of elements for a mean, 1 for a sum
      real(dp), intent(in) :: scale
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error

      call device%open_blas(error)
      if (.not. allocated(error)) call subtract(device, y, target, dy, error)
      if (.not. allocated(error)) call check_length(dy, error)
      if (.not. allocated(error)) call dot_with_itself(device, dy, total%address, error)
      if (.not. allocated(error)) call scale_vector(device, dy, 2.0_dp*scale, error)
   end subroutine mse_by_library

   subroutine subtract(device, a, b, c, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> First tensor, *device*
      type(tensor_type), intent(in) :: a
      !> What is subtracted, *device*
      type(tensor_type), intent(in) :: b
      !> The difference, *device*
      type(tensor_type), intent(in) :: c
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: descriptor, operation
      integer(c_int) :: ignored

      call device%dnn%check(device%dnn%create_op_tensor_descriptor(operation), "cudnnCreateOpTensorDescriptor", error)
      if (allocated(error)) return
      call device%dnn%check(device%dnn%set_op_tensor_descriptor(operation, CUDNN_OP_TENSOR_ADD, &
         & merge(CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, a%dtype == dtype_float64), CUDNN_PROPAGATE_NAN), &
         & "cudnnSetOpTensorDescriptor", error)
      if (.not. allocated(error)) call device%descriptors%find(device%dnn, a%dtype, a%extent, descriptor, error)
      if (.not. allocated(error)) call device%dnn%check(device%dnn%op_tensor(device%dnn_handle, operation, &
         & one(a%dtype), descriptor, a%address, minus_one(a%dtype), descriptor, b%address, &
         & zero(a%dtype), descriptor, c%address), "difference of output and target", error)
      ! Host memory: that destroying it failed concerns nobody
      ignored = device%dnn%destroy_op_tensor_descriptor(operation)
   end subroutine subtract

   !> The result stays on the device, so nobody waits
   subroutine dot_with_itself(device, x, total, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> A vector, *device*
      type(tensor_type), intent(in) :: x
      !> The sum, *device*
      type(c_ptr), intent(in) :: total
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: n, status
      n = int(x%count(), c_int)
      call device%blas%check(device%blas%set_pointer_mode(device%blas_handle, CUBLAS_POINTER_MODE_DEVICE), &
         & "cublasSetPointerMode", error)
      if (allocated(error)) return
      if (x%dtype == dtype_float64) then
         status = device%blas%ddot(device%blas_handle, n, x%address, 1_c_int, x%address, 1_c_int, total)
      else
         status = device%blas%sdot(device%blas_handle, n, x%address, 1_c_int, x%address, 1_c_int, total)
      end if
      call device%blas%check(status, "the loss (cublas dot)", error)
      status = device%blas%set_pointer_mode(device%blas_handle, CUBLAS_POINTER_MODE_HOST)
      if (.not. allocated(error)) call device%blas%check(status, "cublasSetPointerMode", error)
   end subroutine dot_with_itself

   !> The formula of cnn_core_sgd, one vector operation after the other
   subroutine sgd_by_library(device, sgd, first, w, g, v, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> Whether it is the first step
      logical, intent(in) :: first
      !> Parameters, *device*; overwritten
      type(tensor_type), intent(in) :: w
      !> Their gradients, *device*
      type(tensor_type), intent(in) :: g
      !> Their momenta, *device*; may be empty
      type(tensor_type), intent(in) :: v
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: d
      integer(c_size_t) :: bytes

      bytes = int(w%bytes(), c_size_t)
      d = g
      call check_length(w, error)
      if (.not. allocated(error)) call device%open_blas(error)
      if (.not. allocated(error)) call device%reserve(bytes, d%address, error)
      if (.not. allocated(error)) call copy_device(device, g%address, d%address, bytes, error)
      if (.not. allocated(error) .and. sgd%weight_decay > 0.0_dp) call axpy(device, sgd%weight_decay, w, d, error)
      if (.not. allocated(error) .and. v%is_allocated()) call add_momentum(device, sgd, first, d, v, error)
      if (.not. allocated(error)) call axpy(device, -sgd%lr, d, w, error)
   end subroutine sgd_by_library

   !> Update v with d, and make d the direction of the step
   subroutine add_momentum(device, sgd, first, d, v, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> Whether it is the first step
      logical, intent(in) :: first
      !> Direction of the step, *device*
      type(tensor_type), intent(in) :: d
      !> Their momenta, *device*; may be empty
      type(tensor_type), intent(in) :: v
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: bytes

      bytes = int(d%bytes(), c_size_t)
      if (first) then
         call copy_device(device, d%address, v%address, bytes, error)
      else
         call scale_vector(device, v, sgd%momentum, error)
         if (.not. allocated(error)) call axpy(device, 1.0_dp - sgd%dampening, d, v, error)
      end if
      if (allocated(error)) return
      if (sgd%nesterov) then
         call axpy(device, sgd%momentum, v, d, error)
      else
         call copy_device(device, v%address, d%address, bytes, error)
      end if
   end subroutine add_momentum

   !> y = y + factor*x
   subroutine axpy(device, factor, x, y, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> The factor
      real(dp), intent(in) :: factor
      !> What is added, *device*
      type(tensor_type), intent(in) :: x
      !> What it is added to, *device*
      type(tensor_type), intent(in) :: y
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      real(c_double), target :: f64
      real(c_float), target :: f32
      integer(c_int) :: n, status
      n = int(x%count(), c_int)
      f64 = factor
      f32 = real(factor, sp)
      if (x%dtype == dtype_float64) then
         status = device%blas%daxpy(device%blas_handle, n, c_loc(f64), x%address, 1_c_int, y%address, 1_c_int)
      else
         status = device%blas%saxpy(device%blas_handle, n, c_loc(f32), x%address, 1_c_int, y%address, 1_c_int)
      end if
      call device%blas%check(status, "update (cublas axpy)", error)
   end subroutine axpy

   !> x = factor*x
   subroutine scale_vector(device, x, factor, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> A vector, *device*
      type(tensor_type), intent(in) :: x
      !> The factor
      real(dp), intent(in) :: factor
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      real(c_double), target :: f64
      real(c_float), target :: f32
      integer(c_int) :: n, status
      n = int(x%count(), c_int)
      f64 = factor
      f32 = real(factor, sp)
      if (x%dtype == dtype_float64) then
         status = device%blas%dscal(device%blas_handle, n, c_loc(f64), x%address, 1_c_int)
      else
         status = device%blas%sscal(device%blas_handle, n, c_loc(f32), x%address, 1_c_int)
      end if
      call device%blas%check(status, "scaling (cublas scal)", error)
   end subroutine scale_vector

   !> cuBLAS counts in 32 bits
   subroutine check_length(x, error)
      !> Any tensor
      type(tensor_type), intent(in) :: x
      !> An error of cuDNN or cuBLAS, or no memory
      type(error_type), allocatable, intent(out) :: error
      if (x%count() > huge(1)) call fail(error, "device cuda: a tensor "//shape_text(x%extent)// &
         & " of 2**31 elements or more needs our kernels, which are not built in, or want CUDA 12.8")
   end subroutine check_length

end module cnn_cuda_operations_fallback
