! SPDX-License-Identifier: MIT
!> What is asked of cuDNN: one operation of a training step on tensors of these shapes, and what is fused with it.
!>
!> forward    y = conv(x, w), then + bias, then max(., 0)
!> data       dx from w and dy, then 0 where the mask is not positive: the gradient before the ReLU that gave the mask
!> filter     dw from x and dy
!> bias       db = sums of dy over n, h, w
!> Extents are [w, h, c, n], of a filter [s, r, c, k].
module cnn_cuda_plans_request
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type, math_bf16, math_fp16
   use cnn_core_kinds, only : dtype_bfloat16, dtype_float16, dtype_float32, i8
   implicit none
   private

   public :: multiplied_as, request_key

   integer, parameter, public :: conv_forward = 1, conv_data = 2, conv_filter = 3, conv_bias = 4
   character(len=*), parameter, public :: conv_names(4) = [character(len=15) :: &
      & "forward", "data gradient", "filter gradient", "bias gradient"]

   !> How tensors lie in memory; nhwc is private to this backend
   integer, parameter, public :: layout_nchw = 1, layout_nhwc = 2
   character(len=*), parameter, public :: layout_names(2) = [character(len=4) :: "nchw", "nhwc"]

   integer, parameter, public :: key_length = 20

   type, public :: conv_request_type
      integer :: operation = conv_forward
      integer :: dtype = 0
      integer :: layout = layout_nchw
      !> Of a forward convolution
      logical :: bias = .false., relu = .false.
      !> Of a data gradient
      logical :: mask = .false.
      type(conv_type) :: conv
      integer :: x(4) = 0, w(4) = 0, y(4) = 0
   contains
      procedure :: is_fused
   end type conv_request_type

contains

   !> Whether it is more than a convolution
   pure logical function is_fused(self)
      class(conv_request_type), intent(in) :: self
      is_fused = self%bias .or. self%relu .or. self%mask
   end function is_fused

   !> Requests of a device with the same key have the same plan
   pure function request_key(request, name) result(key)
      !> What is asked of cuDNN
      type(conv_request_type), intent(in) :: request
      !> The device's options, of which those matter that change a plan
      type(device_name_type), intent(in) :: name
      integer(i8) :: key(key_length)
      associate (conv => request%conv)
         key(1) = request%operation + 8*bits([request%bias, request%relu, request%mask])
         key(2:3) = [request%dtype, name%math + 8*request%layout]
         key(4) = bits([name%measured, name%deterministic, name%transforms, name%compile])
         key(5) = name%workspace_limit
         key(6:9) = [conv%stride_h, conv%stride_w, conv%pad_h, conv%pad_w]
         key(10:12) = [conv%dilation_h, conv%dilation_w, conv%groups]
         key(13:20) = [request%x, request%w]
      end associate
   end function request_key

   !> Flags as a number
   pure integer function bits(flags)
      !> At most 30
      logical, intent(in) :: flags(:)
      integer :: i
      bits = sum([(merge(2**(i - 1), 0, flags(i)), i=1, size(flags))])
   end function bits

   !> The element type in which operands of this one are multiplied
   pure integer function multiplied_as(dtype, math)
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> A `math_...` of cnn_core_device_name
      integer, intent(in) :: math
      multiplied_as = dtype
      if (dtype /= dtype_float32) return
      if (math == math_fp16) multiplied_as = dtype_float16
      if (math == math_bf16) multiplied_as = dtype_bfloat16
   end function multiplied_as

end module cnn_cuda_plans_request
