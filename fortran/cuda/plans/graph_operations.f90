! SPDX-License-Identifier: MIT
!> Tensors and operations of cuDNN's graph API, as lines of a cnn_cuda_plans_graph_builder.
!>
!> Layout.  Dimensions are given as n, c, h, w in every layout; strides say how they lie. Our x(w, h, c, n) is nchw;
!>          nhwc is what cuDNN fuses most in, and private to this backend.
!> Virtual. A tensor between two operations of one graph, that is never in memory.
!> Groups.  cuDNN counts them itself: channels of x over those of w.
!> Source.  cuDNN 9 backend API reference; required attributes as tried with cuDNN 9.19.
module cnn_cuda_plans_graph_operations
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_ptr
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_kinds, only : dp, i8
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_CROSS_CORRELATION, CUDNN_DATA_DOUBLE, CUDNN_PROPAGATE_NAN
   use cnn_cuda_bindings_cudnn_graph_enums, only : CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_ATTR_CONVOLUTION_CONV_MODE, &
      & CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &
      & CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &
      & CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &
      & CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, &
      & CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &
      & CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &
      & CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &
      & CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_ATTR_POINTWISE_MODE, &
      & CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_ATTR_REDUCTION_OPERATOR, &
      & CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, &
      & CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_UNIQUE_ID, &
      & CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &
      & CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_POINTWISE_ADD, &
      & CUDNN_POINTWISE_RELU_BWD, CUDNN_POINTWISE_RELU_FWD, CUDNN_REDUCE_TENSOR_ADD, &
      & CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_TYPE_DATA_TYPE, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_TYPE_POINTWISE_MODE, &
      & CUDNN_TYPE_REDUCTION_OPERATOR_TYPE
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_request, only : conv_names, layout_nhwc
   implicit none
   private

   public :: add_operation, convolution_description, convolution_operation, operation_graph, reduction_operation, &
      & relu_backward_operation, relu_operation, tensor

   !> Of the three convolutions, in the order of cnn_cuda_plans_request: their descriptors and attributes
   integer(c_int), parameter :: kinds(3) = [CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, &
      & CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR]
   integer(c_int), parameter :: conv_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC]
   integer(c_int), parameter :: x_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X]
   integer(c_int), parameter :: w_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW]
   integer(c_int), parameter :: y_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY]
   integer(c_int), parameter :: alpha_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA]
   integer(c_int), parameter :: beta_of(3) = [CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, &
      & CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA]

   !> The least that device memory of ours is aligned to, in bytes
   integer(i8), parameter :: alignment = 16_i8

contains

   !> `extent` is [w, h, c, n], of a filter [s, r, c, k]; `dtype` is cuDNN's; `id` is its name in the variant pack
   function tensor(b, what, id, dtype, extent, layout, virtual) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> For messages
      character(len=*), intent(in) :: what
      !> Name of the tensor in the variant pack, unique in the graph
      integer, intent(in) :: id
      !> Extents (w, h, c, n), of a filter (s, r, c/groups, k)
      integer, intent(in) :: extent(4)
      !> `layout_nchw` or `layout_nhwc`
      integer, intent(in) :: layout
      !> A `cudnnDataType_t`
      integer(c_int), intent(in) :: dtype
      !> Whether it is never in memory
      logical, intent(in) :: virtual
      type(c_ptr) :: it
      integer(i8) :: w, h, c, n, strides(4)

      w = extent(1)
      h = extent(2)
      c = extent(3)
      n = extent(4)
      strides = [c*h*w, h*w, w, 1_i8]
      if (layout == layout_nhwc) strides = [c*h*w, 1_i8, w*c, c]
      it = b%descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "the tensor "//what)
      call b%set_enum(it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, dtype)
      call b%set(it, CUDNN_ATTR_TENSOR_DIMENSIONS, [n, c, h, w])
      call b%set(it, CUDNN_ATTR_TENSOR_STRIDES, strides)
      call b%set(it, CUDNN_ATTR_TENSOR_UNIQUE_ID, [int(id, i8)])
      call b%set(it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, [alignment])
      call b%set(it, CUDNN_ATTR_TENSOR_IS_VIRTUAL, virtual)
      call b%finalize(it)
   end function tensor

   !> Padding, stride and dilation of a cross-correlation whose sums are of the type `compute`
   function convolution_description(b, conv, compute) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Padding, stride and dilation
      type(conv_type), intent(in) :: conv
      !> A `cudnnDataType_t`: in what products are summed
      integer(c_int), intent(in) :: compute
      type(c_ptr) :: it
      integer(i8) :: padding(2)
      padding = [int(conv%pad_h, i8), int(conv%pad_w, i8)]
      it = b%descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution")
      call b%set_enum(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute)
      call b%set_enum(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      call b%set(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, [2_i8])
      call b%set(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      call b%set(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
      call b%set(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, [int(conv%stride_h, i8), int(conv%stride_w, i8)])
      call b%set(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, [int(conv%dilation_h, i8), int(conv%dilation_w, i8)])
      call b%finalize(it)
   end function convolution_description

   !> y = conv(x, w); in a data gradient x is the result, in a filter gradient w, and y is dy. The result is 1 * the sum
   !> + 0 * what was there; these factors are of the type of the sums
   function convolution_operation(b, operation, conv, compute, x, w, y) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> What `convolution_description` gave
      type(c_ptr), intent(in) :: conv
      !> Descriptor of x, or of dx (n, c, h, w)
      type(c_ptr), intent(in) :: x
      !> Descriptor of w, or of dw (k, c/groups, r, s)
      type(c_ptr), intent(in) :: w
      !> Descriptor of y, or of dy (n, k, p, q)
      type(c_ptr), intent(in) :: y
      !> A `cudnnDataType_t`: in what products are summed
      integer(c_int), intent(in) :: compute
      type(c_ptr) :: it
      it = b%descriptor(kinds(operation), "an operation, "//trim(conv_names(operation)))
      call b%set(it, conv_of(operation), [conv])
      call b%set(it, x_of(operation), [x])
      call b%set(it, w_of(operation), [w])
      call b%set(it, y_of(operation), [y])
      call b%set_number(it, alpha_of(operation), 1.0_dp, compute == CUDNN_DATA_DOUBLE)
      call b%set_number(it, beta_of(operation), 0.0_dp, compute == CUDNN_DATA_DOUBLE)
      call b%finalize(it)
   end function convolution_operation

   !> y = x + bias, where a dimension of 1 of the bias serves all of x
   function add_operation(b, compute, x, bias, y) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> A `cudnnDataType_t`: in what it calculates
      integer(c_int), intent(in) :: compute
      !> Descriptor of a summand (n, c, h, w)
      type(c_ptr), intent(in) :: x
      !> Descriptor of the other (1, c, 1, 1)
      type(c_ptr), intent(in) :: bias
      !> Descriptor of the sum (n, c, h, w)
      type(c_ptr), intent(in) :: y
      type(c_ptr) :: it, mode
      mode = pointwise(b, CUDNN_POINTWISE_ADD, compute)
      it = b%descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "adding the bias")
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, [mode])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, [x])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, [bias])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, [y])
      call b%finalize(it)
   end function add_operation

   !> y = max(x, 0); NaN stays NaN
   function relu_operation(b, compute, x, y) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> A `cudnnDataType_t`: in what it calculates
      integer(c_int), intent(in) :: compute
      !> Descriptor of the input
      type(c_ptr), intent(in) :: x
      !> Descriptor of the result, of the same shape
      type(c_ptr), intent(in) :: y
      type(c_ptr) :: it, mode
      mode = pointwise(b, CUDNN_POINTWISE_RELU_FWD, compute)
      it = b%descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a ReLU")
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, [mode])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, [x])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, [y])
      call b%finalize(it)
   end function relu_operation

   !> dx = dy where x > 0, else 0; x may be the ReLU's output, which is positive at the same places
   function relu_backward_operation(b, compute, x, dy, dx) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> A `cudnnDataType_t`: in what it calculates
      integer(c_int), intent(in) :: compute
      !> Descriptor of the input, or of the result, of the ReLU
      type(c_ptr), intent(in) :: x
      !> Descriptor of the gradient of its result
      type(c_ptr), intent(in) :: dy
      !> Descriptor of the gradient of its input
      type(c_ptr), intent(in) :: dx
      type(c_ptr) :: it, mode
      mode = pointwise(b, CUDNN_POINTWISE_RELU_BWD, compute)
      it = b%descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a ReLU's gradient")
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, [mode])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, [x])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, [dy])
      call b%set(it, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, [dx])
      call b%finalize(it)
   end function relu_backward_operation

   function pointwise(b, mode, compute) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> A `cudnnPointwiseMode_t`
      integer(c_int), intent(in) :: mode
      !> A `cudnnDataType_t`: in what it calculates
      integer(c_int), intent(in) :: compute
      type(c_ptr) :: it
      it = b%descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise operation")
      call b%set_enum(it, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      call b%set_enum(it, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute)
      if (mode == CUDNN_POINTWISE_RELU_FWD) call b%set_enum(it, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &
         & CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN)
      call b%finalize(it)
   end function pointwise

   !> y = sum of x over the dimensions that are 1 in y
   function reduction_operation(b, compute, x, y) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> A `cudnnDataType_t`: in what it calculates
      integer(c_int), intent(in) :: compute
      !> Descriptor of what is summed
      type(c_ptr), intent(in) :: x
      !> Descriptor of the sums, with an extent of 1 for each that is summed over
      type(c_ptr), intent(in) :: y
      type(c_ptr) :: it, sum
      sum = b%descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a sum")
      call b%set_enum(sum, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_REDUCE_TENSOR_ADD)
      call b%set_enum(sum, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute)
      call b%finalize(sum)
      it = b%descriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a sum over a tensor")
      call b%set(it, CUDNN_ATTR_OPERATION_REDUCTION_DESC, [sum])
      call b%set(it, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, [x])
      call b%set(it, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, [y])
      call b%finalize(it)
   end function reduction_operation

   !> Operations that are to be one plan
   function operation_graph(b, handle, operations) result(it)
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Handle of cuDNN, which cuDNN before 9.8 needs; null without a GPU
      type(c_ptr), intent(in) :: handle
      !> Descriptors of one or more operations
      type(c_ptr), intent(in) :: operations(:)
      type(c_ptr) :: it
      it = b%descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "an operation graph")
      if (c_associated(handle)) call b%set_handle(it, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
      call b%set(it, CUDNN_ATTR_OPERATIONGRAPH_OPS, operations)
      call b%finalize(it)
   end function operation_graph

end module cnn_cuda_plans_graph_operations
