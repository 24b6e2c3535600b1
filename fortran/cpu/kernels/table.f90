! SPDX-License-Identifier: MIT
!> The kernels of the CPU, as a table: one for each precision and instruction set, all with the same faces.
module cnn_cpu_kernels_table
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_plan_channel_lanes, only : outer_type
   use cnn_cpu_plan_fused, only : chain_type
   use cnn_cpu_plan_grid, only : grid_type
   use cnn_cpu_plan_task, only : conv_task_type, filter_task_type
   implicit none
   private

   !> See direct.inc, filter_direct.inc, filter_channel_lanes.inc, fused.inc, im2col.inc and
   !> pointwise.inc for what they compute
   type, public :: kernels_type
      procedure(convolve_), pointer, nopass :: convolve => null()
      procedure(correlate_), pointer, nopass :: correlate => null()
      procedure(correlate_outer_), pointer, nopass :: correlate_outer => null()
      procedure(run_chain_), pointer, nopass :: run_chain => null()
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
         type(grid_type), intent(in) :: grid
         type(conv_task_type), intent(in) :: task
         type(error_type), allocatable, intent(out) :: error
      end subroutine convolve_

      subroutine correlate_(grid, task, error)
         import :: error_type, filter_task_type, grid_type
         implicit none
         type(grid_type), intent(in) :: grid
         type(filter_task_type), intent(in) :: task
         type(error_type), allocatable, intent(out) :: error
      end subroutine correlate_

      subroutine correlate_outer_(plan, x, dy, dw, error)
         import :: error_type, outer_type, tensor_type
         implicit none
         type(outer_type), intent(in) :: plan
         type(tensor_type), intent(in) :: x, dy, dw
         type(error_type), allocatable, intent(out) :: error
      end subroutine correlate_outer_

      subroutine run_chain_(chain, error)
         import :: chain_type, error_type
         implicit none
         type(chain_type), intent(in) :: chain
         type(error_type), allocatable, intent(out) :: error
      end subroutine run_chain_

      subroutine im2col_forward_(conv, x, w, bias, y, error)
         import :: conv_type, error_type, tensor_type
         implicit none
         type(conv_type), intent(in) :: conv
         type(tensor_type), intent(in) :: x, w, bias, y
         type(error_type), allocatable, intent(out) :: error
      end subroutine im2col_forward_

      !> (w, dy, dx) or (x, dy, dw)
      subroutine im2col_gradient_(conv, a, dy, gradient, error)
         import :: conv_type, error_type, tensor_type
         implicit none
         type(conv_type), intent(in) :: conv
         type(tensor_type), intent(in) :: a, dy, gradient
         type(error_type), allocatable, intent(out) :: error
      end subroutine im2col_gradient_

      subroutine bias_gradient_(dy, db)
         import :: tensor_type
         implicit none
         type(tensor_type), intent(in) :: dy, db
      end subroutine bias_gradient_

      subroutine relu_forward_(z, a)
         import :: tensor_type
         implicit none
         type(tensor_type), intent(in) :: z, a
      end subroutine relu_forward_

      subroutine relu_backward_(z, da, dz)
         import :: tensor_type
         implicit none
         type(tensor_type), intent(in) :: z, da, dz
      end subroutine relu_backward_

      subroutine mse_(y, target, scale, loss, dy, error)
         import :: dp, error_type, tensor_type
         implicit none
         type(tensor_type), intent(in) :: y, target
         real(dp), intent(in) :: scale
         real(dp), intent(out) :: loss
         type(tensor_type), intent(in) :: dy
         type(error_type), allocatable, intent(out) :: error
      end subroutine mse_

      subroutine sgd_update_(sgd, first, w, g, v)
         import :: sgd_type, tensor_type
         implicit none
         type(sgd_type), intent(in) :: sgd
         logical, intent(in) :: first
         type(tensor_type), intent(in) :: w, g, v
      end subroutine sgd_update_
   end interface

end module cnn_cpu_kernels_table
