! SPDX-License-Identifier: MIT
!> A chain of convolutions and ReLUs with the mean squared error as a network.
!>
!> Memory.  With `keep_activations` other than `keep_all` some outputs do not exist, or not after the backward pass;
!>          see cnn_model_layers.
module cnn_model_chain
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_model_description, only : description_type, input_name
   use cnn_model_layers, only : layer_type, layers_type
   use cnn_model_network, only : layer_view_type
   use cnn_model_parameters, only : parameter_type
   use cnn_model_passes, only : find_all_gradients => find_gradients, find_all_outputs => find_outputs, &
      & find_gradients_in_place
   use cnn_model_tensors, only : allocate_gradients, allocate_outputs, release_tensors
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operation_type, parameter_shape_type
   use cnn_operations_products, only : conv2d_type
   use cnn_operations_shape, only : shape_of
   implicit none
   private

   type, extends(layers_type), public :: chain_type
      !> The loss is a mean over all elements, else their sum
      logical, private :: mean = .true.
   contains
      procedure :: build
      procedure :: find_outputs
      procedure :: find_loss
      procedure :: place_output_gradient
      procedure :: find_gradients
      procedure :: layer_count
      procedure :: view
      procedure :: find_criterion
      final :: destroy
   end type chain_type

contains

   !> The layers of a description with undefined weights
   subroutine build(self, description, error)
      !> A network with a backend and an element type, of which else at most `keep_activations` has been set
      class(chain_type), intent(inout) :: self
      !> Of a chain
      type(description_type), intent(in) :: description
      !> Layers that do not fit together, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      self%mean = description%criterion%mean
      allocate (self%layers(size(description%nodes)))
      do i = 1, size(self%layers)
         call set_layer(description%nodes(i)%operation, self%layers(i))
      end do
      call check_channels(self%layers, error)
      if (.not. allocated(error)) call allocate_parameters(self, error)
   end subroutine build

   !> A layer without tensors
   subroutine set_layer(operation, layer)
      !> A convolution or a ReLU
      class(operation_type), intent(in) :: operation
      !> The layer
      type(layer_type), intent(inout) :: layer
      layer%name = operation%name
      layer%attributes = operation%attributes
      select type (operation)
       type is (conv2d_type)
         layer%is_convolution = .true.
         layer%conv = operation%conv
         layer%weight_extent = operation%weight_extent
         layer%has_bias = operation%has_bias
      end select
   end subroutine set_layer

   !> The channels of each convolution are those that the one before it gives
   subroutine check_channels(layers, error)
      !> In the order in which they are computed
      type(layer_type), intent(in) :: layers(:)
      !> Two layers that do not fit together
      type(error_type), allocatable, intent(out) :: error
      integer :: i, given, expected
      given = 0
      do i = 1, size(layers)
         if (.not. layers(i)%is_convolution) cycle
         expected = layers(i)%weight_extent(3)*layers(i)%conv%groups
         if (given > 0 .and. given /= expected) then
            call fail(error, "model: layer "//layers(i)%name//" has in_channels "//to_text(expected)// &
               & ", but the layer before it gives "//to_text(given))
            return
         end if
         given = layers(i)%weight_extent(4)
      end do
   end subroutine check_channels

   !> A weight and perhaps a bias for each convolution
   subroutine allocate_parameters(self, error)
      !> The network, with its layers
      class(chain_type), intent(inout) :: self
      !> No memory on the device
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type), allocatable :: found(:)
      integer, allocatable :: extents(:, :)
      integer :: i, n

      allocate (extents(4, 2*size(self%layers)))
      n = 0
      do i = 1, size(self%layers)
         if (.not. self%layers(i)%is_convolution) cycle
         n = n + 1
         extents(:, n) = self%layers(i)%weight_extent
         if (.not. self%layers(i)%has_bias) cycle
         n = n + 1
         extents(:, n) = [self%layers(i)%weight_extent(4), 1, 1, 1]
      end do
      allocate (found(n))
      call self%parameters%build(self%backend, self%dtype, extents(:, :n), found, error)
      if (allocated(error)) return
      n = 0
      do i = 1, size(self%layers)
         if (.not. self%layers(i)%is_convolution) cycle
         n = n + 1
         self%layers(i)%weight = found(n)
         if (.not. self%layers(i)%has_bias) cycle
         n = n + 1
         self%layers(i)%bias = found(n)
      end do
   end subroutine allocate_parameters

   subroutine find_outputs(self, moved, error)
      !> The chain, with its input
      class(chain_type), intent(inout) :: self
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> Input that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      moved = .false.
      if (self%input_rank /= 4) then
         call fail(error, "input: "//to_text(self%input_rank)//" dimensions, expected 4")
         return
      end if
      call allocate_outputs(self, self%input%extent, moved, error)
      if (allocated(error)) return
      call find_all_outputs(self, error)
   end subroutine find_outputs

   !> Mean or sum of (output - target)**2, and its gradient with respect to the output
   subroutine find_loss(self, target, moved, error)
      !> The chain, after its forward pass
      class(chain_type), intent(inout) :: self
      !> What the output should be
      type(tensor_type), intent(in) :: target
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: y
      real(dp) :: scale
      call allocate_gradients(self, moved, error)
      if (allocated(error)) return
      y = self%output()
      scale = 1.0_dp
      if (self%mean) scale = 1.0_dp/real(self%in_batch(y%count()), dp)
      call self%backend%mse(y, target, scale, self%layers(size(self%layers))%output_gradient, error)
   end subroutine find_loss

   !> A gradient with respect to the output that is no loss's
   subroutine place_output_gradient(self, dy, moved, error)
      !> The chain, after its forward pass
      class(chain_type), intent(inout) :: self
      !> Of the output's shape; is copied
      type(tensor_type), intent(in) :: dy
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> No memory, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call allocate_gradients(self, moved, error)
      if (.not. allocated(error)) call self%backend%convert(dy, self%layers(size(self%layers))%output_gradient, error)
   end subroutine place_output_gradient

   subroutine find_gradients(self, error)
      !> The chain, with the gradient of the loss
      class(chain_type), intent(inout) :: self
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      if (self%in_place()) then
         call find_gradients_in_place(self, error)
      else
         call find_all_gradients(self, error)
      end if
   end subroutine find_gradients

   pure integer function layer_count(self)
      !> The chain
      class(chain_type), intent(in) :: self
      layer_count = size(self%layers)
   end function layer_count

   subroutine find_criterion(self, criterion)
      !> The chain
      class(chain_type), intent(in) :: self
      !> Its loss
      type(criterion_type), intent(out) :: criterion
      criterion%kind = "mse"
      allocate (criterion%attributes%items(0))
      criterion%mean = self%mean
   end subroutine find_criterion

   !> What there is of a layer
   subroutine view(self, i, layer)
      !> The chain
      class(chain_type), intent(in) :: self
      !> Number of the layer, from 1
      integer, intent(in) :: i
      !> Tensors of the chain, not copies
      type(layer_view_type), intent(out) :: layer
      associate (own => self%layers(i))
         layer%name = own%name
         layer%kind = "relu"
         if (own%is_convolution) layer%kind = "conv2d"
         layer%inputs = input_name
         if (i > 1) layer%inputs = self%layers(i - 1)%name
         layer%attributes = own%attributes
         layer%output = own%output
         layer%output_gradient = own%output_gradient
         if (own%opaque) layer%hidden_because = "the device keeps that of "//own%name//" in a form of its own, "// &
            & "expected "//self%layers(size(self%layers))%name//", or a network with keep_activations=True"
         allocate (layer%state(0), layer%state_shapes(0))
         if (.not. own%is_convolution) then
            allocate (layer%parameters(0), layer%parameter_shapes(0))
         else if (own%has_bias) then
            layer%parameters = [own%weight, own%bias]
            layer%parameter_shapes = [parameter_shape_type("weight", shape_of(own%weight_extent)), &
               & parameter_shape_type("bias", shape_of([own%weight_extent(4)]))]
         else
            layer%parameters = [own%weight]
            layer%parameter_shapes = [parameter_shape_type("weight", shape_of(own%weight_extent))]
         end if
      end associate
   end subroutine view

   !> Give everything back to the device
   subroutine destroy(self)
      !> The chain
      type(chain_type), intent(inout) :: self
      if (.not. allocated(self%backend)) return
      call self%close()
      call release_tensors(self)
   end subroutine destroy

end module cnn_model_chain
