! SPDX-License-Identifier: MIT
!> CPU kernels for float64. The bodies are shared with float32: only `wp` and `gemm` differ.
module cnn_kernels_f64
   use, intrinsic :: iso_c_binding, only : c_f_pointer
   use cnn_blas, only : gemm => dgemm
   use cnn_blas_threads, only : blas_restore_threads, blas_single_thread
   use cnn_conv_geometry, only : conv_type, tap_type, taps_along
   use cnn_error, only : error_type, fail
   use cnn_kinds, only : dp, i8, wp => dp
   use cnn_sgd, only : sgd_type
   use cnn_tensor, only : as_vector, tensor_type
   !$ use omp_lib, only : omp_get_max_threads, omp_get_thread_num
   implicit none
   private

   public :: im2col_forward, im2col_backward_data, im2col_backward_filter
   public :: naive_forward, naive_backward_data, naive_backward_filter
   public :: bias_gradient, relu_forward, relu_backward, mse, sgd_update

contains
   include "conv_im2col.inc"
   include "conv_naive.inc"
   include "pointwise.inc"
end module cnn_kernels_f64
