! SPDX-License-Identifier: MIT
!> A batch of a fixture on a network's device, and the part of it that this process works on.
module cnn_io_batch
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_ranks, only : ranks_type
   use cnn_core_tensor, only : images_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_fixture, only : fixture_type
   use cnn_model_network, only : network_type
   implicit none
   private

   type, public :: batch_type
      !> All of it
      type(tensor_type), private :: whole_input, whole_target
      !> Dimensions
      integer :: rank = 4
      integer, private :: target_rank = 4
      !> Its number in the fixture, from 0
      integer :: number = 0
      !> Images of this process: how many are before them, and how many they are
      integer :: first = 0, own = 0
      !> These, in the memory of the whole
      type(tensor_type) :: input, target
   contains
      procedure :: read => read_batch
      procedure :: image
      procedure :: release
   end type batch_type

contains

   !> Another batch; what there was is released. The network is told how many images there are in all
   subroutine read_batch(self, number, fixture, network, ranks, error)
      class(batch_type), intent(inout) :: self
      !> Of the fixture, from 0
      integer, intent(in) :: number
      !> Open
      type(fixture_type), intent(inout) :: fixture
      !> On whose device it will be
      class(network_type), intent(inout) :: network
      !> Of which each has its part
      class(ranks_type), intent(in) :: ranks
      !> Dataset that is missing, damaged or not finite, too few images, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer :: images
      self%number = number
      call fixture%read_batch(number, network, self%whole_input, self%whole_target, error, self%rank, self%target_rank)
      if (allocated(error)) return
      self%input = self%whole_input
      self%target = self%whole_target
      network%batch_images = 0
      if (ranks%count == 1 .and. .not. ranks%by_image) return
      images = 0
      if (self%rank > 0) images = self%input%extent(self%rank)
      if (images < ranks%count) then
         call fail(error, fixture%file%path//": /batches/"//to_text(number)//"/input has "//to_text(images)// &
            & " images for "//to_text(ranks%count)//" ranks, expected one or more for each")
      else if (self%target_rank < 1 .or. self%target%extent(max(self%target_rank, 1)) /= images) then
         call fail(error, fixture%file%path//": /batches/"//to_text(number)//"/target has not the input's "// &
            & to_text(images)//" images")
      end if
      if (allocated(error)) return
      network%batch_images = images
      call ranks%part(images, ranks%rank, self%first, self%own)
      self%input = images_of(self%whole_input, self%rank, self%first, self%own)
      self%target = images_of(self%whole_target, self%target_rank, self%first, self%own)
   end subroutine read_batch

   !> One of the images of this process
   subroutine image(self, i, input, target)
      class(batch_type), intent(in) :: self
      !> Which of its own, from 0
      integer, intent(in) :: i
      !> In the memory of the batch
      type(tensor_type), intent(out) :: input
      !> What the output should be
      type(tensor_type), intent(out) :: target
      input = images_of(self%input, self%rank, i, 1)
      target = images_of(self%target, self%target_rank, i, 1)
   end subroutine image

   subroutine release(self, backend)
      class(batch_type), intent(inout) :: self
      !> The device where it is
      class(backend_type), intent(inout) :: backend
      call backend%release(self%whole_input)
      call backend%release(self%whole_target)
   end subroutine release

end module cnn_io_batch
