! SPDX-License-Identifier: MIT
!> What cuDNN computes for us, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Memory.  alpha and beta are host addresses (float32, or float64 for tensors of float64), tensors and the
!> workspace are device addresses.
!> Source.  cuDNN 9 API reference.
module cnn_cudnn_operation_interfaces
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr, c_size_t
   implicit none
   private

   public :: cudnnConvolutionForward, cudnnConvolutionBiasActivationForward, cudnnConvolutionBackwardData, &
      & cudnnConvolutionBackwardFilter, cudnnConvolutionBackwardBias, cudnnActivationForward, &
      & cudnnActivationBackward, cudnnAddTensor, cudnnOpTensor

   abstract interface
      !> y = alpha*conv(x, w) + beta*y
      function cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, y_desc, y) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: handle, alpha, x_desc, x, w_desc, w, conv_desc, work_space, beta, y_desc, y
         integer(c_int), value :: algo
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionForward
      !> y = act(alpha1*conv(x, w) + alpha2*z + bias)
      function cudnnConvolutionBiasActivationForward(handle, alpha1, x_desc, x, w_desc, w, conv_desc, algo, &
            & work_space, work_space_size_in_bytes, alpha2, z_desc, z, bias_desc, bias, activation_desc, y_desc, &
            & y) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: handle, alpha1, x_desc, x, w_desc, w, conv_desc, work_space, alpha2, z_desc, z, &
            & bias_desc, bias, activation_desc, y_desc, y
         integer(c_int), value :: algo
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBiasActivationForward
      !> dx = alpha*(gradient of x, from w and dy) + beta*dx
      function cudnnConvolutionBackwardData(handle, alpha, w_desc, w, dy_desc, dy, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, dx_desc, dx) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: handle, alpha, w_desc, w, dy_desc, dy, conv_desc, work_space, beta, dx_desc, dx
         integer(c_int), value :: algo
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBackwardData
      !> dw = alpha*(gradient of w, from x and dy, summed over the batch) + beta*dw
      function cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, dy_desc, dy, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, dw_desc, dw) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: handle, alpha, x_desc, x, dy_desc, dy, conv_desc, work_space, beta, dw_desc, dw
         integer(c_int), value :: algo
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBackwardFilter
      !> db = alpha*(sum of dy over n, h, w) + beta*db
      function cudnnConvolutionBackwardBias(handle, alpha, dy_desc, dy, beta, db_desc, db) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, alpha, dy_desc, dy, beta, db_desc, db
         integer(c_int) :: status
      end function cudnnConvolutionBackwardBias
      !> y = alpha*act(x) + beta*y; `y` may be `x`
      function cudnnActivationForward(handle, activation_desc, alpha, x_desc, x, beta, y_desc, &
            & y) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, activation_desc, alpha, x_desc, x, beta, y_desc, y
         integer(c_int) :: status
      end function cudnnActivationForward
      !> `x` is the input of the forward call, `y` its result
      function cudnnActivationBackward(handle, activation_desc, alpha, y_desc, y, dy_desc, dy, x_desc, x, beta, &
            & dx_desc, dx) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, activation_desc, alpha, y_desc, y, dy_desc, dy, x_desc, x, beta, dx_desc, dx
         integer(c_int) :: status
      end function cudnnActivationBackward
      !> c = alpha*a + beta*c, `a` may have extents of 1
      function cudnnAddTensor(handle, alpha, a_desc, a, beta, c_desc, c) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, alpha, a_desc, a, beta, c_desc, c
         integer(c_int) :: status
      end function cudnnAddTensor
      !> c = op(alpha1*a, alpha2*b) + beta*c
      function cudnnOpTensor(handle, op_tensor_desc, alpha1, a_desc, a, alpha2, b_desc, b, beta, c_desc, &
            & c) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: handle, op_tensor_desc, alpha1, a_desc, a, alpha2, b_desc, b, beta, c_desc, c
         integer(c_int) :: status
      end function cudnnOpTensor
   end interface

end module cnn_cudnn_operation_interfaces
