! SPDX-License-Identifier: MIT
!> A convolution as cuDNN wants it described: descriptors, algorithm, workspace. Made once for each shape.
!>
!> Layout.  NCHW and KCRS: our x(w, h, c, n) and w(s, r, c, k) byte for byte. Convolution is cross-correlation.
!> Math.    fp32: CUDNN_FMA_MATH, no tensor cores. tf32: CUDNN_DEFAULT_MATH, which allows them for float32.
!>          float16 and bfloat16 tensors: tensor cores unless the math is fp32. Sums are float32, or float64 for
!>          tensors of float64.
!>
!> Source.  cuDNN 9 API reference: cudnnMathType_t, cudnnSetConvolution2dDescriptor.
module cnn_conv_plan
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_conv_geometry, only : conv_type
   use cnn_cudnn, only : cudnn_type
   use cnn_cudnn_enums, only : CUDNN_CROSS_CORRELATION, CUDNN_DATA_BFLOAT16, &
      & CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, &
      & CUDNN_TENSOR_NCHW, CUDNN_TENSOR_OP_MATH
   use cnn_device_name, only : device_name_type, math_fp32
   use cnn_error, only : error_type
   use cnn_kinds, only : dtype_bfloat16, dtype_float16, dtype_float32, dtype_float64, i8
   implicit none
   private

   public :: compute_type, cudnn_dtype, free_plan, free_tensor_descriptor, make_plan, make_tensor_descriptor, plan_key

   integer, parameter, public :: conv_forward = 1, conv_data = 2, conv_filter = 3
   character(len=*), parameter, public :: conv_names(3) = [character(len=15) :: &
      & "forward", "data gradient", "filter gradient"]

   integer, parameter :: key_length = 20

   type, public :: conv_plan_type
      !> Everything that the choice depends on
      integer(i8) :: key(key_length) = 0
      type(c_ptr) :: x = c_null_ptr, w = c_null_ptr, y = c_null_ptr, bias = c_null_ptr
      type(c_ptr) :: conv = c_null_ptr
      integer(c_int) :: algorithm = 0
      integer(c_size_t) :: workspace_bytes = 0
      !> Whether the call that fuses convolution, bias and ReLU may be tried
      logical :: may_fuse = .true.
   end type conv_plan_type

contains

   !> Two requests with the same key have the same plan
   pure function plan_key(operation, dtype, name, conv, x, w) result(key)
      integer, intent(in) :: operation, dtype
      type(device_name_type), intent(in) :: name
      type(conv_type), intent(in) :: conv
      !> Extents
      integer, intent(in) :: x(4), w(4)
      integer(i8) :: key(key_length)
      integer :: flags
      flags = merge(1, 0, name%measured) + merge(2, 0, name%deterministic) + merge(4, 0, name%transforms)
      key(:4) = [operation, dtype, name%math, flags]
      key(5) = name%workspace_limit
      key(6:12) = [conv%stride_h, conv%stride_w, conv%pad_h, conv%pad_w, conv%dilation_h, conv%dilation_w, conv%groups]
      key(13:20) = [x, w]
   end function plan_key

   !> Descriptors for these extents; the algorithm is still to be chosen
   subroutine make_plan(plan, dnn, dtype, math, conv, x, w, y, error)
      type(conv_plan_type), intent(inout) :: plan
      type(cudnn_type), intent(in) :: dnn
      integer, intent(in) :: dtype, math
      type(conv_type), intent(in) :: conv
      integer, intent(in) :: x(4), w(4), y(4)
      type(error_type), allocatable, intent(out) :: error

      call make_tensor_descriptor(dnn, dtype, x, plan%x, error)
      if (.not. allocated(error)) call make_tensor_descriptor(dnn, dtype, y, plan%y, error)
      if (.not. allocated(error)) call make_tensor_descriptor(dnn, dtype, [1, 1, y(3), 1], plan%bias, error)
      if (.not. allocated(error)) call make_filter_descriptor(dnn, dtype, w, plan%w, error)
      if (.not. allocated(error)) call make_conv_descriptor(dnn, dtype, math, conv, plan%conv, error)
   end subroutine make_plan

   !> A dense NCHW tensor; `extent` is [w, h, c, n]. A descriptor that is not null is to be freed, after errors too
   subroutine make_tensor_descriptor(dnn, dtype, extent, descriptor, error)
      type(cudnn_type), intent(in) :: dnn
      integer, intent(in) :: dtype, extent(4)
      type(c_ptr), intent(inout) :: descriptor
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
      type(cudnn_type), intent(in) :: dnn
      integer, intent(in) :: dtype, extent(4)
      type(c_ptr), intent(inout) :: descriptor
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
      type(cudnn_type), intent(in) :: dnn
      integer, intent(in) :: dtype, math
      type(conv_type), intent(in) :: conv
      type(c_ptr), intent(inout) :: descriptor
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
      if (.not. allocated(error)) call dnn%check(dnn%set_convolution_group_count(descriptor, &
         & int(conv%groups, c_int)), "cudnnSetConvolutionGroupCount", error)
      if (.not. allocated(error)) call dnn%check(dnn%set_convolution_math_type(descriptor, math_type(dtype, math)), &
         & "cudnnSetConvolutionMathType", error)
   end subroutine make_conv_descriptor

   !> Give the descriptors back
   subroutine free_plan(plan, dnn)
      type(conv_plan_type), intent(inout) :: plan
      type(cudnn_type), intent(in) :: dnn
      call free_tensor_descriptor(dnn, plan%x)
      call free_tensor_descriptor(dnn, plan%y)
      call free_tensor_descriptor(dnn, plan%bias)
      if (c_associated(plan%w)) call free_descriptor(dnn%destroy_filter_descriptor(plan%w), plan%w)
      if (c_associated(plan%conv)) call free_descriptor(dnn%destroy_convolution_descriptor(plan%conv), plan%conv)
   end subroutine free_plan

   subroutine free_tensor_descriptor(dnn, descriptor)
      type(cudnn_type), intent(in) :: dnn
      type(c_ptr), intent(inout) :: descriptor
      if (c_associated(descriptor)) call free_descriptor(dnn%destroy_tensor_descriptor(descriptor), descriptor)
   end subroutine free_tensor_descriptor

   !> A descriptor is host memory: that destroying it failed concerns nobody
   subroutine free_descriptor(status, descriptor)
      integer(c_int), intent(in) :: status
      type(c_ptr), intent(inout) :: descriptor
      if (status >= 0) descriptor = c_null_ptr
   end subroutine free_descriptor

   pure integer(c_int) function cudnn_dtype(dtype)
      integer, intent(in) :: dtype
      select case (dtype)
       case (dtype_float64)
         cudnn_dtype = CUDNN_DATA_DOUBLE
       case (dtype_float16)
         cudnn_dtype = CUDNN_DATA_HALF
       case (dtype_bfloat16)
         cudnn_dtype = CUDNN_DATA_BFLOAT16
       case default
         cudnn_dtype = CUDNN_DATA_FLOAT
      end select
   end function cudnn_dtype

   pure integer(c_int) function compute_type(dtype)
      integer, intent(in) :: dtype
      compute_type = CUDNN_DATA_FLOAT
      if (dtype == dtype_float64) compute_type = CUDNN_DATA_DOUBLE
   end function compute_type

   pure integer(c_int) function math_type(dtype, math)
      integer, intent(in) :: dtype, math
      math_type = CUDNN_FMA_MATH
      if (math == math_fp32 .or. dtype == dtype_float64) return
      math_type = CUDNN_TENSOR_OP_MATH
      if (dtype == dtype_float32) math_type = CUDNN_DEFAULT_MATH
   end function math_type

end module cnn_conv_plan
