! SPDX-License-Identifier: MIT
!> The layers of a network with their tensors, and which convolutions go together: those with only fused ReLUs between
!> them are a fused sequence, which a device computes as it likes.
module cnn_model_layers
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_none
   use cnn_core_tensor, only : tensor_type
   use cnn_model_network, only : keep_all, keep_needed, network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_operations_attributes, only : attributes_type
   implicit none
   private

   type, public :: layer_type
      character(len=:), allocatable :: name
      !> A convolution, with its geometry and its weights' extents (s, r, c/groups, k); else a ReLU
      logical :: is_convolution = .false., has_bias = .false.
      type(conv_type) :: conv
      integer :: weight_extent(4) = 0
      !> Its hyperparameters, as they were given
      type(attributes_type) :: attributes
      type(parameter_type) :: weight, bias
      !> What the layer gives, and the gradient of the loss with respect to it
      type(tensor_type) :: output, output_gradient
      !> The element type of the output in memory, and whether only the device can read it: see `find_storage_format` of
      !> cnn_core_backend
      integer :: storage_dtype = dtype_none
      logical :: opaque = .false.
   end type layer_type

   type, extends(network_type), abstract, public :: layers_type
      type(layer_type), allocatable :: layers(:)
   contains
      procedure :: output, input_of
      procedure :: fused, relu_follows
      procedure :: sequence_steps, sequence_start, sequence_end, find_sequence
      procedure :: output_extents
      procedure :: in_place
   end type layers_type

contains

   !> The output of the last layer
   type(tensor_type) function output(self)
      !> The network
      class(layers_type), intent(in) :: self
      output = self%layers(size(self%layers))%output
   end function output

   !> The input of layer i
   type(tensor_type) function input_of(self, i)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the layer, from 1
      integer, intent(in) :: i
      input_of = self%input
      if (i > 1) input_of = self%layers(i - 1)%output
   end function input_of

   !> Whether layer i is a convolution that is computed with the ReLU after it
   pure logical function fused(self, i)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the layer, from 1
      integer, intent(in) :: i
      fused = .false.
      if (self%keep_activations == keep_all .or. i < 1 .or. i >= size(self%layers)) return
      fused = self%layers(i)%is_convolution .and. self%relu_follows(i)
   end function fused

   !> Whether the layer after layer i is a ReLU
   pure logical function relu_follows(self, i)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the layer, from 1
      integer, intent(in) :: i
      relu_follows = .false.
      if (i < size(self%layers)) relu_follows = .not. self%layers(i + 1)%is_convolution
   end function relu_follows

   !> The first convolution of which the input of convolution `last` comes through fused ReLUs only
   pure integer function sequence_start(self, last)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the last convolution's layer
      integer, intent(in) :: last
      sequence_start = last
      do while (sequence_start > 2)
         if (.not. self%fused(sequence_start - 2)) return
         sequence_start = sequence_start - 2
      end do
   end function sequence_start

   !> The last convolution that the output of convolution `first` reaches through fused ReLUs only
   pure integer function sequence_end(self, first)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the first convolution's layer, from 1
      integer, intent(in) :: first
      sequence_end = first
      do while (self%fused(sequence_end) .and. sequence_end + 2 <= size(self%layers))
         if (.not. self%layers(sequence_end + 2)%is_convolution) return
         sequence_end = sequence_end + 2
      end do
   end function sequence_end

   !> Convolutions first, first + 2, ... last with the ReLUs that are fused with them
   function sequence_steps(self, first, last) result(steps)
      !> The network
      class(layers_type), intent(in) :: self
      !> Number of the first convolution's layer, from 1
      integer, intent(in) :: first
      !> Number of the last convolution's layer
      integer, intent(in) :: last
      !> The convolutions, in their order
      type(conv_step_type) :: steps((last - first)/2 + 1)
      integer :: i
      do i = first, last, 2
         associate (layer => self%layers(i), step => steps((i - first)/2 + 1))
            step%conv = layer%conv
            step%relu = self%fused(i)
            step%keeps_gradient = any(self%layers(:i - 1)%is_convolution)
            step%opaque = self%layers(i)%opaque
            step%x = self%input_of(i)
            step%y = self%layers(merge(i + 1, i, step%relu))%output
            step%w = layer%weight%value
            step%bias = layer%bias%value
            step%dw = layer%weight%gradient
            step%db = layer%bias%gradient
         end associate
      end do
   end function sequence_steps

   !> The steps of a fused sequence before there are tensors, whose extents follow from the input's; and the form in
   !> which what lies between them is kept
   subroutine find_sequence(self, first, last, extents, steps, error)
      !> The network
      class(layers_type), intent(inout) :: self
      !> Number of the first convolution's layer, from 1
      integer, intent(in) :: first
      !> Number of the last convolution's layer
      integer, intent(in) :: last
      !> Extents of the input (0) and of all outputs, see `output_extents`
      integer, intent(in) :: extents(:, 0:)
      !> The convolutions, with extents and element types but no addresses
      type(conv_step_type), allocatable, intent(out) :: steps(:)
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      integer :: i, dtype
      logical :: opaque

      steps = self%sequence_steps(first, last)
      do i = 1, size(steps)
         steps(i)%x%dtype = self%dtype
         steps(i)%x%extent = extents(:, first + 2*i - 3)
         steps(i)%y%dtype = self%dtype
         steps(i)%y%extent = extents(:, first + 2*i - 2)
      end do
      steps%opaque = .false.
      if (self%keep_activations /= keep_needed .or. size(steps) == 1) return
      call self%backend%find_storage_format(steps, dtype, opaque, error)
      if (allocated(error)) return
      steps%opaque = opaque
      steps(2:)%x%dtype = dtype
      steps(:size(steps) - 1)%y%dtype = dtype
   end subroutine find_sequence

   !> Extents of the input (0) and of the outputs of all layers
   subroutine output_extents(self, extent, extents, error)
      !> The network
      class(layers_type), intent(in) :: self
      !> (w, h, c, n) of the input
      integer, intent(in) :: extent(4)
      !> (w, h, c, n) of the input (0) and of the outputs of all layers
      integer, intent(out) :: extents(:, 0:)
      !> Layer that the input does not fit, or that leaves nothing of it
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      extents(:, 0) = extent
      do i = 1, size(self%layers)
         extents(:, i) = extents(:, i - 1)
         if (self%layers(i)%is_convolution) call self%layers(i)%conv%output_extent(extents(:, i - 1), &
            & self%layers(i)%weight_extent, extents(:, i), error)
         if (.not. allocated(error)) cycle
         error%message = "layer "//self%layers(i)%name//": "//error%message
         return
      end do
   end subroutine output_extents

   !> Whether the backward pass takes the memory of outputs
   pure logical function in_place(self)
      !> The network
      class(layers_type), intent(in) :: self
      in_place = self%keep_activations == keep_needed .and. self%backend%works_in_place
   end function in_place

end module cnn_model_layers
