! SPDX-License-Identifier: MIT
!> In words, how a network's convolutions are computed: for `bridge.Network.plan`.
module cnn_model_chain_plan
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_model_chain, only : chain_type
   implicit none
   private

   public :: describe_plan

contains

   !> A line for each fused sequence: "conv1 .. conv3: depth first, ...". Nothing is computed
   !> and no tensor needed, only the extents (w, h, c, n) of an input
   subroutine describe_plan(network, extent, text, error)
      !> A network that is built; plans may be made on its device
      class(chain_type), intent(inout) :: network
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> Lines, separated by new lines
      character(len=:), allocatable, intent(out) :: text
      !> The input does not fit, or a plan cannot be made
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type), allocatable :: steps(:)
      integer :: extents(4, 0:size(network%layers)), i, last
      text = ""
      call network%output_extents(extent, extents, error)
      if (allocated(error)) return
      i = 1
      do while (i <= size(network%layers))
         if (network%layers(i)%is_convolution) then
            last = network%sequence_end(i)
            call network%find_sequence(i, last, extents, steps, error)
            if (allocated(error)) return
            if (len(text) > 0) text = text//new_line("a")
            text = text//network%layers(i)%name
            if (last > i) text = text//" .. "//network%layers(last)%name
            text = text//": "//network%backend%sequence_algorithm(steps)
            i = last
         end if
         i = i + 1
      end do
   end subroutine describe_plan

end module cnn_model_chain_plan
