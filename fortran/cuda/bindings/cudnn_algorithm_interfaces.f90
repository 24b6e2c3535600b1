! SPDX-License-Identifier: MIT
!> How cuDNN is asked for an algorithm and its workspace, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  cuDNN 9 API reference.
module cnn_cuda_bindings_cudnn_algorithm_interfaces
   use, intrinsic :: iso_c_binding, only : c_float, c_int, c_ptr, c_size_t
   implicit none
   private

   public :: cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionBackwardDataAlgorithm_v7, &
      & cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnFindConvolutionForwardAlgorithmEx, &
      & cudnnFindConvolutionBackwardDataAlgorithmEx, cudnnFindConvolutionBackwardFilterAlgorithmEx, &
      & cudnnGetConvolutionForwardWorkspaceSize, cudnnGetConvolutionBackwardDataWorkspaceSize, &
      & cudnnGetConvolutionBackwardFilterWorkspaceSize

   !> `cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t`, which differ only in the meaning of `algo`; 48 bytes
   type, bind(C), public :: cudnn_algo_perf_type
      integer(c_int) :: algo = 0, status = 0
      !> Milliseconds; -1 when nothing was run
      real(c_float) :: time = -1
      !> Bytes of workspace
      integer(c_size_t) :: memory = 0
      integer(c_int) :: determinism = 0, math_type = 0, reserved(3) = 0
   end type cudnn_algo_perf_type

   abstract interface
      !> The algorithms in the order that cuDNN expects of their speed; nothing is run
      function cudnnGetConvolutionForwardAlgorithm_v7(handle, src_desc, filter_desc, conv_desc, dest_desc, &
            & requested_algo_count, returned_algo_count, perf_results) result(status) bind(C)
         import :: c_int, c_ptr, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: src_desc
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: filter_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of y (n, k, p, q)
         type(c_ptr), value :: dest_desc
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnGetConvolutionForwardAlgorithm_v7
      !> The same for the gradient of x; `diff_desc` is that of dy, `grad_desc` that of dx
      function cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, filter_desc, diff_desc, conv_desc, grad_desc, &
            & requested_algo_count, returned_algo_count, perf_results) result(status) bind(C)
         import :: c_int, c_ptr, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: filter_desc
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: diff_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of dx (n, c, h, w)
         type(c_ptr), value :: grad_desc
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnGetConvolutionBackwardDataAlgorithm_v7
      !> The same for the gradient of w; `diff_desc` is that of dy, `grad_desc` that of dw
      function cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, src_desc, diff_desc, conv_desc, grad_desc, &
            & requested_algo_count, returned_algo_count, perf_results) result(status) bind(C)
         import :: c_int, c_ptr, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: src_desc
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: diff_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of dw (k, c/groups, r, s)
         type(c_ptr), value :: grad_desc
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnGetConvolutionBackwardFilterAlgorithm_v7
      !> Runs the algorithms, which overwrites the result, and sorts them by measured time
      function cudnnFindConvolutionForwardAlgorithmEx(handle, x_desc, x, w_desc, w, conv_desc, y_desc, y, &
            & requested_algo_count, returned_algo_count, perf_results, work_space, &
            & work_space_size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
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
         !> Descriptor of y (n, k, p, q)
         type(c_ptr), value :: y_desc
         !> Result, *device*; overwritten
         type(c_ptr), value :: y
         !> Scratch memory, *device*, at least `work_space_size_in_bytes` bytes
         type(c_ptr), value :: work_space
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Size of the scratch memory; algorithms that need more are not run
         integer(c_size_t), value :: work_space_size_in_bytes
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnFindConvolutionForwardAlgorithmEx
      !> Measures for the gradient of x: overwrites `dx`, and waits for the device
      function cudnnFindConvolutionBackwardDataAlgorithmEx(handle, w_desc, w, dy_desc, dy, conv_desc, dx_desc, dx, &
            & requested_algo_count, returned_algo_count, perf_results, work_space, &
            & work_space_size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
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
         !> Descriptor of dx (n, c, h, w)
         type(c_ptr), value :: dx_desc
         !> Gradient of x, *device*; overwritten
         type(c_ptr), value :: dx
         !> Scratch memory, *device*, at least `work_space_size_in_bytes` bytes
         type(c_ptr), value :: work_space
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Size of the scratch memory; algorithms that need more are not run
         integer(c_size_t), value :: work_space_size_in_bytes
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnFindConvolutionBackwardDataAlgorithmEx
      !> Measures for the gradient of w: overwrites `dw`, and waits for the device; `y` is dy
      function cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, x_desc, x, dy_desc, y, conv_desc, dw_desc, dw, &
            & requested_algo_count, returned_algo_count, perf_results, work_space, &
            & work_space_size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t, cudnn_algo_perf_type
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Input, *device*
         type(c_ptr), value :: x
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Gradient of y, *device*
         type(c_ptr), value :: y
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of dw (k, c/groups, r, s)
         type(c_ptr), value :: dw_desc
         !> Gradient of w, *device*; overwritten
         type(c_ptr), value :: dw
         !> Scratch memory, *device*, at least `work_space_size_in_bytes` bytes
         type(c_ptr), value :: work_space
         !> Room in `perf_results`
         integer(c_int), value :: requested_algo_count
         !> How many of them are filled
         integer(c_int), intent(out) :: returned_algo_count
         !> Size of the scratch memory; algorithms that need more are not run
         integer(c_size_t), value :: work_space_size_in_bytes
         !> Algorithms with status, workspace, determinism and math, the fastest first
         type(cudnn_algo_perf_type), intent(out) :: perf_results(requested_algo_count)
         integer(c_int) :: status
      end function cudnnFindConvolutionBackwardFilterAlgorithmEx
      !> Bytes of device memory that the algorithm needs; an error status when it cannot do this convolution
      function cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv_desc, y_desc, algo, &
            & size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: w_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of y (n, k, p, q)
         type(c_ptr), value :: y_desc
         !> A `cudnnConvolutionFwdAlgo_t`
         integer(c_int), value :: algo
         !> Size of the workspace in device memory
         integer(c_size_t), intent(out) :: size_in_bytes
         integer(c_int) :: status
      end function cudnnGetConvolutionForwardWorkspaceSize
      !> The same for the gradient of x, whose algorithms have numbers of their own
      function cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w_desc, dy_desc, conv_desc, dx_desc, algo, &
            & size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: w_desc
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of dx (n, c, h, w)
         type(c_ptr), value :: dx_desc
         !> A `cudnnConvolutionBwdDataAlgo_t`
         integer(c_int), value :: algo
         !> Size of the workspace in device memory
         integer(c_size_t), intent(out) :: size_in_bytes
         integer(c_int) :: status
      end function cudnnGetConvolutionBackwardDataWorkspaceSize
      !> The same for the gradient of w, whose algorithms have numbers of their own; `grad_desc` is that of dw
      function cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x_desc, dy_desc, conv_desc, grad_desc, algo, &
            & size_in_bytes) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Library handle; work is queued on the stream bound to it
         type(c_ptr), value :: handle
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: x_desc
         !> Descriptor of dy (n, k, p, q)
         type(c_ptr), value :: dy_desc
         !> Descriptor of padding, strides, dilation, groups and math
         type(c_ptr), value :: conv_desc
         !> Descriptor of dw (k, c/groups, r, s)
         type(c_ptr), value :: grad_desc
         !> A `cudnnConvolutionBwdFilterAlgo_t`
         integer(c_int), value :: algo
         !> Size of the workspace in device memory
         integer(c_size_t), intent(out) :: size_in_bytes
         integer(c_int) :: status
      end function cudnnGetConvolutionBackwardFilterWorkspaceSize
   end interface

end module cnn_cuda_bindings_cudnn_algorithm_interfaces
