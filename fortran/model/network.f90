! SPDX-License-Identifier: MIT
!> What every network is: forward, loss, backward, update.
!>
!> Written once for every device and element type: all arithmetic is the backend's or an operation's.
!> Order.   forward, then compute_loss, then backward, then update; `step` does all four. A call out of order is an
!>          error. What the calls have in common is here; how outputs and gradients are found is the extension's.
!> Memory.  Parameters and their gradients are allocated when a network is built and keep their address; all of them
!>          lie in one piece of memory, and so do gradients and what the optimizer remembers: the update is one call.
!>          Outputs and their gradients follow the shape of the input. A network is not copied by assignment.
module cnn_model_network
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name, dtype_none, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : parameter_shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   !> What a network keeps of its activations. `keep_after_relu`: all, but a convolution computes the ReLU behind it,
   !> and its own output then does not exist. `keep_needed`: also only what training needs, so no gradient with respect
   !> to the input, and the backward pass puts gradients where outputs were
   integer, parameter, public :: keep_all = 0, keep_after_relu = 1, keep_needed = 2

   integer, parameter :: stage_built = 0, stage_forward = 1, stage_loss = 2, stage_backward = 3

   !> Nothing; a step has run since tensors were last allocated, so that one may be captured; one is captured
   integer, parameter :: capture_none = 0, capture_expected = 1, capture_made = 2

   !> Steps of the same shapes, which a device may capture as a graph and replay
   type :: capture_type
      !> Copies of input and target, at addresses that stay
      type(tensor_type) :: input, target
      integer :: state = capture_none
      !> Whether the capture has failed
      logical :: refused = .false.
   end type capture_type

   !> Input and target of the next step, fed from the host
   type :: batch_type
      type(tensor_type) :: input, target
      !> Dimensions of the input
      integer :: rank = 4
      !> Whether they are there, and whether a step is at work on them
      logical :: is_fed = .false., is_used = .false.
   end type batch_type

   !> What there is of a layer, by the names that exchange files have for it
   type, public :: layer_view_type
      character(len=:), allocatable :: name, kind
      !> Names of those whose outputs it takes, with commas between them
      character(len=:), allocatable :: inputs
      !> Its hyperparameters, as they were given
      type(attributes_type) :: attributes
      !> What the layer gives, and the gradient of the loss with respect to it; not allocated where they do not exist
      type(tensor_type) :: output, output_gradient
      !> Dimensions of the output
      integer :: rank = 4
      !> What it learns, with names and shapes
      type(parameter_type), allocatable :: parameters(:)
      type(parameter_shape_type), allocatable :: parameter_shapes(:)
      !> What it keeps from step to step and does not learn, with names and shapes; whether a forward pass changes it
      type(tensor_type), allocatable :: state(:)
      type(parameter_shape_type), allocatable :: state_shapes(:)
      logical :: changes_state = .false.
      !> Whether a forward pass takes a mask; see `set_mask`
      logical :: has_mask = .false.
      !> Why the output cannot be read, where it cannot
      character(len=:), allocatable :: hidden_because
   end type layer_view_type

   type, abstract, public :: network_type
      class(backend_type), allocatable :: backend
      integer :: dtype = dtype_none
      !> `keep_all`, `keep_after_relu` or `keep_needed`; set before `build`
      integer :: keep_activations = keep_all
      !> All that is learned: which of it is frozen, and its update
      type(parameters_type) :: parameters
      !> The caller's tensor of the last forward pass: it must stay alive until the backward pass
      type(tensor_type) :: input
      !> Names and shapes of several inputs that lie in it, as exchange files have them, where there are
      character(len=:), allocatable :: inputs
      !> Number of its dimensions
      integer :: input_rank = 4
      !> Images of the whole batch, where inputs are parts of it and a mean is over all of it; 0: the input is the batch
      integer :: batch_images = 0
      type(tensor_type) :: input_gradient
      !> Updates so far: the number of the next step, from 0
      integer(i8) :: steps_done = 0_i8
      type(capture_type), private :: capture
      type(batch_type), private :: next
      !> Whether there has been a loss that can be read, and whether it is that of a step that nobody looked at
      logical, private :: has_loss = .false., unseen = .false.
      !> Whether a backward pass has taken the memory of the last forward pass's outputs
      logical, private :: outputs_are_gone = .false.
      integer, private :: stage = stage_built
      !> Whether updates take gradients that are not finite, too: of steps that are to be judged
      logical :: takes_any_gradients = .false.
   contains
      procedure(find_outputs_), deferred :: find_outputs
      procedure(find_loss_), deferred :: find_loss
      procedure(place_output_gradient_), deferred :: place_output_gradient
      procedure(find_gradients_), deferred :: find_gradients
      procedure(output_), deferred :: output
      procedure(layer_count_), deferred :: layer_count
      procedure(view_), deferred :: view
      procedure(find_criterion_), deferred :: find_criterion
      procedure :: forward
      procedure :: compute_loss
      procedure :: take_output_gradient
      procedure :: backward
      procedure :: update
      procedure :: feed, step, step_fed, read_loss, is_captured, has_gradients
      procedure(fetch_loss_), deferred :: fetch_loss
      procedure(set_mask_), deferred :: set_mask
      procedure(switch_training_), deferred :: switch_training
      procedure :: in_place, is_released, set_training, forget_captured
      procedure :: close => close_network
      procedure, private :: queue_loss
   end type network_type

   abstract interface
      !> Outputs of all layers for `self%input`, which has been set
      subroutine find_outputs_(self, moved, error)
         import :: error_type, network_type
         implicit none
         class(network_type), intent(inout) :: self
         !> Whether a tensor has another address than before
         logical, intent(out) :: moved
         type(error_type), allocatable, intent(out) :: error
      end subroutine find_outputs_

      !> The loss, to be fetched by `fetch_loss`, and its gradient with respect to the output
      subroutine find_loss_(self, target, moved, error)
         import :: error_type, network_type, tensor_type
         implicit none
         class(network_type), intent(inout) :: self
         !> What the output should be, of its shape
         type(tensor_type), intent(in) :: target
         !> Whether a tensor has another address than before
         logical, intent(out) :: moved
         type(error_type), allocatable, intent(out) :: error
      end subroutine find_loss_

      !> A gradient with respect to the output that is no loss's
      subroutine place_output_gradient_(self, dy, moved, error)
         import :: error_type, network_type, tensor_type
         implicit none
         class(network_type), intent(inout) :: self
         !> Of the output's shape, in the network's memory; is copied
         type(tensor_type), intent(in) :: dy
         !> Whether a tensor has another address than before
         logical, intent(out) :: moved
         type(error_type), allocatable, intent(out) :: error
      end subroutine place_output_gradient_

      !> Gradients of all parameters, outputs and of the input
      subroutine find_gradients_(self, error)
         import :: error_type, network_type
         implicit none
         class(network_type), intent(inout) :: self
         type(error_type), allocatable, intent(out) :: error
      end subroutine find_gradients_

      !> The output of the last layer
      type(tensor_type) function output_(self)
         import :: network_type, tensor_type
         implicit none
         class(network_type), intent(in) :: self
      end function output_

      !> Its loss
      subroutine find_criterion_(self, criterion)
         import :: criterion_type, network_type
         implicit none
         class(network_type), intent(in) :: self
         !> Which one, with its settings
         type(criterion_type), intent(out) :: criterion
      end subroutine find_criterion_

      !> How many layers it has
      pure integer function layer_count_(self)
         import :: network_type
         implicit none
         class(network_type), intent(in) :: self
      end function layer_count_

      !> What there is of a layer
      subroutine view_(self, i, layer)
         import :: layer_view_type, network_type
         implicit none
         class(network_type), intent(in) :: self
         !> Number of the layer, from 1
         integer, intent(in) :: i
         !> Tensors of the network, not copies
         type(layer_view_type), intent(out) :: layer
      end subroutine view_

      !> The value of the last loss that was found; waits for the device
      subroutine fetch_loss_(self, loss, error)
         import :: dp, error_type, network_type
         implicit none
         class(network_type), intent(in) :: self
         !> Of all images
         real(dp), intent(out) :: loss
         type(error_type), allocatable, intent(out) :: error
      end subroutine fetch_loss_

      !> The mask that a layer takes in the next forward passes
      subroutine set_mask_(self, i, mask, error)
         import :: error_type, network_type, tensor_type
         implicit none
         class(network_type), intent(inout) :: self
         !> Number of the layer, from 1
         integer, intent(in) :: i
         !> 0 and 1, *host*; is copied
         type(tensor_type), intent(in) :: mask
         !> The layer takes none, or no memory
         type(error_type), allocatable, intent(out) :: error
      end subroutine set_mask_

      !> Let the operations compute as in training or as after it
      subroutine switch_training_(self, training)
         import :: network_type
         implicit none
         class(network_type), intent(inout) :: self
         !> In training
         logical, intent(in) :: training
      end subroutine switch_training_
   end interface

   interface
      !> Outputs of all layers for the input x(w,h,c,n)
      module subroutine forward(self, x, error, rank)
         implicit none
         class(network_type), intent(inout) :: self
         !> Input (w, h, c, n), in the network's memory; it must stay alive until `backward`
         type(tensor_type), intent(in) :: x
         type(error_type), allocatable, intent(out) :: error
         !> Number of the input's dimensions, 4 where it is not given
         integer, intent(in), optional :: rank
      end subroutine forward

      !> The loss, and its gradient with respect to the output
      module subroutine compute_loss(self, target, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> Of all images
         real(dp), intent(out) :: loss
         !> Call out of order, target that does not fit, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine compute_loss

      !> A gradient with respect to the output, in place of a loss's: `backward` then gives those of sum(dy*y)
      module subroutine take_output_gradient(self, dy, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> Of the output's shape, in the network's memory; is copied
         type(tensor_type), intent(in) :: dy
         !> Call out of order, another shape, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine take_output_gradient

      !> `compute_loss` without waiting for its value
      module subroutine queue_loss(self, target, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> Call out of order, target that does not fit, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine queue_loss

      !> Gradients of parameters, every layer's output and the input
      module subroutine backward(self, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> Call out of order, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine backward

      !> One step of the optimizer on all parameters that are not frozen with the gradients of the last `backward`
      module subroutine update(self, optimizer, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> With the learning rate of this step
         class(optimizer_type), intent(in) :: optimizer
         !> Unusable setting, call out of order, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine update

      !> forward, loss, backward, update. A loss that is looked at and is NaN or infinite is an error, and there is no
      !> update then; where looking does not wait for the device it is always looked at
      module subroutine step(self, x, target, optimizer, read, loss, error, rank)
         implicit none
         class(network_type), intent(inout) :: self
         !> Input (w, h, c, n), in the network's memory
         type(tensor_type), intent(in) :: x
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> With the learning rate of this step
         class(optimizer_type), intent(in) :: optimizer
         !> Look at the loss, which waits for the device before the update
         logical, intent(in) :: read
         !> Of the weights before the update; 0 where it was not looked at
         real(dp), intent(out) :: loss
         !> Tensor or setting that does not fit, a loss that is not finite, or an error of the device
         type(error_type), allocatable, intent(out) :: error
         !> Number of the input's dimensions, 4 where it is not given
         integer, intent(in), optional :: rank
      end subroutine step

      !> Input and target of the next `step_fed`, from host memory, which is free to change on return; what is queued on
      !> the device goes on meanwhile
      module subroutine feed(self, input, target, error, rank)
         implicit none
         class(network_type), intent(inout) :: self
         !> Input of the next step (w, h, c, n), *host*
         type(tensor_type), intent(in) :: input
         !> What its output should be, *host*
         type(tensor_type), intent(in) :: target
         !> No memory on the device, or an error of the copy
         type(error_type), allocatable, intent(out) :: error
         !> Number of the input's dimensions, 4 where it is not given
         integer, intent(in), optional :: rank
      end subroutine feed

      !> `step` with the last `feed`, which it uses up
      module subroutine step_fed(self, optimizer, read, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> With the learning rate of this step
         class(optimizer_type), intent(in) :: optimizer
         !> As of `step`
         logical, intent(in) :: read
         !> As of `step`
         real(dp), intent(out) :: loss
         !> No batch was fed, or as of `step`
         type(error_type), allocatable, intent(out) :: error
      end subroutine step_fed

      !> The loss of the last `compute_loss` or `step`, of the weights before the update; waits for the device. That of
      !> a step that nobody looked at is an error if it is NaN or infinite
      module subroutine read_loss(self, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         !> Loss of the weights before the update; 0 where there is none
         real(dp), intent(out) :: loss
         !> No loss yet, or one that is not finite and nobody has looked at before
         type(error_type), allocatable, intent(out) :: error
      end subroutine read_loss
   end interface

contains

   !> Compute as in training, or as it is done after it: by running statistics, and nothing is dropped. What was made
   !> for evaluation stays so
   subroutine set_training(self, training)
      class(network_type), intent(inout) :: self
      !> As it was made, else as after training
      logical, intent(in) :: training
      call self%switch_training(training)
      ! Outputs and a captured step are those of before
      self%stage = stage_built
      call self%forget_captured()
   end subroutine set_training

   !> The next step is run call by call, because what a captured one reads has another address, or computes otherwise
   subroutine forget_captured(self)
      class(network_type), intent(inout) :: self
      self%capture%state = capture_none
   end subroutine forget_captured

   !> Whether the backward pass takes the memory of outputs
   pure logical function in_place(self)
      class(network_type), intent(in) :: self
      in_place = self%keep_activations == keep_needed
   end function in_place

   !> Whether it has done so since the last forward pass
   pure logical function is_released(self)
      class(network_type), intent(in) :: self
      is_released = self%outputs_are_gone
   end function is_released

   !> Whether the last step was the replay of a captured one, and the next of its shapes will be
   pure logical function is_captured(self)
      class(network_type), intent(in) :: self
      is_captured = self%capture%state == capture_made
   end function is_captured

   !> Whether there are gradients that no update has taken yet
   pure logical function has_gradients(self)
      class(network_type), intent(in) :: self
      has_gradients = self%stage == stage_backward
   end function has_gradients

   !> Give everything back to the device, but what the layers have
   subroutine close_network(self)
      class(network_type), intent(inout) :: self
      call self%backend%close()
      call self%backend%release(self%next%input)
      call self%backend%release(self%next%target)
      call self%backend%release(self%capture%input)
      call self%backend%release(self%capture%target)
      call self%backend%release(self%input_gradient)
      call self%parameters%release(self%backend)
   end subroutine close_network

end module cnn_model_network
