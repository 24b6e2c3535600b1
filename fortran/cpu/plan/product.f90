! SPDX-License-Identifier: MIT
!> Convolutions of images of one pixel with kernels of one tap, which are matrix products: the passes of linear layers,
!> and products of two matrices.
module cnn_cpu_plan_product
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_plan_choice, only : lanes_cheaper
   implicit none
   private

   public :: data_gradient_product, filter_gradient_product, forward_product, is_filter_product, is_product

   !> c(row, column) = sum over m of a(row, m)*b(m, column)
   type, public :: product_type
      type(tensor_type) :: a, b, c
      !> A number for each row of c, added to the sums; empty when nothing is added
      type(tensor_type) :: bias
      integer :: rows = 0, columns = 0
      !> Number of products of a sum
      integer :: depth = 0
      !> Whether what is multiplied for one sum lies one behind the other in memory; else what is for one product does
      logical :: a_along = .false., b_along = .false.
      !> Sums of many images: in blocks, with float64 totals
      logical :: in_blocks = .false.
      !> Elements from one column of b to the next, where it is a part of a larger one; 0 where it is all
      integer :: b_stride = 0
   end type product_type

contains

   !> Whether a convolution is one, and is to be computed as one
   pure logical function is_product(conv, x, w, wanted)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, of which only the extents matter
      type(tensor_type), intent(in) :: x
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> What is in the vector lanes: `lanes_cheaper`, else it is computed as other convolutions are
      integer, intent(in) :: wanted
      is_product = wanted == lanes_cheaper .and. all(x%extent(1:2) == 1) .and. all(w%extent(1:2) == 1) .and. &
         & conv%groups == 1 .and. conv%pad_h == 0 .and. conv%pad_w == 0
   end function is_product

   !> y(k, n) = sum over c of w(c, k)*x(c, n), and the bias
   pure type(product_type) function forward_product(x, w, bias, y) result(product)
      !> Input (1, 1, c, n)
      type(tensor_type), intent(in) :: x
      !> Filters (1, 1, c, k)
      type(tensor_type), intent(in) :: w
      !> Bias (k, 1, 1, 1); empty when nothing is added
      type(tensor_type), intent(in) :: bias
      !> Output (1, 1, k, n)
      type(tensor_type), intent(in) :: y
      product = product_type(w, x, y, bias, y%extent(3), y%extent(4), x%extent(3), a_along=.true., b_along=.true.)
   end function forward_product

   !> dx(c, n) = sum over k of w(c, k)*dy(k, n)
   pure type(product_type) function data_gradient_product(w, dy, dx) result(product)
      !> Filters (1, 1, c, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (1, 1, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (1, 1, c, n)
      type(tensor_type), intent(in) :: dx
      product = product_type(w, dy, dx, tensor_type(), dx%extent(3), dx%extent(4), dy%extent(3), b_along=.true.)
   end function data_gradient_product

   !> Whether a filter gradient is one, and its tiles are filled: with few channels the other kernels are as fast, and
   !> sum in float64 image by image
   pure logical function is_filter_product(conv, x, w, wanted)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, of which only the extents matter
      type(tensor_type), intent(in) :: x
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> What is in the vector lanes: `lanes_cheaper`, else it is computed as other convolutions are
      integer, intent(in) :: wanted
      integer, parameter :: least_rows = 16, least_columns = 8
      is_filter_product = is_product(conv, x, w, wanted) .and. w%extent(3) >= least_rows .and. &
         & w%extent(4) >= least_columns
   end function is_filter_product

   !> dw(c, k) = sum over n of x(c, n)*dy(k, n)
   pure type(product_type) function filter_gradient_product(x, dy, dw) result(product)
      !> Input (1, 1, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (1, 1, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (1, 1, c, k)
      type(tensor_type), intent(in) :: dw
      product = product_type(x, dy, dw, tensor_type(), dw%extent(3), dw%extent(4), x%extent(4), in_blocks=.true.)
   end function filter_gradient_product

end module cnn_cpu_plan_product
