! SPDX-License-Identifier: MIT
!> Memory for what a network computes: outputs and gradients, which follow the shape of the input.
module cnn_model_tensors
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_model_layers, only : layers_type
   use cnn_model_network, only : keep_needed
   use cnn_model_resize, only : resize
   implicit none
   private

   public :: allocate_outputs, allocate_gradients, release_tensors

contains

   !> Outputs with the shapes that follow from the input's; kept when the shapes did not change
   subroutine allocate_outputs(self, extent, moved, error)
      !> The network
      class(layers_type), intent(inout) :: self
      !> (w, h, c, n) of the input
      integer, intent(in) :: extent(4)
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> Input that does not fit, or no memory on the device
      type(error_type), allocatable, intent(out) :: error
      integer :: shapes(4, 0:size(self%layers)), i

      moved = .false.
      call self%output_extents(extent, shapes, error)
      if (allocated(error)) return
      call set_storage_formats(self, shapes, error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         if (self%fused(i)) cycle
         call resize(self%backend, shapes(:, i), self%layers(i)%storage_dtype, self%layers(i)%output, &
            & moved, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_outputs

   !> The forms in which outputs are kept
   subroutine set_storage_formats(self, extents, error)
      !> The network
      class(layers_type), intent(inout) :: self
      !> (w, h, c, n) of the input (0) and of the outputs of all layers
      integer, intent(in) :: extents(:, 0:)
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type), allocatable :: steps(:)
      integer :: first, last

      self%layers%storage_dtype = self%dtype
      self%layers%opaque = .false.
      first = 1
      do while (first <= size(self%layers))
         last = first
         if (self%layers(first)%is_convolution) then
            last = self%sequence_end(first)
            call self%find_sequence(first, last, extents, steps, error)
            if (allocated(error)) return
            self%layers(first:last - 1)%storage_dtype = steps(1)%y%dtype
            self%layers(first:last - 1)%opaque = steps(1)%opaque
         end if
         first = last + 1
      end do
   end subroutine set_storage_formats

   !> Gradients with the shapes of what they belong to
   subroutine allocate_gradients(self, moved, error)
      !> The network
      class(layers_type), intent(inout) :: self
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> No memory on the device
      type(error_type), allocatable, intent(out) :: error
      integer :: i, extent(4)
      moved = .false.
      if (self%keep_activations /= keep_needed) call resize(self%backend, self%input%extent, self%dtype, &
         & self%input_gradient, moved, error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         ! The gradient of the loss itself has no output to take the place of: that is kept
         if (self%in_place() .and. i < size(self%layers)) cycle
         ! A fused convolution has no output, but the ReLU after it has one of the same shape
         extent = self%layers(merge(i + 1, i, self%fused(i)))%output%extent
         call resize(self%backend, extent, self%dtype, self%layers(i)%output_gradient, moved, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_gradients

   !> Give the tensors of all layers back to the device
   subroutine release_tensors(self)
      !> The network
      class(layers_type), intent(inout) :: self
      integer :: i
      if (.not. allocated(self%layers)) return
      do i = 1, size(self%layers)
         call self%backend%release(self%layers(i)%output)
         call self%backend%release(self%layers(i)%output_gradient)
      end do
   end subroutine release_tensors

end module cnn_model_tensors
