! SPDX-License-Identifier: MIT
!> The handle and the descriptors of cuDNN, as abstract interfaces.
!>
!> Names, and the order of the arguments, are those of C, so that each can be read beside NVIDIA's documentation.
!> Source.  cuDNN 9 API reference.
module cnn_cuda_bindings_cudnn_descriptor_interfaces
   use, intrinsic :: iso_c_binding, only : c_char, c_double, c_int, c_ptr, c_size_t
   implicit none
   private

   public :: cudnnGetVersion, cudnnGetCudartVersion, cudnnGetErrorString, cudnnGetLastErrorString, cudnnCreate, &
      & cudnnDestroy, cudnnSetStream, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, &
      & cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, cudnnCreateConvolutionDescriptor, &
      & cudnnDestroyConvolutionDescriptor, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor, &
      & cudnnSetTensor4dDescriptor, cudnnSetFilter4dDescriptor, cudnnSetConvolution2dDescriptor, &
      & cudnnSetConvolutionMathType, cudnnSetConvolutionGroupCount, cudnnSetActivationDescriptor, &
      & cudnnGetConvolution2dForwardOutputDim

   abstract interface
      !> 91900 for cuDNN 9.19.0
      function cudnnGetVersion() result(version) bind(C)
         import :: c_size_t
         implicit none
         integer(c_size_t) :: version
      end function cudnnGetVersion
      !> The CUDA runtime that this cuDNN was built with
      function cudnnGetCudartVersion() result(version) bind(C)
         import :: c_size_t
         implicit none
         integer(c_size_t) :: version
      end function cudnnGetCudartVersion
      !> The name of a status
      function cudnnGetErrorString(status) result(text) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `cudnnStatus_t`
         integer(c_int), value :: status
         type(c_ptr) :: text
      end function cudnnGetErrorString
      !> Why the last call of this thread failed, in words
      subroutine cudnnGetLastErrorString(message, max_size) bind(C)
         import :: c_char, c_size_t
         implicit none
         !> Room in `message`, the NUL at the end included
         integer(c_size_t), value :: max_size
         !> Ends in a NUL
         character(kind=c_char), intent(out) :: message(max_size)
      end subroutine cudnnGetLastErrorString
      !> A handle for the current device, where it takes memory; it is slow, and the caller frees it by cudnnDestroy
      function cudnnCreate(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new handle
         type(c_ptr), intent(out) :: handle
         integer(c_int) :: status
      end function cudnnCreate
      !> Waits for the whole device before it frees the handle
      function cudnnDestroy(handle) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Not used any more
         type(c_ptr), value :: handle
         integer(c_int) :: status
      end function cudnnDestroy
      !> The handle queues its work on this stream from now on; null is the default stream
      function cudnnSetStream(handle, stream_id) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The one whose work it is
         type(c_ptr), value :: handle
         !> A stream of the handle's device, or null
         type(c_ptr), value :: stream_id
         integer(c_int) :: status
      end function cudnnSetStream
      !> Host memory for shape, element type and format of a tensor; cudnnSetTensor4dDescriptor fills it
      function cudnnCreateTensorDescriptor(tensor_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new descriptor, not filled yet
         type(c_ptr), intent(out) :: tensor_desc
         integer(c_int) :: status
      end function cudnnCreateTensorDescriptor
      !> The memory of the tensor itself is the caller's and stays
      function cudnnDestroyTensorDescriptor(tensor_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudnnCreateTensorDescriptor gave
         type(c_ptr), value :: tensor_desc
         integer(c_int) :: status
      end function cudnnDestroyTensorDescriptor
      !> Host memory for shape, element type and format of a filter; cudnnSetFilter4dDescriptor fills it
      function cudnnCreateFilterDescriptor(filter_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new descriptor, not filled yet
         type(c_ptr), intent(out) :: filter_desc
         integer(c_int) :: status
      end function cudnnCreateFilterDescriptor
      !> The memory of the filter itself is the caller's and stays
      function cudnnDestroyFilterDescriptor(filter_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudnnCreateFilterDescriptor gave
         type(c_ptr), value :: filter_desc
         integer(c_int) :: status
      end function cudnnDestroyFilterDescriptor
      !> Host memory for padding, strides, dilation, groups and math; cudnnSetConvolution... fill it
      function cudnnCreateConvolutionDescriptor(conv_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new descriptor, not filled yet
         type(c_ptr), intent(out) :: conv_desc
         integer(c_int) :: status
      end function cudnnCreateConvolutionDescriptor
      !> Gives back host memory only
      function cudnnDestroyConvolutionDescriptor(conv_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudnnCreateConvolutionDescriptor gave
         type(c_ptr), value :: conv_desc
         integer(c_int) :: status
      end function cudnnDestroyConvolutionDescriptor
      !> Host memory for the kind of an activation; cudnnSetActivationDescriptor fills it
      function cudnnCreateActivationDescriptor(activation_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The new descriptor, not filled yet
         type(c_ptr), intent(out) :: activation_desc
         integer(c_int) :: status
      end function cudnnCreateActivationDescriptor
      !> Gives back host memory only
      function cudnnDestroyActivationDescriptor(activation_desc) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cudnnCreateActivationDescriptor gave
         type(c_ptr), value :: activation_desc
         integer(c_int) :: status
      end function cudnnDestroyActivationDescriptor
      !> Note: the format before the element type
      function cudnnSetTensor4dDescriptor(tensor_desc, format, data_type, n, c, h, w) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The descriptor that is filled
         type(c_ptr), value :: tensor_desc
         !> A `cudnnTensorFormat_t`: NCHW or NHWC, without gaps
         integer(c_int), value :: format
         !> A `cudnnDataType_t`
         integer(c_int), value :: data_type
         !> Images
         integer(c_int), value :: n
         !> Channels of each
         integer(c_int), value :: c
         !> Rows, in pixels
         integer(c_int), value :: h
         !> Columns, in pixels
         integer(c_int), value :: w
         integer(c_int) :: status
      end function cudnnSetTensor4dDescriptor
      !> Note: the element type before the format
      function cudnnSetFilter4dDescriptor(filter_desc, data_type, format, k, c, h, w) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The descriptor that is filled
         type(c_ptr), value :: filter_desc
         !> A `cudnnDataType_t`
         integer(c_int), value :: data_type
         !> A `cudnnTensorFormat_t`: KCRS for NCHW, KRSC for NHWC
         integer(c_int), value :: format
         !> Channels of y
         integer(c_int), value :: k
         !> Channels of x, of one group
         integer(c_int), value :: c
         !> Rows r of the filter
         integer(c_int), value :: h
         !> Columns s of the filter
         integer(c_int), value :: w
         integer(c_int) :: status
      end function cudnnSetFilter4dDescriptor
      !> `u` and `v` are the strides of h and w
      function cudnnSetConvolution2dDescriptor(conv_desc, pad_h, pad_w, u, v, dilation_h, dilation_w, mode, &
            & compute_type) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The descriptor that is filled
         type(c_ptr), value :: conv_desc
         !> Zeros above and below, in pixels
         integer(c_int), value :: pad_h
         !> Zeros on the left and on the right, in pixels
         integer(c_int), value :: pad_w
         !> Stride along h, in pixels
         integer(c_int), value :: u
         !> Stride along w, in pixels
         integer(c_int), value :: v
         !> Rows of x from one tap to the next; 1 for a dense filter
         integer(c_int), value :: dilation_h
         !> Columns of x from one tap to the next
         integer(c_int), value :: dilation_w
         !> A `cudnnConvolutionMode_t`: cross-correlation, or with the filter rotated
         integer(c_int), value :: mode
         !> A `cudnnDataType_t`: in what products are summed
         integer(c_int), value :: compute_type
         integer(c_int) :: status
      end function cudnnSetConvolution2dDescriptor
      !> Whether tensor cores may be used, and with which rounding; CUDNN_DEFAULT_MATH without this call
      function cudnnSetConvolutionMathType(conv_desc, math_type) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The descriptor that is changed
         type(c_ptr), value :: conv_desc
         !> A `cudnnMathType_t`
         integer(c_int), value :: math_type
         integer(c_int) :: status
      end function cudnnSetConvolutionMathType
      !> The groups that the channels of x and y fall into; 1 without this call
      function cudnnSetConvolutionGroupCount(conv_desc, group_count) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The descriptor that is changed
         type(c_ptr), value :: conv_desc
         !> A divisor of the channels of x and of y
         integer(c_int), value :: group_count
         integer(c_int) :: status
      end function cudnnSetConvolutionGroupCount
      !> `coef` is the bound of a clipped ReLU; a plain one takes 0
      function cudnnSetActivationDescriptor(activation_desc, mode, relu_nan_opt, coef) result(status) bind(C)
         import :: c_double, c_int, c_ptr
         implicit none
         !> The descriptor that is filled
         type(c_ptr), value :: activation_desc
         !> A `cudnnActivationMode_t`
         integer(c_int), value :: mode
         !> A `cudnnNanPropagation_t`: whether a ReLU gives NaN for NaN
         integer(c_int), value :: relu_nan_opt
         !> The bound of a clipped ReLU; 0 for a plain one
         real(c_double), value :: coef
         integer(c_int) :: status
      end function cudnnSetActivationDescriptor
      !> The extents that y must have; nothing is run
      function cudnnGetConvolution2dForwardOutputDim(conv_desc, input_tensor_desc, filter_desc, n, c, h, &
            & w) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Descriptor of padding, strides, dilation and groups
         type(c_ptr), value :: conv_desc
         !> Descriptor of x (n, c, h, w)
         type(c_ptr), value :: input_tensor_desc
         !> Descriptor of w (k, c/groups, r, s)
         type(c_ptr), value :: filter_desc
         !> Images
         integer(c_int), intent(out) :: n
         !> Channels of y
         integer(c_int), intent(out) :: c
         !> Rows p, in pixels
         integer(c_int), intent(out) :: h
         !> Columns q, in pixels
         integer(c_int), intent(out) :: w
         integer(c_int) :: status
      end function cudnnGetConvolution2dForwardOutputDim
   end interface

end module cnn_cuda_bindings_cudnn_descriptor_interfaces
