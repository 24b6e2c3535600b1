! SPDX-License-Identifier: MIT
!> Gradients that several processes find together, each from its part of a batch.
module cnn_io_shared_gradients
   use, intrinsic :: iso_c_binding, only : c_loc
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float64
   use cnn_core_ranks, only : ranks_type
   use cnn_core_tensor, only : extent_of, images_of, tensor_type
   use cnn_io_batch, only : batch_type
   use cnn_io_fixture, only : fixture_type
   use cnn_io_staging, only : staging_type
   use cnn_model_network, only : network_type
   implicit none
   private

   public :: add_up, add_up_by_image

contains

   !> The loss and all gradients of the ranks' parts become those of the batch. One sum for all gradients, which lie in
   !> one piece of memory
   subroutine add_up(network, ranks, loss, error)
      !> After its backward pass
      class(network_type), intent(inout) :: network
      !> Which have done the same
      class(ranks_type), intent(in) :: ranks
      !> Of this rank's part of the mean or sum; becomes the batch's
      real(dp), intent(inout) :: loss
      !> No memory, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(staging_type) :: staging
      type(tensor_type) :: gradients, on_host
      real(dp), target :: number
      if (ranks%count == 1) return
      number = loss
      call ranks%add_up(tensor_type(c_loc(number), dtype_float64, extent_of([1])))
      loss = number
      gradients = network%parameters%all_gradients()
      if (.not. gradients%is_allocated()) return
      if (network%backend%in_host_memory) then
         call ranks%add_up(gradients)
         return
      end if
      call staging%like(gradients, on_host, error)
      if (.not. allocated(error)) call network%backend%copy_out(gradients, on_host%address, error)
      if (.not. allocated(error)) call ranks%add_up(on_host)
      if (.not. allocated(error)) call network%backend%copy_in(on_host%address, gradients, error)
      call staging%free()
   end subroutine add_up

   !> The same from passes of single images, whose losses and gradients are added up in the order of the batch: the same
   !> bits for any number of ranks
   subroutine add_up_by_image(network, fixture, batch, ranks, loss, error)
      !> Has the gradients of the batch afterwards
      class(network_type), intent(inout) :: network
      !> With the masks of the batch
      type(fixture_type), intent(inout) :: fixture
      !> With the images of this rank
      type(batch_type), intent(in) :: batch
      !> Which do the same
      class(ranks_type), intent(in) :: ranks
      !> Of the batch
      real(dp), intent(out) :: loss
      !> A pass that fails, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(staging_type) :: columns, place
      type(tensor_type) :: gradients, total, each
      real(dp), target :: losses(batch%own), number
      loss = 0.0_dp
      losses = 0.0_dp
      gradients = network%parameters%all_gradients()
      each = gradients
      ! One column for each image
      each%extent(2) = batch%own
      if (gradients%is_allocated()) call reserve(each, gradients, columns, place, total, error)
      if (.not. allocated(error)) call pass_by_image(network, fixture, batch, gradients, columns%buffer, losses, error)
      if (.not. allocated(error)) then
         number = 0.0_dp
         call ranks%add_in_order(tensor_type(c_loc(losses), dtype_float64, extent_of([1, batch%own])), &
            & tensor_type(c_loc(number), dtype_float64, extent_of([1])))
         loss = number
         if (gradients%is_allocated()) then
            call ranks%add_in_order(columns%buffer, total)
            call network%backend%copy_in(total%address, gradients, error)
         end if
      end if
      call columns%free()
      call place%free()
   end subroutine add_up_by_image

   !> Host memory for the gradients of every image and for their sum, which is 0
   subroutine reserve(each, gradients, columns, place, total, error)
      !> Shape of the former
      type(tensor_type), intent(in) :: each
      !> Shape of the latter
      type(tensor_type), intent(in) :: gradients
      !> Gets memory
      type(staging_type), intent(inout) :: columns
      !> Gets memory
      type(staging_type), intent(inout) :: place
      !> In the memory of `place`
      type(tensor_type), intent(out) :: total
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: unused
      call columns%like(each, unused, error)
      if (.not. allocated(error)) call place%like(gradients, total, error)
      if (.not. allocated(error)) call place%host%clear(total, error)
   end subroutine reserve

   !> Forward, loss and backward of each image by itself
   subroutine pass_by_image(network, fixture, batch, gradients, columns, losses, error)
      !> Its gradients are those of the last image afterwards
      class(network_type), intent(inout) :: network
      !> With the masks of the batch
      type(fixture_type), intent(inout) :: fixture
      !> With the images of this rank
      type(batch_type), intent(in) :: batch
      !> Of all parameters, the network's
      type(tensor_type), intent(in) :: gradients
      !> Gets those of each image, *host*; empty where there are no parameters
      type(tensor_type), intent(in) :: columns
      !> Gets what each image gives to the loss
      real(dp), intent(out) :: losses(:)
      !> A pass that fails
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: input, target, column
      integer :: i
      losses = 0.0_dp
      do i = 0, batch%own - 1
         call batch%image(i, input, target)
         call fixture%read_masks(batch%number, network, error, batch%first + i, 1)
         if (.not. allocated(error)) call network%forward(input, error, batch%rank)
         if (.not. allocated(error)) call network%compute_loss(target, losses(i + 1), error)
         if (.not. allocated(error)) call network%backward(error)
         if (allocated(error)) return
         if (.not. columns%is_allocated()) cycle
         column = images_of(columns, 2, i, 1)
         call network%backend%copy_out(gradients, column%address, error)
         if (allocated(error)) return
      end do
   end subroutine pass_by_image

end module cnn_io_shared_gradients
