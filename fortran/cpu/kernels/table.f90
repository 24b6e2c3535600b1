! SPDX-License-Identifier: MIT
!> The kernels of the CPU, as a table: one for each precision and instruction set, all with the same faces.
module cnn_cpu_kernels_table
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_plan_channel_lanes, only : outer_type
   use cnn_cpu_plan_fused, only : sequence_type
   use cnn_cpu_plan_grid, only : grid_type
   use cnn_cpu_plan_product, only : product_type
   use cnn_cpu_plan_task, only : conv_task_type, filter_task_type
   implicit none
   private

   !> See direct.inc, filter_direct.inc, filter_channel_lanes.inc, fused.inc, product.inc, im2col.inc and
   !> pointwise.inc for what they compute
   type, public :: kernels_type
      !> Elements of a vector
      integer :: lanes = 0
      procedure(convolve_), pointer, nopass :: convolve => null()
      procedure(correlate_), pointer, nopass :: correlate => null()
      procedure(correlate_outer_), pointer, nopass :: correlate_outer => null()
      procedure(convolve_), pointer, nopass :: convolve_channels_last => null()
      procedure(correlate_channels_last_), pointer, nopass :: correlate_channels_last => null()
      procedure(bias_gradient_nhwc_), pointer, nopass :: bias_gradient_nhwc => null()
      procedure(run_sequence_), pointer, nopass :: run_sequence => null()
      procedure(multiply_matrices_), pointer, nopass :: multiply_matrices => null()
      procedure(im2col_forward_), pointer, nopass :: im2col_forward => null()
      procedure(im2col_gradient_), pointer, nopass :: im2col_backward_data => null(), im2col_backward_filter => null()
      procedure(bias_gradient_), pointer, nopass :: bias_gradient => null()
      procedure(relu_forward_), pointer, nopass :: relu_forward => null()
      procedure(relu_backward_), pointer, nopass :: relu_backward => null()
      procedure(mse_), pointer, nopass :: mse => null()
      procedure(sgd_update_), pointer, nopass :: sgd_update => null()
   end type kernels_type

   abstract interface
      subroutine convolve_(grid, task, error)
         import :: conv_task_type, error_type, grid_type
         implicit none
         !> Bands, planes and taps that the kernel goes through
         type(grid_type), intent(in) :: grid
         !> Tensors and epilogue of the convolution
         type(conv_task_type), intent(in) :: task
         type(error_type), allocatable, intent(out) :: error
      end subroutine convolve_

      subroutine correlate_(grid, task, error)
         import :: error_type, filter_task_type, grid_type
         implicit none
         !> Bands, planes and taps that the kernel goes through
         type(grid_type), intent(in) :: grid
         !> Tensors of the filter gradient
         type(filter_task_type), intent(in) :: task
         type(error_type), allocatable, intent(out) :: error
      end subroutine correlate_

      subroutine correlate_outer_(plan, x, dy, dw, error)
         import :: error_type, outer_type, tensor_type
         implicit none
         !> What is packed at once, and where its pixels and points lie
         type(outer_type), intent(in) :: plan
         !> Input (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
         type(tensor_type), intent(in) :: dw
         type(error_type), allocatable, intent(out) :: error
      end subroutine correlate_outer_

      subroutine correlate_channels_last_(grid, conv, x, dy, dw, error)
         import :: conv_type, error_type, grid_type, tensor_type
         implicit none
         !> Planes and taps of the forward pass
         type(grid_type), intent(in) :: grid
         !> Stride, padding, dilation and groups
         type(conv_type), intent(in) :: conv
         !> Input (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
         type(tensor_type), intent(in) :: dw
         !> Says that there is no memory for scratch space or partial gradients
         type(error_type), allocatable, intent(out) :: error
      end subroutine correlate_channels_last_

      subroutine bias_gradient_nhwc_(dy, db, error)
         import :: error_type, tensor_type
         implicit none
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the bias (k, 1, 1, 1), is overwritten
         type(tensor_type), intent(in) :: db
         type(error_type), allocatable, intent(out) :: error
      end subroutine bias_gradient_nhwc_

      subroutine run_sequence_(sequence, error)
         import :: sequence_type, error_type
         implicit none
         !> Passes of the fused sequence, its windows and chunks
         type(sequence_type), intent(in) :: sequence
         type(error_type), allocatable, intent(out) :: error
      end subroutine run_sequence_

      subroutine multiply_matrices_(task, error)
         import :: error_type, product_type
         implicit none
         !> The matrices, and how they are summed
         type(product_type), intent(in) :: task
         !> Says that there is no memory for scratch space or sums
         type(error_type), allocatable, intent(out) :: error
      end subroutine multiply_matrices_

      subroutine im2col_forward_(conv, x, w, bias, y, error)
         import :: conv_type, error_type, tensor_type
         implicit none
         !> Stride, padding, dilation and groups
         type(conv_type), intent(in) :: conv
         !> Input (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Filters (s, r, c/groups, k)
         type(tensor_type), intent(in) :: w
         !> Bias (k, 1, 1, 1); empty when nothing is added
         type(tensor_type), intent(in) :: bias
         !> Output (q, p, k, n), is overwritten
         type(tensor_type), intent(in) :: y
         type(error_type), allocatable, intent(out) :: error
      end subroutine im2col_forward_

      !> (w, dy, dx) or (x, dy, dw)
      subroutine im2col_gradient_(conv, a, dy, gradient, error)
         import :: conv_type, error_type, tensor_type
         implicit none
         !> Stride, padding, dilation and groups
         type(conv_type), intent(in) :: conv
         !> Filters for a data gradient, input for a filter gradient
         type(tensor_type), intent(in) :: a
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Data gradient or filter gradient, is overwritten
         type(tensor_type), intent(in) :: gradient
         type(error_type), allocatable, intent(out) :: error
      end subroutine im2col_gradient_

      subroutine bias_gradient_(dy, db)
         import :: tensor_type
         implicit none
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the bias (k, 1, 1, 1), is overwritten
         type(tensor_type), intent(in) :: db
      end subroutine bias_gradient_

      subroutine relu_forward_(z, slope, a)
         import :: dp, tensor_type
         implicit none
         !> Input of the ReLU
         type(tensor_type), intent(in) :: z
         !> Where it is positive, negative numbers become this times what they are
         real(dp), intent(in) :: slope
         !> Output of the ReLU, is overwritten; may be z
         type(tensor_type), intent(in) :: a
      end subroutine relu_forward_

      subroutine relu_backward_(z, da, slope, dz)
         import :: dp, tensor_type
         implicit none
         !> Input of the ReLU, or its output: both are positive at the same places
         type(tensor_type), intent(in) :: z
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: da
         !> Where it is positive, the gradient is this times da where z is not positive
         real(dp), intent(in) :: slope
         !> Gradient with respect to the input, is overwritten; may be z or da
         type(tensor_type), intent(in) :: dz
      end subroutine relu_backward_

      subroutine mse_(y, target, scale, loss, dy, error)
         import :: dp, error_type, tensor_type
         implicit none
         !> Output of the network
         type(tensor_type), intent(in) :: y
         !> Wanted output, of the same shape
         type(tensor_type), intent(in) :: target
         !> Factor of the sum of squares: 1, or 1/N for the mean
         real(dp), intent(in) :: scale
         !> `scale` times the sum of the squares
         real(dp), intent(out) :: loss
         !> Gradient of the loss with respect to y, is overwritten
         type(tensor_type), intent(in) :: dy
         type(error_type), allocatable, intent(out) :: error
      end subroutine mse_

      subroutine sgd_update_(sgd, first, w, g, v)
         import :: sgd_type, tensor_type
         implicit none
         !> Learning rate, momentum, dampening, weight decay
         type(sgd_type), intent(in) :: sgd
         !> Whether this is the first step, which sets the momentum buffer
         logical, intent(in) :: first
         !> Parameters, updated in place
         type(tensor_type), intent(in) :: w
         !> Gradient of the loss with respect to the parameters
         type(tensor_type), intent(in) :: g
         !> Momentum buffer, updated in place; empty without momentum
         type(tensor_type), intent(in) :: v
      end subroutine sgd_update_
   end interface

end module cnn_cpu_kernels_table
