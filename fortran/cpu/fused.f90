! SPDX-License-Identifier: MIT
!> Fused sequences of convolutions as passes that the CPU's kernels can run depth first, where they can.
module cnn_cpu_fused
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_cpu_plan_channel_lanes, only : outer_type
   use cnn_cpu_plan_choice, only : choose_backward, choose_filter, choose_forward, filter_channel_lanes, &
      & filter_channels_last, lanes_channels, lay_backward, lay_forward
   use cnn_cpu_plan_fused, only : computes_data_gradient, computes_filter_gradient, computes_output, &
      & pass_type, plan_sequence, sequence_type
   use cnn_cpu_plan_grid, only : grid_type
   use cnn_cpu_plan_task, only : epilogue_type
   implicit none
   private

   public :: backward_passes, depth_first_text, forward_passes

contains

   !> y of all steps, the first first. `fits`: that this can, and should, be done depth first
   !> What is in the lanes is as `wanted` of `choose_forward`
   subroutine forward_passes(steps, wanted, sequence, fits)
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> Fused sequence; undefined unless it `fits`
      type(sequence_type), intent(out) :: sequence
      !> Whether the sequence can, and should, be computed depth first
      logical, intent(out) :: fits
      integer :: i
      fits = is_simple(steps)
      if (.not. fits) return
      allocate (sequence%passes(size(steps)))
      do i = 1, size(steps)
         associate (step => steps(i), pass => sequence%passes(i))
            pass%computes = computes_output
            pass%source = step%x
            pass%w = step%w
            pass%result = step%y
            pass%epilogue = epilogue_type(bias=step%bias, relu=step%relu)
            pass%source_from = i - 1
            pass%kept = .true.
            call choose_forward(step%conv, step%x, step%w, step%y, wanted, pass%grid, fits)
            fits = fits .and. .not. pass%grid%channels_in_lanes
            if (.not. fits) return
         end associate
      end do
      call plan_sequence(sequence, steps(1)%x%extent(4), fits)
   end subroutine forward_passes

   !> Filter gradients of all steps, the last first, and in between what goes through each but the first. Only the last
   !> of these may be kept, in the memory of its mask: others are made twice where chunks meet, from the mask.
   !> What is in the lanes is as `wanted` of `choose_filter`
   subroutine backward_passes(steps, dy, wanted, sequence, fits)
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> Gradient with respect to the last output
      type(tensor_type), intent(in) :: dy
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> Fused sequence; undefined unless it `fits`
      type(sequence_type), intent(out) :: sequence
      !> Whether the sequence can, and should, be computed depth first
      logical, intent(out) :: fits
      type(tensor_type) :: gradient
      integer :: i, n
      fits = is_simple(steps)
      if (fits) fits = .not. channels_in_lanes(steps, wanted)
      if (.not. fits) return
      allocate (sequence%passes(2*size(steps) - 1))
      gradient = dy
      n = 0
      do i = size(steps), 2, -1
         call add_filter_gradient(steps(i), gradient, n, sequence%passes(n + 1), fits)
         if (.not. fits) return
         call add_data_gradient(steps(i), gradient, steps(i - 1)%db, n, sequence%passes(n + 2), fits)
         if (.not. fits) return
         n = n + 2
         gradient = steps(i)%x
      end do
      sequence%passes(n)%kept = steps(1)%keeps_gradient
      call add_first_filter_gradient(steps(1), gradient, n, sequence%passes(n + 1), fits)
      if (fits) call plan_sequence(sequence, dy%extent(4), fits)
   end subroutine backward_passes

   !> dw from dy, which pass `before` makes
   subroutine add_filter_gradient(step, dy, before, pass, fits)
      !> The convolution
      type(conv_step_type), intent(in) :: step
      !> Gradient with respect to the step's output
      type(tensor_type), intent(in) :: dy
      !> Number of the pass that makes dy; 0 when it is in memory
      integer, intent(in) :: before
      !> Pass that is set
      type(pass_type), intent(inout) :: pass
      !> Whether rows can be packed and shifted
      logical, intent(out) :: fits
      call read_gradient(step, dy, before, pass, fits)
      pass%computes = computes_filter_gradient
      pass%shifts_dy = .true.
      pass%w = step%dw
   end subroutine add_filter_gradient

   !> From dy, which pass `before` makes, to the gradient with respect to x, 0 where x is not positive
   subroutine add_data_gradient(step, dy, db, before, pass, fits)
      !> The convolution
      type(conv_step_type), intent(in) :: step
      !> Gradient with respect to the step's output
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the bias of the step before, is overwritten; empty when not wanted
      type(tensor_type), intent(in) :: db
      !> Number of the pass that makes dy; 0 when it is in memory
      integer, intent(in) :: before
      !> Pass that is set
      type(pass_type), intent(inout) :: pass
      !> Whether rows can be packed and shifted
      logical, intent(out) :: fits
      call read_gradient(step, dy, before, pass, fits)
      pass%computes = computes_data_gradient
      pass%w = step%w
      pass%epilogue = epilogue_type(relu_mask=.true., bias_gradient=db)
   end subroutine add_data_gradient

   !> Shifted rows of dy beside rows of x: the same stream for both gradients of a step
   subroutine read_gradient(step, dy, before, pass, fits)
      !> The convolution
      type(conv_step_type), intent(in) :: step
      !> Gradient with respect to the step's output
      type(tensor_type), intent(in) :: dy
      !> Number of the pass that makes dy; 0 when it is in memory
      integer, intent(in) :: before
      !> Pass that is set
      type(pass_type), intent(inout) :: pass
      !> Whether rows can be packed and shifted
      logical, intent(out) :: fits
      pass%source = dy
      pass%source_from = before
      pass%result = step%x
      call lay_backward(step%conv, step%w, dy, step%x, pass%grid, fits)
   end subroutine read_gradient

   !> dw of the first step: x has few channels as a rule, and is what is shifted
   subroutine add_first_filter_gradient(step, dy, before, pass, fits)
      !> The convolution
      type(conv_step_type), intent(in) :: step
      !> Gradient with respect to the step's output
      type(tensor_type), intent(in) :: dy
      !> Number of the pass that makes dy; 0 when it is in memory
      integer, intent(in) :: before
      !> Pass that is set
      type(pass_type), intent(inout) :: pass
      !> Whether rows can be packed and shifted
      logical, intent(out) :: fits
      pass%computes = computes_filter_gradient
      pass%source = step%x
      pass%result = dy
      pass%result_from = before
      pass%w = step%dw
      call lay_forward(step%conv, step%x, step%dw, dy, pass%grid, fits)
   end subroutine add_first_filter_gradient

   !> In words; empty when steps are computed one after the other
   function depth_first_text(steps, wanted) result(text)
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      character(len=:), allocatable :: text
      type(sequence_type) :: forward, backward
      logical :: fits, fits_backward
      text = ""
      call forward_passes(steps, wanted, forward, fits)
      call backward_passes(steps, steps(size(steps))%y, wanted, backward, fits_backward)
      if (fits) text = "outputs depth first, in windows of "//to_text(forward%window)//" rows"
      if (fits .and. fits_backward) text = text//"; "
      if (fits_backward) text = text//"gradients depth first, in windows of "//to_text(backward%window)//" rows"
   end function depth_first_text

   !> Whether a gradient had better be computed with channels in the vector lanes, which is done for a whole layer: with
   !> fewer channels that gains less than going depth first does (measured with AVX-512)
   logical function channels_in_lanes(steps, wanted)
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      type(grid_type) :: grid
      type(outer_type) :: plan
      logical :: direct
      integer, parameter :: many_channels = 32
      integer :: algorithm, i
      channels_in_lanes = .false.
      do i = 1, size(steps)
         call choose_filter(steps(i)%conv, steps(i)%x, steps(i)%y, steps(i)%w, wanted, algorithm, grid, plan)
         channels_in_lanes = channels_in_lanes .or. &
            & (any(algorithm == [filter_channel_lanes, filter_channels_last]) .and. &
            & (wanted == lanes_channels .or. plan%transposed_channels >= many_channels))
         if (i == 1) cycle
         call choose_backward(steps(i)%conv, steps(i)%w, steps(i)%y, steps(i)%x, wanted, grid, direct)
         channels_in_lanes = channels_in_lanes .or. grid%channels_in_lanes
      end do
   end function channels_in_lanes

   !> Several convolutions, without strides and groups. One filter over one channel is summed in another order
   pure logical function is_simple(steps)
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      integer :: i
      is_simple = size(steps) > 1
      do i = 1, size(steps)
         associate (step => steps(i))
            is_simple = is_simple .and. all([step%conv%stride_h, step%conv%stride_w, step%conv%groups] == 1) .and. &
               & max(step%x%extent(3), step%y%extent(3)) > 1
         end associate
      end do
   end function is_simple

end module cnn_cpu_fused
