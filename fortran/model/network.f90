! SPDX-License-Identifier: MIT
!> A chain of layers with its loss and optimiser: forward, loss, backward, update.
!>
!> Written once for every device and element type: all arithmetic is the backend's.
!> Order.   forward, then compute_loss, then backward, then update; `step` does all four. A call out
!>          of order is an error.
!> Memory.  Weights and their gradients are allocated by `build` and keep their address; all weights lie in
!>          one piece of memory, and so do gradients and momenta: the update is one call. Outputs and
!>          their gradients follow the shape of the input. A network is not copied by assignment.
module cnn_model_network
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, dtype_name, i8
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : tensor_type
   use cnn_devices, only : open_device
   use cnn_model_description, only : description_type, read_description
   use cnn_model_layers, only : layers_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_model_tensors, only : release_tensors
   implicit none
   private

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
      !> Whether they are there, and whether a step is at work on them
      logical :: is_fed = .false., is_used = .false.
   end type batch_type

   !> The layers, and what training them needs
   type, extends(layers_type), public :: network_type
      type(description_type) :: description
      !> Which of them are frozen, and their update; the tensors are those of the layers
      type(parameters_type) :: parameters
      type(capture_type), private :: capture
      type(batch_type), private :: next
      !> Updates so far: the number of the next step, from 0
      integer(i8) :: steps_done = 0_i8
      !> Whether there has been a loss that can be read, and whether it is that of a step that nobody looked at
      logical, private :: has_loss = .false., unseen = .false.
      integer, private :: stage = stage_built
   contains
      procedure :: build
      procedure :: forward
      procedure :: compute_loss
      procedure :: backward
      procedure :: update
      procedure :: feed, step, step_fed, read_loss, is_captured
      procedure, private :: queue_loss, outputs_released
      final :: destroy
   end type network_type

   interface
      !> Outputs of all layers for the input x(w,h,c,n)
      module subroutine forward(self, x, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Input (w, h, c, n), in the network's memory; it must stay alive until `backward`
         type(tensor_type), intent(in) :: x
         !> Input that does not fit, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine forward

      !> Mean or sum of (output - target)**2, and its gradient with respect to the output
      module subroutine compute_loss(self, target, loss, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> Mean or sum, as the description says
         real(dp), intent(out) :: loss
         !> Call out of order, target that does not fit, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine compute_loss

      !> `compute_loss` without waiting for its value
      module subroutine queue_loss(self, target, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> Call out of order, target that does not fit, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine queue_loss

      !> Gradients of weights, biases, every layer's output and the input
      module subroutine backward(self, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Call out of order, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine backward

      !> One SGD step on all parameters that are not frozen with the gradients of the last `backward`
      module subroutine update(self, sgd, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Settings of the optimizer
         type(sgd_type), intent(in) :: sgd
         !> Unusable setting, call out of order, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine update

      !> forward, loss, backward, update. A loss that is looked at and is NaN or infinite is an error, and there is no
      !> update then; where looking does not wait for the device it is always looked at
      module subroutine step(self, x, target, sgd, read, loss, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Input (w, h, c, n), in the network's memory
         type(tensor_type), intent(in) :: x
         !> What the output should be, in the network's memory
         type(tensor_type), intent(in) :: target
         !> Settings of the optimizer
         type(sgd_type), intent(in) :: sgd
         !> Look at the loss, which waits for the device before the update
         logical, intent(in) :: read
         !> Of the weights before the update; 0 where it was not looked at
         real(dp), intent(out) :: loss
         !> Tensor or setting that does not fit, a loss that is not finite, or an error of the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine step

      !> Input and target of the next `step_fed`, from host memory, which is free to change on return; what is queued on
      !> the device goes on meanwhile
      module subroutine feed(self, input, target, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Input of the next step (w, h, c, n), *host*
         type(tensor_type), intent(in) :: input
         !> What its output should be, *host*
         type(tensor_type), intent(in) :: target
         !> No memory on the device, or an error of the copy
         type(error_type), allocatable, intent(out) :: error
      end subroutine feed

      !> `step` with the last `feed`, which it uses up
      module subroutine step_fed(self, sgd, read, loss, error)
         implicit none
         !> The network
         class(network_type), intent(inout) :: self
         !> Settings of the optimizer
         type(sgd_type), intent(in) :: sgd
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
         !> The network
         class(network_type), intent(inout) :: self
         !> Loss of the weights before the update; 0 where there is none
         real(dp), intent(out) :: loss
         !> No loss yet, or one that is not finite and nobody has looked at before
         type(error_type), allocatable, intent(out) :: error
      end subroutine read_loss
   end interface

contains

   !> A network with undefined weights from its description (JSON text)
   subroutine build(self, text, dtype, device, error)
      !> A network of which at most `keep_activations` has been set
      class(network_type), intent(inout) :: self
      !> Description of the model, JSON
      character(len=*), intent(in) :: text
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Unknown device, damaged description, other element type, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer :: i

      call open_device(device, self%backend, error)
      if (allocated(error)) return
      call read_description(text, self%description, error)
      if (allocated(error)) return
      if (dtype /= dtype_float32 .and. dtype /= dtype_float64) then
         call fail(error, "network: "//dtype_name(dtype)//", expected float32 or float64")
         return
      end if
      self%dtype = dtype
      allocate (self%layers(size(self%description%layers)))
      do i = 1, size(self%layers)
         self%layers(i)%is = self%description%layers(i)
      end do
      call allocate_parameters(self, error)
   end subroutine build

   subroutine allocate_parameters(self, error)
      !> The network, with its layers
      class(network_type), intent(inout) :: self
      !> No memory on the device
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type) :: weights(size(self%layers)), biases(size(self%layers))
      call self%parameters%build(self%backend, self%dtype, self%description%layers, weights, biases, error)
      self%layers%weight = weights
      self%layers%bias = biases
   end subroutine allocate_parameters

   !> Whether `backward` has taken the memory of outputs
   pure logical function outputs_released(self)
      !> The network
      class(network_type), intent(in) :: self
      outputs_released = self%in_place() .and. self%stage == stage_backward
   end function outputs_released

   !> Whether the last step was the replay of a captured one, and the next of its shapes will be
   pure logical function is_captured(self)
      !> The network
      class(network_type), intent(in) :: self
      is_captured = self%capture%state == capture_made
   end function is_captured

   !> Give everything back to the device
   subroutine destroy(self)
      !> The network
      type(network_type), intent(inout) :: self
      if (.not. allocated(self%backend)) return
      call self%backend%close()
      call self%backend%release(self%next%input)
      call self%backend%release(self%next%target)
      call self%backend%release(self%capture%input)
      call self%backend%release(self%capture%target)
      call self%parameters%release(self%backend)
      call release_tensors(self)
   end subroutine destroy

end module cnn_model_network
