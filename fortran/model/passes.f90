! SPDX-License-Identifier: MIT
!> The two passes through a network: forward to all outputs, backward from the gradient of the loss to all others.
module cnn_model_passes
   use cnn_core_backend, only : backend_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : tensor_type
   use cnn_model_layers, only : layer_type, layers_type
   implicit none
   private

   public :: find_outputs, find_gradients, find_gradients_in_place

contains

   !> Outputs of all layers
   subroutine find_outputs(self, error)
      !> The network, with its input and places for its outputs
      class(layers_type), intent(inout) :: self
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      integer :: i, last

      i = 1
      do while (i <= size(self%layers))
         if (self%layers(i)%is_convolution) then
            last = self%sequence_end(i)
            call self%backend%forward_sequence(self%sequence_steps(i, last), error)
            i = last
         else
            call self%backend%relu_forward(self%input_of(i), self%layers(i)%output, error)
         end if
         if (allocated(error)) return
         i = i + merge(2, 1, self%fused(i))
      end do
   end subroutine find_outputs

   !> Gradients of weights, biases, every layer's output and the input
   subroutine find_gradients(self, error)
      !> The network, after forward pass and loss
      class(layers_type), intent(in) :: self
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, dx, db
      integer :: i

      do i = size(self%layers), 1, -1
         x = self%input
         dx = self%input_gradient
         db = tensor_type()
         if (i > 1) then
            x = self%layers(i - 1)%output
            dx = self%layers(i - 1)%output_gradient
            ! The bias gradient of a convolution is a sum over what the ReLU after it passes on: one pass for both
            if (.not. self%layers(i)%is_convolution) db = self%layers(i - 1)%bias%gradient
            if (self%fused(i - 1)) x = self%layers(i)%output
         end if
         if (self%layers(i)%is_convolution) then
            call conv_backward(self%backend, self%layers(i), x, dx, .not. self%relu_follows(i), error)
         else if (dx%is_allocated()) then
            call self%backend%relu_backward(x, self%layers(i)%output_gradient, dx, db, error)
         end if
         if (allocated(error)) return
      end do
   end subroutine find_gradients

   !> From the gradient of a convolution's output to those of its parameters and of its input x
   subroutine conv_backward(backend, layer, x, dx, with_bias, error)
      !> The device
      class(backend_type), intent(in) :: backend
      !> The convolution, with the gradient of its output
      type(layer_type), intent(in) :: layer
      !> Input (w, h, c, n) of the convolution
      type(tensor_type), intent(in) :: x
      !> Place for its gradient; none where nobody needs it
      type(tensor_type), intent(in) :: dx
      !> Whether the gradient of the bias is computed as well
      logical, intent(in) :: with_bias
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error

      call backend%conv_backward_filter(layer%conv, x, layer%output_gradient, layer%weight%gradient, error)
      if (allocated(error)) return
      if (layer%has_bias .and. with_bias) then
         call backend%conv_backward_bias(layer%output_gradient, layer%bias%gradient, error)
         if (allocated(error)) return
      end if
      if (.not. dx%is_allocated()) return
      call backend%conv_backward_data(layer%conv, layer%weight%value, layer%output_gradient, dx, error)
   end subroutine conv_backward

   !> Gradients of weights and biases, with that of each inner layer's output in the memory of an output that is no
   !> longer needed: outputs of inner layers are gone then, also after an error
   subroutine find_gradients_in_place(self, error)
      !> The network, after forward pass and loss
      class(layers_type), intent(inout) :: self
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dy, db
      integer :: i, first

      dy = self%layers(size(self%layers))%output_gradient
      i = size(self%layers)
      ! Below the first convolution there is nothing to learn
      do while (any(self%layers(:i)%is_convolution))
         if (self%layers(i)%is_convolution) then
            first = self%sequence_start(i)
            call sequence_in_place(self, first, i, dy, error)
            i = first
         else if (i == size(self%layers) .or. self%relu_follows(i)) then
            ! A ReLU before a convolution is part of that convolution's gradient
            db = tensor_type()
            if (i > 1) db = self%layers(i - 1)%bias%gradient
            call self%backend%relu_backward(self%layers(i)%output, dy, dy, db, error)
         end if
         if (allocated(error)) return
         i = i - 1
      end do
   end subroutine find_gradients_in_place

   !> Gradients of the parameters of convolutions first, first + 2, ... last from that of the output of the last, dy; dy
   !> becomes the gradient of the output of the layer before them, or before the ReLU before it
   subroutine sequence_in_place(self, first, last, dy, error)
      !> The network
      class(layers_type), intent(inout) :: self
      !> Number of the first convolution's layer, from 1
      integer, intent(in) :: first
      !> Number of the last convolution's layer
      integer, intent(in) :: last
      !> Gradient with respect to the output of the last; then with respect to that of the layer before the first
      type(tensor_type), intent(inout) :: dy
      !> Error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, db
      type(conv_step_type) :: steps((last - first)/2 + 1)

      steps = self%sequence_steps(first, last)
      if (self%layers(last)%has_bias .and. .not. self%relu_follows(last)) then
         call self%backend%conv_backward_bias(dy, self%layers(last)%bias%gradient, error)
         if (allocated(error)) return
      end if
      call self%backend%backward_sequence(steps, dy, error)
      if (allocated(error) .or. .not. steps(1)%keeps_gradient) return
      if (last > first) dy = self%layers(first + 1)%output
      x = self%layers(first - 1)%output
      associate (layer => self%layers(first))
         if (self%layers(first - 1)%is_convolution) then
            call self%backend%conv_backward_data(layer%conv, layer%weight%value, dy, x, error)
         else
            ! No bias gradient: a convolution before that ReLU would be the first of this sequence
            db = tensor_type()
            call self%backend%conv_backward_relu(layer%conv, layer%weight%value, dy, x, db, error)
         end if
      end associate
      dy = x
   end subroutine sequence_in_place

end module cnn_model_passes
