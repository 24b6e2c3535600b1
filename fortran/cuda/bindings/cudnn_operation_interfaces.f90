! SPDX-License-Identifier: MIT
!> What cuDNN computes for us, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Memory.  alpha and beta are host addresses (float32, or float64 for tensors of float64), tensors and the
!> workspace are device addresses.
!> Source.  cuDNN 9 API reference.
module cnn_cuda_bindings_cudnn_operation_interfaces
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr, c_size_t
   implicit none
   private

   public :: cudnnConvolutionForward, cudnnConvolutionBiasActivationForward, cudnnConvolutionBackwardData, &
      & cudnnConvolutionBackwardFilter, cudnnConvolutionBackwardBias, cudnnActivationForward, cudnnAddTensor

   abstract interface
      !> y = alpha*conv(x, w) + beta*y
      function cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, y_desc, y) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Input, *device*
         type(c_ptr), value :: x
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: w_desc
         !> Filter, *device*
         type(c_ptr), value :: w
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Scratch memory, *device*
         type(c_ptr), value :: work_space
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of y (n, k, p, q)
         type(c_ptr), value :: y_desc
         !> Result, *device*
         type(c_ptr), value :: y
         !> A `cudnnConvolutionFwdAlgo_t`
         integer(c_int), value :: algo
         !> Size of the scratch memory, at least what the algorithm asks for
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionForward
      !> y = act(alpha1*conv(x, w) + alpha2*z + bias)
      function cudnnConvolutionBiasActivationForward(handle, alpha1, x_desc, x, w_desc, w, conv_desc, algo, &
            & work_space, work_space_size_in_bytes, alpha2, z_desc, z, bias_desc, bias, activation_desc, y_desc, &
            & y) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of the convolution, *host*
         type(c_ptr), value :: alpha1
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Input, *device*
         type(c_ptr), value :: x
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: w_desc
         !> Filter, *device*
         type(c_ptr), value :: w
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Scratch memory, *device*
         type(c_ptr), value :: work_space
         !> Factor of z, *host*
         type(c_ptr), value :: alpha2
         !> Descriptor of z, of the shape of y
         type(c_ptr), value :: z_desc
         !> A tensor to be added, *device*; may be y
         type(c_ptr), value :: z
         !> Descriptor of the bias (1, k, 1, 1)
         type(c_ptr), value :: bias_desc
         !> One value for each channel of y, *device*
         type(c_ptr), value :: bias
         !> Descriptor of a ReLU or the identity
         type(c_ptr), value :: activation_desc
         !> Descriptor of y (n, k, p, q)
         type(c_ptr), value :: y_desc
         !> Result, *device*
         type(c_ptr), value :: y
         !> A `cudnnConvolutionFwdAlgo_t`; without an activation only IMPLICIT_PRECOMP_GEMM
         integer(c_int), value :: algo
         !> Size of the scratch memory, at least what the algorithm asks for
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBiasActivationForward
      !> dx = alpha*(gradient of x, from w and dy) + beta*dx
      function cudnnConvolutionBackwardData(handle, alpha, w_desc, w, dy_desc, dy, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, dx_desc, dx) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: w_desc
         !> Filter, *device*
         type(c_ptr), value :: w
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Gradient of y, *device*
         type(c_ptr), value :: dy
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Scratch memory, *device*
         type(c_ptr), value :: work_space
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of dx (n, c, h, w)
         type(c_ptr), value :: dx_desc
         !> Gradient of x, *device*
         type(c_ptr), value :: dx
         !> A `cudnnConvolutionBwdDataAlgo_t`
         integer(c_int), value :: algo
         !> Size of the scratch memory, at least what the algorithm asks for
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBackwardData
      !> dw = alpha*(gradient of w, from x and dy, summed over the batch) + beta*dw
      function cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, dy_desc, dy, conv_desc, algo, work_space, &
            & work_space_size_in_bytes, beta, dw_desc, dw) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Input, *device*
         type(c_ptr), value :: x
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Gradient of y, *device*
         type(c_ptr), value :: dy
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Scratch memory, *device*
         type(c_ptr), value :: work_space
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of dw (k, c/groups, r, s)
         type(c_ptr), value :: dw_desc
         !> Gradient of w, *device*
         type(c_ptr), value :: dw
         !> A `cudnnConvolutionBwdFilterAlgo_t`
         integer(c_int), value :: algo
         !> Size of the scratch memory, at least what the algorithm asks for
         integer(c_size_t), value :: work_space_size_in_bytes
         integer(c_int) :: status
      end function cudnnConvolutionBackwardFilter
      !> db = alpha*(sum of dy over n, h, w) + beta*db
      function cudnnConvolutionBackwardBias(handle, alpha, dy_desc, dy, beta, db_desc, db) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Gradient of y, *device*
         type(c_ptr), value :: dy
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of db (1, k, 1, 1)
         type(c_ptr), value :: db_desc
         !> Gradient of the bias, *device*
         type(c_ptr), value :: db
         integer(c_int) :: status
      end function cudnnConvolutionBackwardBias
      !> y = alpha*act(x) + beta*y; `y` may be `x`
      function cudnnActivationForward(handle, activation_desc, alpha, x_desc, x, beta, y_desc, &
            & y) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of the activation
         type(c_ptr), value :: activation_desc
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of x, of any shape
         type(c_ptr), value :: x_desc
         !> Input, *device*
         type(c_ptr), value :: x
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of y, of the shape of x
         type(c_ptr), value :: y_desc
         !> Result, *device*; may be x
         type(c_ptr), value :: y
         integer(c_int) :: status
      end function cudnnActivationForward
      !> c = alpha*a + beta*c, `a` may have extents of 1
      function cudnnAddTensor(handle, alpha, a_desc, a, beta, c_desc, c) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Factor of what is computed, *host*
         type(c_ptr), value :: alpha
         !> Descriptor of a, whose extents are those of c or 1
         type(c_ptr), value :: a_desc
         !> What is added, *device*; an extent of 1 serves the whole extent of c
         type(c_ptr), value :: a
         !> Factor of what the result held before, *host*; with 0 that is not read
         type(c_ptr), value :: beta
         !> Descriptor of c (n, c, h, w)
         type(c_ptr), value :: c_desc
         !> Result, *device*
         type(c_ptr), value :: c
         integer(c_int) :: status
      end function cudnnAddTensor
   end interface

end module cnn_cuda_bindings_cudnn_operation_interfaces
