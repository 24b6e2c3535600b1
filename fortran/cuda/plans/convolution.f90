! SPDX-License-Identifier: MIT
!> A convolution as cuDNN wants it described: descriptors, algorithm, workspace. Made once for each shape.
!>
!> Layout.  NCHW and KCRS: our x(w, h, c, n) and w(s, r, c, k) byte for byte. Convolution is cross-correlation.
!> Math.    fp32: CUDNN_FMA_MATH, no tensor cores. tf32: CUDNN_DEFAULT_MATH, which allows them for float32.
!>          float16 and bfloat16 tensors: tensor cores unless the math is fp32. Sums are float32, or float64 for
!>          tensors of float64.
!>
!> Source.  cuDNN 9 API reference: cudnnMathType_t, cudnnSetConvolution2dDescriptor.
module cnn_cuda_plans_convolution
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : math_fp32
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_float32, dtype_float64, i8
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_CROSS_CORRELATION, CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, &
      & CUDNN_TENSOR_NCHW, CUDNN_TENSOR_OP_MATH
   use cnn_cuda_bindings_cudnn_graph, only : cudnn_graph_type
   use cnn_cuda_bindings_cudnn_types, only : compute_type, cudnn_dtype
   use cnn_cuda_plans_graph_plan, only : free_graph_plan, graph_plan_type
   use cnn_cuda_plans_request, only : key_length
   implicit none
   private

   public :: free_plan, free_tensor_descriptor, make_plan, make_tensor_descriptor

   type, public :: conv_plan_type
      !> Everything that the choice depends on
      integer(i8) :: key(key_length) = 0
      !> cuDNN's graph API, where it has a plan; else what follows
      type(graph_plan_type) :: graph
      type(c_ptr) :: x = c_null_ptr, w = c_null_ptr, y = c_null_ptr, bias = c_null_ptr
      type(c_ptr) :: conv = c_null_ptr
      integer(c_int) :: algorithm = 0
      integer(c_size_t) :: workspace_bytes = 0
      !> Whether there is anything: cuDNN need not know a fusion
      logical :: exists = .false.
      !> Whether a fused one may be tried: cuDNN has not refused to run it, and its parts are not faster
      logical :: may_fuse = .true.
      !> Whether a fused one was timed against its parts
      logical :: is_timed = .false.
   end type conv_plan_type

contains

   !> Descriptors for these extents; the algorithm is still to be chosen
   subroutine make_plan(plan, dnn, dtype, math, conv, x, w, y, error)
      !> A plan whose descriptors are set, after an error some of them
      type(conv_plan_type), intent(inout) :: plan
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> A `math_...` of cnn_core_device_name
      integer, intent(in) :: math
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Extents of the input (w, h, c, n)
      integer, intent(in) :: x(4)
      !> Extents of the filter (s, r, c/groups, k)
      integer, intent(in) :: w(4)
      !> Extents of the result (q, p, k, n)
      integer, intent(in) :: y(4)
      !> Where cuDNN refuses a descriptor
      type(error_type), allocatable, intent(out) :: error

      call make_tensor_descriptor(dnn, dtype, x, plan%x, error)
      if (allocated(error)) return
      call make_tensor_descriptor(dnn, dtype, y, plan%y, error)
      if (allocated(error)) return
      call make_tensor_descriptor(dnn, dtype, [1, 1, y(3), 1], plan%bias, error)
      if (allocated(error)) return
      call make_filter_descriptor(dnn, dtype, w, plan%w, error)
      if (allocated(error)) return
      call make_conv_descriptor(dnn, dtype, math, conv, plan%conv, error)
   end subroutine make_plan

   !> A dense NCHW tensor; `extent` is [w, h, c, n]. A descriptor that is not null is to be freed, after errors too
   subroutine make_tensor_descriptor(dnn, dtype, extent, descriptor, error)
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> A `cudnnTensorDescriptor_t`
      type(c_ptr), intent(inout) :: descriptor
      !> Where cuDNN refuses a descriptor
      type(error_type), allocatable, intent(out) :: error
      call dnn%check(dnn%create_tensor_descriptor(descriptor), "cudnnCreateTensorDescriptor", error)
      if (allocated(error)) then
         descriptor = c_null_ptr
         return
      end if
      call dnn%check(dnn%set_tensor4d_descriptor(descriptor, CUDNN_TENSOR_NCHW, cudnn_dtype(dtype), &
         & int(extent(4), c_int), int(extent(3), c_int), int(extent(2), c_int), int(extent(1), c_int)), &
         & "cudnnSetTensor4dDescriptor", error)
   end subroutine make_tensor_descriptor

   !> KCRS; `extent` is [s, r, c, k]. Here the element type comes before the format
   subroutine make_filter_descriptor(dnn, dtype, extent, descriptor, error)
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents (s, r, c/groups, k)
      integer, intent(in) :: extent(4)
      !> A `cudnnFilterDescriptor_t`
      type(c_ptr), intent(inout) :: descriptor
      !> Where cuDNN refuses a descriptor
      type(error_type), allocatable, intent(out) :: error
      call dnn%check(dnn%create_filter_descriptor(descriptor), "cudnnCreateFilterDescriptor", error)
      if (allocated(error)) then
         descriptor = c_null_ptr
         return
      end if
      call dnn%check(dnn%set_filter4d_descriptor(descriptor, cudnn_dtype(dtype), CUDNN_TENSOR_NCHW, &
         & int(extent(4), c_int), int(extent(3), c_int), int(extent(2), c_int), int(extent(1), c_int)), &
         & "cudnnSetFilter4dDescriptor", error)
   end subroutine make_filter_descriptor

   subroutine make_conv_descriptor(dnn, dtype, math, conv, descriptor, error)
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> A `math_...` of cnn_core_device_name
      integer, intent(in) :: math
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> A `cudnnConvolutionDescriptor_t`
      type(c_ptr), intent(inout) :: descriptor
      !> Where cuDNN refuses a descriptor
      type(error_type), allocatable, intent(out) :: error
      call dnn%check(dnn%create_convolution_descriptor(descriptor), "cudnnCreateConvolutionDescriptor", error)
      if (allocated(error)) then
         descriptor = c_null_ptr
         return
      end if
      call dnn%check(dnn%set_convolution2d_descriptor(descriptor, int(conv%pad_h, c_int), int(conv%pad_w, c_int), &
         & int(conv%stride_h, c_int), int(conv%stride_w, c_int), int(conv%dilation_h, c_int), &
         & int(conv%dilation_w, c_int), CUDNN_CROSS_CORRELATION, compute_type(dtype)), &
         & "cudnnSetConvolution2dDescriptor", error)
      if (allocated(error)) return
      call dnn%check(dnn%set_convolution_group_count(descriptor, &
         & int(conv%groups, c_int)), "cudnnSetConvolutionGroupCount", error)
      if (allocated(error)) return
      call dnn%check(dnn%set_convolution_math_type(descriptor, math_type(dtype, math)), &
         & "cudnnSetConvolutionMathType", error)
   end subroutine make_conv_descriptor

   !> Give the descriptors back
   subroutine free_plan(plan, dnn, graphs)
      !> A plan, without descriptors afterwards
      type(conv_plan_type), intent(inout) :: plan
      !> The cuDNN that made the descriptors
      type(cudnn_type), intent(in) :: dnn
      !> cuDNN's graph API
      type(cudnn_graph_type), intent(in) :: graphs
      call free_graph_plan(graphs, plan%graph)
      call free_tensor_descriptor(dnn, plan%x)
      call free_tensor_descriptor(dnn, plan%y)
      call free_tensor_descriptor(dnn, plan%bias)
      if (c_associated(plan%w)) call free_descriptor(dnn%destroy_filter_descriptor(plan%w), plan%w)
      if (c_associated(plan%conv)) call free_descriptor(dnn%destroy_convolution_descriptor(plan%conv), plan%conv)
   end subroutine free_plan

   subroutine free_tensor_descriptor(dnn, descriptor)
      !> The cuDNN that made it
      type(cudnn_type), intent(in) :: dnn
      !> A `cudnnTensorDescriptor_t`, or null; null afterwards
      type(c_ptr), intent(inout) :: descriptor
      if (c_associated(descriptor)) call free_descriptor(dnn%destroy_tensor_descriptor(descriptor), descriptor)
   end subroutine free_tensor_descriptor

   !> A descriptor is host memory: that destroying it failed concerns nobody
   subroutine free_descriptor(status, descriptor)
      !> Status of the call that destroyed it
      integer(c_int), intent(in) :: status
      !> Null afterwards
      type(c_ptr), intent(inout) :: descriptor
      if (status >= 0) descriptor = c_null_ptr
   end subroutine free_descriptor

   pure integer(c_int) function math_type(dtype, math)
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> A `math_...` of cnn_core_device_name
      integer, intent(in) :: math
      math_type = CUDNN_FMA_MATH
      if (math == math_fp32 .or. dtype == dtype_float64) return
      math_type = CUDNN_TENSOR_OP_MATH
      if (dtype == dtype_float32) math_type = CUDNN_DEFAULT_MATH
   end function math_type

end module cnn_cuda_plans_convolution
