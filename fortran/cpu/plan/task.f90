! SPDX-License-Identifier: MIT
!> What the CPU's kernels are asked to compute: which product of a layer, of which tensors, with which epilogue.
!>
!> A task says *what*; a grid (cnn_cpu_plan_grid) says in which bands and along which taps. Tasks are made by the
!> functions here, whose arguments have the names of the formulas, so that no call hands over a row of tensors and
!> logicals.
module cnn_cpu_plan_task
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   public :: data_gradient_task, filter_gradient_task, forward_task

   !> What is done to the sums of a convolution as they are stored, in this order
   type, public :: epilogue_type
      !> Added to each pixel of its channel, (k, 1, 1, 1); empty: nothing is added
      type(tensor_type) :: bias = tensor_type()
      !> Negative results become 0; NaN stays NaN
      logical :: relu = .false.
      !> The gradient of a ReLU: the result overwrites the ReLU's output, and is 0 where that is not positive
      logical :: relu_mask = .false.
      !> Where it is positive both are those of a leaky ReLU: not 0, but results times this
      real(dp) :: slope = 0.0_dp
      !> Receives the sums of the result over all but its channels, (c, 1, 1, 1): the gradient with respect to the bias
      !> before that ReLU; empty: not wanted
      type(tensor_type) :: bias_gradient = tensor_type()
   end type epilogue_type

   !> A convolution whose results are pixels: y = conv(x, w), or the gradient of the loss with respect to x
   type, public :: conv_task_type
      !> The result is dx and the source dy, along the backward grid; else y and x, along the forward grid
      logical :: is_data_gradient = .false.
      !> Number of groups of channels
      integer :: groups = 1
      !> What is packed, the filters (s, r, c/groups, k), what is written
      type(tensor_type) :: source, w, result
      type(epilogue_type) :: epilogue
   end type conv_task_type

   !> A filter gradient, summed over the batch
   type, public :: filter_task_type
      !> dy is shifted for each tap and x is not, along the backward grid, which is for strides of 1; else the other way
      !> round, along the forward grid
      logical :: shifts_dy = .false.
      !> Number of groups of channels
      integer :: groups = 1
      !> What is packed and shifted (better the one with fewer channels), what is not, and their gradient (s, r,
      !> c/groups, k)
      type(tensor_type) :: shifted, fixed, dw
   end type filter_task_type

contains

   !> y = epilogue(conv(x, w))
   pure type(conv_task_type) function forward_task(groups, x, w, y, epilogue) result(task)
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Output (q, p, k, n), is overwritten
      type(tensor_type), intent(in) :: y
      !> What is done to the sums
      type(epilogue_type), intent(in) :: epilogue
      task = conv_task_type(is_data_gradient=.false., groups=groups, source=x, w=w, result=y, epilogue=epilogue)
   end function forward_task

   !> dx = epilogue(gradient of the loss with respect to x)
   pure type(conv_task_type) function data_gradient_task(groups, w, dy, dx, epilogue) result(task)
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (w, h, c, n), is overwritten; with `relu_mask` it holds the ReLU's output
      type(tensor_type), intent(in) :: dx
      !> What is done to the sums
      type(epilogue_type), intent(in) :: epilogue
      task = conv_task_type(is_data_gradient=.true., groups=groups, source=dy, w=w, result=dx, epilogue=epilogue)
   end function data_gradient_task

   !> dw = gradient of the loss with respect to w
   pure type(filter_task_type) function filter_gradient_task(groups, x, dy, dw, shifts_dy) result(task)
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
      type(tensor_type), intent(in) :: dw
      !> Whether dy is what is packed and shifted, which is for strides of 1
      logical, intent(in) :: shifts_dy
      if (shifts_dy) then
         task = filter_task_type(shifts_dy=.true., groups=groups, shifted=dy, fixed=x, dw=dw)
      else
         task = filter_task_type(shifts_dy=.false., groups=groups, shifted=x, fixed=dy, dw=dw)
      end if
   end function filter_gradient_task

end module cnn_cpu_plan_task
