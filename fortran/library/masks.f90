! SPDX-License-Identifier: MIT
!> The masks that dropouts take in training, drawn for each forward pass.
module cnn_library_masks
   use, intrinsic :: iso_c_binding, only : c_loc
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32, sp
   use cnn_core_tensor, only : tensor_type
   use cnn_library_arrays, only : array_type
   use cnn_library_random, only : generator_type
   use cnn_model_graph, only : graph_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   public :: draw_masks

contains

   !> Of all layers that take one
   subroutine draw_masks(network, x, generator, error)
      !> The network; its masks are set
      class(network_type), intent(inout) :: network
      !> Input of the forward pass, whose shape counts
      type(array_type), intent(in) :: x
      !> Gives the numbers
      type(generator_type), intent(inout) :: generator
      !> An input that does not fit, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      logical :: is_known
      integer :: i
      select type (network)
       type is (graph_type)
         is_known = .false.
         do i = 1, network%layer_count()
            call network%view(i, layer)
            if (.not. layer%has_mask) cycle
            if (.not. is_known) call network%find_shapes(shape_type(x%rank, x%tensor%extent), error)
            if (.not. allocated(error)) call draw(network, i, layer, generator, error)
            if (allocated(error)) return
            is_known = .true.
         end do
      end select
   end subroutine draw_masks

   !> The mask of one layer
   subroutine draw(network, i, layer, generator, error)
      !> With all shapes
      type(graph_type), intent(inout) :: network
      !> Number of the layer
      integer, intent(in) :: i
      !> A dropout
      type(layer_view_type), intent(inout) :: layer
      !> Gives the numbers
      type(generator_type), intent(inout) :: generator
      !> No memory
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: mask
      real(sp), allocatable, target :: single(:)
      real(dp), allocatable, target :: kept(:)
      real(dp) :: p
      integer :: j
      call layer%attributes%get_real("p", p, error)
      if (allocated(error)) return
      mask%extent = network%nodes(i)%shape%extent
      if (layer%kind == "dropout2d") mask%extent(:2) = 1
      mask%dtype = network%dtype
      allocate (kept(mask%count()))
      do j = 1, size(kept)
         call generator%uniform(kept(j))
      end do
      kept = merge(1.0_dp, 0.0_dp, kept >= p)
      if (mask%dtype == dtype_float32) then
         allocate (single, source=real(kept, sp))
         mask%address = c_loc(single)
      else
         mask%address = c_loc(kept)
      end if
      call network%set_mask(i, mask, error)
   end subroutine draw

end module cnn_library_masks
