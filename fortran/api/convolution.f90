! SPDX-License-Identifier: MIT
!> Single convolutions.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_convolution
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t
   use cnn_api_values, only : conv_from, hand_over, tensor_at
   use cnn_core_backend, only : backend_type
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_name
   use cnn_core_tensor, only : tensor_type
   use cnn_devices, only : open_device
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: conv2d_extent, conv2d_forward, conv2d_backward

contains

   !> Shape of the output. `params` is stride, padding, dilation as (h, w) each, then groups
   subroutine conv2d_extent(x_extent, w_extent, params, y_extent, ierr, errmsg)
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> Of the output, [w, h, c, n]
      integer(c_int), intent(out) :: y_extent(4)
      !> 0 good, 1 failed, 3 an argument is not finite
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      conv = conv_from(params)
      call conv%output_extent(x_extent, w_extent, y_extent, error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_extent

   !> y = conv2d(x, w) + bias, and max(y, 0) when `relu` is not 0
   subroutine conv2d_forward(device, dtype, params, layouts, relu, x, x_extent, w, w_extent, bias, y, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> 1 for channels_last, else 0: of x and y, of w
      integer(c_int), intent(in) :: layouts(2)
      !> 1 for max(y, 0), else 0
      integer(c_int), intent(in) :: relu
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> Address of the input
      integer(c_int64_t), intent(in) :: x
      !> Address of the filters
      integer(c_int64_t), intent(in) :: w
      !> Address of the bias; 0 for none
      integer(c_int64_t), intent(in) :: bias
      !> Address of the output
      integer(c_int64_t), intent(in) :: y
      !> 0 good, 1 failed, 3 an argument is not finite
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      integer :: y_extent(4)
      call open_convolution(device, dtype, params, layouts, x_extent, w_extent, backend, conv, y_extent, error)
      if (.not. allocated(error)) call backend%conv_forward(conv_step_type(conv=conv, relu=relu /= 0, &
         & x=laid_out(x, dtype, x_extent, layouts(1)), w=laid_out(w, dtype, w_extent, layouts(2)), &
         & bias=tensor_at(bias, dtype, [w_extent(4), 1, 1, 1]), y=laid_out(y, dtype, y_extent, layouts(1))), error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_forward

   !> The gradients whose address is not 0: dx, dw, db
   subroutine conv2d_backward(device, dtype, params, layouts, x, x_extent, w, w_extent, dy, dx, dw, db, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> 1 for channels_last, else 0: of x, dy and dx, of w and dw
      integer(c_int), intent(in) :: layouts(2)
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> Address of the input
      integer(c_int64_t), intent(in) :: x
      !> Address of the filters
      integer(c_int64_t), intent(in) :: w
      !> Address of the gradient with respect to the output
      integer(c_int64_t), intent(in) :: dy
      !> Address for the gradient with respect to the input; 0 for none
      integer(c_int64_t), intent(in) :: dx
      !> Address for that with respect to the filters; 0 for none
      integer(c_int64_t), intent(in) :: dw
      !> Address for that with respect to the bias; 0 for none
      integer(c_int64_t), intent(in) :: db
      !> 0 good, 1 failed, 3 an argument is not finite
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(conv_type) :: conv
      type(error_type), allocatable :: error
      integer :: y_extent(4)
      call open_convolution(device, dtype, params, layouts, x_extent, w_extent, backend, conv, y_extent, error)
      if (.not. allocated(error)) call find_gradients(backend, conv, &
         & laid_out(x, dtype, x_extent, layouts(1)), laid_out(w, dtype, w_extent, layouts(2)), &
         & laid_out(dy, dtype, y_extent, layouts(1)), laid_out(dx, dtype, x_extent, layouts(1)), &
         & laid_out(dw, dtype, w_extent, layouts(2)), tensor_at(db, dtype, [w_extent(4), 1, 1, 1]), error)
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_backward

   !> What a convolution needs: its device, itself, and the shape of its output
   subroutine open_convolution(device, dtype, params, layouts, x_extent, w_extent, backend, conv, y_extent, error)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type of the tensors, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> 1 for channels_last, else 0: of the tensors, of the filters
      integer(c_int), intent(in) :: layouts(2)
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> Of the device
      class(backend_type), allocatable, intent(out) :: backend
      !> The convolution that `params` describe
      type(conv_type), intent(out) :: conv
      !> Of the output, [w, h, c, n]
      integer, intent(out) :: y_extent(4)
      !> What is wrong, not allocated where nothing is
      type(error_type), allocatable, intent(out) :: error
      conv = conv_from(params)
      y_extent = 0
      call open_device(device, backend, error)
      if (allocated(error)) return
      call conv%output_extent(x_extent, w_extent, y_extent, error)
      if (allocated(error)) return
      if (any(layouts /= 0) .and. .not. backend%takes_channels_last) then
         call fail(error, "device "//backend%name//": conv2d of channels_last arrays, expected C order")
         return
      end if
      if (layouts(1) == 0 .and. layouts(2) /= 0) then
         call fail(error, "conv2d: channels_last filters for tensors in C order")
         return
      end if
      if (backend%supports(int(dtype))) return
      call fail(error, "device "//backend%name//": conv2d in "//dtype_name(int(dtype))// &
         & ", expected float32 or float64")
   end subroutine open_convolution

   !> A tensor, channels_last where `layout` is not 0
   type(tensor_type) function laid_out(address, dtype, extent, layout) result(tensor)
      !> Of the first element; 0 for none
      integer(c_int64_t), intent(in) :: address
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> [w, h, c, n]
      integer, intent(in) :: extent(4)
      !> 1 for channels_last, else 0
      integer(c_int), intent(in) :: layout
      tensor = tensor_at(address, dtype, extent)
      tensor%channels_last = layout /= 0
   end function laid_out

   !> The gradients that have a place
   subroutine find_gradients(backend, conv, x, w, dy, dx, dw, db, error)
      !> Of the device
      class(backend_type), intent(in) :: backend
      !> The convolution
      type(conv_type), intent(in) :: conv
      !> Input
      type(tensor_type), intent(in) :: x
      !> Filters
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input; no address for none
      type(tensor_type), intent(in) :: dx
      !> With respect to the filters; no address for none
      type(tensor_type), intent(in) :: dw
      !> With respect to the bias; no address for none
      type(tensor_type), intent(in) :: db
      !> Of the device
      type(error_type), allocatable, intent(out) :: error
      if (dx%is_allocated()) call backend%conv_backward_data(conv, w, dy, dx, error)
      if (allocated(error)) return
      if (dw%is_allocated()) call backend%conv_backward_filter(conv, x, dy, dw, error)
      if (allocated(error)) return
      if (db%is_allocated()) call backend%conv_backward_bias(dy, db, error)
   end subroutine find_gradients

end module cnn_api_convolution
