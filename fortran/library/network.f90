! SPDX-License-Identifier: MIT
!> Networks on the caller's arrays.
!>
!> Arrays.   Of `real(sp)` in a network of float32, of `real(dp)` in one of float64, of one to eight dimensions: images
!>           are x(w, h, c, n), the bytes of torch's (n, c, h, w), features x(k, n). In host memory they are read where
!>           they are; what has gaps is copied, and copied back. For arrays on a GPU see `device_array`.
!> Errors.   Every call may give one in its last argument. What is wrong with a layer is said by `build`.
!> Copies.   `a = b` makes a copy that learns by itself. What a network has is given back when it goes out of scope.
!> Threads.  Several threads may work at once, each with networks of its own; on one network only calls that leave it as
!>           it is.
!> Traps.    No call ends at a floating-point trap of the caller's, or leaves a flag.
module cnn_library_network
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, sp
   use cnn_library_array_network, only : array_network_type, assign_network
   use cnn_library_arrays, only : array_type, give_back, take
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   type, extends(array_network_type), public :: network_type
   contains
      !> A copy that learns by itself. Not of the type that this one extends: gfortran would not find it for components
      generic, public :: assignment(=) => assign
      !> y of x
      generic, public :: forward => forward_sp, forward_dp
      !> The loss of x and target
      generic, public :: evaluate => evaluate_sp, evaluate_dp
      !> A step of training
      generic, public :: step => step_sp, step_dp
      !> A step without its update
      generic, public :: compute_gradients => compute_gradients_sp, compute_gradients_dp
      !> A copy of the gradients of all parameters in one vector, and what `update` takes in their place
      generic, public :: get_gradients => get_gradients_sp, get_gradients_dp
      generic, public :: set_gradients => set_gradients_sp, set_gradients_dp
      !> Gradients of sum(dy*y), as an adjoint needs them
      generic, public :: pull_back => pull_back_sp, pull_back_dp
      !> Copies of a parameter or of what a layer keeps, of an output, of a gradient
      generic, public :: get => get_sp, get_dp
      generic, public :: get_output => get_output_sp, get_output_dp
      generic, public :: get_gradient => get_gradient_sp, get_gradient_dp
      !> Values for a parameter, or for what a layer keeps
      generic, public :: set => set_sp, set_dp
      procedure, private :: assign
      procedure, private :: forward_sp, forward_dp, evaluate_sp, evaluate_dp, step_sp, step_dp
      procedure, private :: pull_back_sp, pull_back_dp, get_sp, get_dp, get_output_sp, get_output_dp
      procedure, private :: get_gradient_sp, get_gradient_dp, set_sp, set_dp
      procedure, private :: compute_gradients_sp, compute_gradients_dp
      procedure, private :: get_gradients_sp, get_gradients_dp, set_gradients_sp, set_gradients_dp
   end type network_type

contains

   impure elemental subroutine assign(self, other)
      !> Becomes the copy; what it was before is gone. Where there is no memory for it, its calls say so
      class(network_type), intent(inout) :: self
      !> Copied
      class(network_type), intent(in) :: other
      call assign_network(self, other)
   end subroutine assign

   subroutine forward_sp(self, x, y, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(sp), target, intent(in) :: x(..)
      !> Output, is overwritten
      real(sp), target, intent(inout) :: y(..)
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, y_
      call take(x, x_)
      call take(y, y_)
      call self%forward_array(x_, y_, error)
      call give_back(y_, y)
   end subroutine forward_sp

   subroutine forward_dp(self, x, y, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(dp), target, intent(in) :: x(..)
      !> Output, is overwritten
      real(dp), target, intent(inout) :: y(..)
      !> As of `forward_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, y_
      call take(x, x_)
      call take(y, y_)
      call self%forward_array(x_, y_, error)
      call give_back(y_, y)
   end subroutine forward_dp

   subroutine evaluate_sp(self, x, target, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(sp), target, intent(in) :: x(..)
      !> What the output should be
      real(sp), target, intent(in) :: target(..)
      !> The loss
      real(dp), intent(out) :: loss
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%evaluate_array(x_, target_, loss, error)
   end subroutine evaluate_sp

   subroutine evaluate_dp(self, x, target, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(dp), target, intent(in) :: x(..)
      !> What the output should be
      real(dp), target, intent(in) :: target(..)
      !> The loss
      real(dp), intent(out) :: loss
      !> As of `evaluate_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%evaluate_array(x_, target_, loss, error)
   end subroutine evaluate_dp

   subroutine step_sp(self, x, target, optimizer, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(sp), target, intent(in) :: x(..)
      !> What the output should be
      real(sp), target, intent(in) :: target(..)
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Of the parameters before the step
      real(dp), intent(out) :: loss
      !> An array that does not fit, a setting out of its range, a loss that is not finite (`error%diverged`; the
      !> parameters stay as they were), or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%step_array(x_, target_, optimizer, loss, error)
   end subroutine step_sp

   subroutine step_dp(self, x, target, optimizer, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(dp), target, intent(in) :: x(..)
      !> What the output should be
      real(dp), target, intent(in) :: target(..)
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Of the parameters before the step
      real(dp), intent(out) :: loss
      !> As of `step_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%step_array(x_, target_, optimizer, loss, error)
   end subroutine step_dp

   subroutine compute_gradients_sp(self, x, target, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(sp), target, intent(in) :: x(..)
      !> What the output should be
      real(sp), target, intent(in) :: target(..)
      !> Of the parameters as they are
      real(dp), intent(out) :: loss
      !> An array that does not fit, a loss that is not finite (`error%diverged`), or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%compute_gradients_array(x_, target_, loss, error)
   end subroutine compute_gradients_sp

   subroutine compute_gradients_dp(self, x, target, loss, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(dp), target, intent(in) :: x(..)
      !> What the output should be
      real(dp), target, intent(in) :: target(..)
      !> Of the parameters as they are
      real(dp), intent(out) :: loss
      !> As of `compute_gradients_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, target_
      call take(x, x_)
      call take(target, target_)
      call self%compute_gradients_array(x_, target_, loss, error)
   end subroutine compute_gradients_dp

   subroutine get_gradients_sp(self, values, error)
      !> The network, after `compute_gradients`, `step` or `pull_back`
      class(network_type), intent(inout) :: self
      !> `parameter_count()` numbers, one parameter after the other in the order of `names`; is overwritten
      real(sp), target, intent(inout) :: values(..)
      !> Another shape or kind, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_gradients_array(values_, error)
      call give_back(values_, values)
   end subroutine get_gradients_sp

   subroutine get_gradients_dp(self, values, error)
      !> The network, after `compute_gradients`, `step` or `pull_back`
      class(network_type), intent(inout) :: self
      !> `parameter_count()` numbers, one parameter after the other in the order of `names`; is overwritten
      real(dp), target, intent(inout) :: values(..)
      !> As of `get_gradients_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_gradients_array(values_, error)
      call give_back(values_, values)
   end subroutine get_gradients_dp

   subroutine set_gradients_sp(self, values, error)
      !> The network, after `compute_gradients` or `pull_back`
      class(network_type), intent(inout) :: self
      !> As of `get_gradients`; what `update` takes from now on
      real(sp), target, intent(in) :: values(..)
      !> Another shape or kind, no gradients before, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%set_gradients_array(values_, error)
   end subroutine set_gradients_sp

   subroutine set_gradients_dp(self, values, error)
      !> The network, after `compute_gradients` or `pull_back`
      class(network_type), intent(inout) :: self
      !> As of `get_gradients`; what `update` takes from now on
      real(dp), target, intent(in) :: values(..)
      !> As of `set_gradients_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%set_gradients_array(values_, error)
   end subroutine set_gradients_dp

   subroutine pull_back_sp(self, x, dy, dx, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(sp), target, intent(in) :: x(..)
      !> Gradient of what is wanted with respect to the output
      real(sp), target, intent(in) :: dy(..)
      !> Gradient with respect to the input, is overwritten; those of parameters: `get_gradient`
      real(sp), target, intent(inout) :: dx(..)
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, dy_, dx_
      call take(x, x_)
      call take(dy, dy_)
      call take(dx, dx_)
      call self%pull_back_array(x_, dy_, dx_, error)
      call give_back(dx_, dx)
   end subroutine pull_back_sp

   subroutine pull_back_dp(self, x, dy, dx, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> Input
      real(dp), target, intent(in) :: x(..)
      !> Gradient of what is wanted with respect to the output
      real(dp), target, intent(in) :: dy(..)
      !> Gradient with respect to the input, is overwritten; those of parameters: `get_gradient`
      real(dp), target, intent(inout) :: dx(..)
      !> As of `pull_back_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: x_, dy_, dx_
      call take(x, x_)
      call take(dy, dy_)
      call take(dx, dx_)
      call self%pull_back_array(x_, dy_, dx_, error)
      call give_back(dx_, dx)
   end subroutine pull_back_dp

   subroutine get_sp(self, name, values, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Is overwritten
      real(sp), target, intent(inout) :: values(..)
      !> No such name, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_array(name, values_, error)
      call give_back(values_, values)
   end subroutine get_sp

   subroutine get_dp(self, name, values, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Is overwritten
      real(dp), target, intent(inout) :: values(..)
      !> As of `get_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_array(name, values_, error)
      call give_back(values_, values)
   end subroutine get_dp

   subroutine get_output_sp(self, layer, values, error)
      !> The network, after `forward`
      class(network_type), intent(inout) :: self
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Is overwritten
      real(sp), target, intent(inout) :: values(..)
      !> No such layer, an output that is not kept, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_output_array(layer, values_, error)
      call give_back(values_, values)
   end subroutine get_output_sp

   subroutine get_output_dp(self, layer, values, error)
      !> The network, after `forward`
      class(network_type), intent(inout) :: self
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Is overwritten
      real(dp), target, intent(inout) :: values(..)
      !> As of `get_output_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_output_array(layer, values_, error)
      call give_back(values_, values)
   end subroutine get_output_dp

   subroutine get_gradient_sp(self, name, values, error)
      !> The network, after `step` or `pull_back`
      class(network_type), intent(inout) :: self
      !> layer.weight or layer.bias, layer for its output, input for the network's input
      character(len=*), intent(in) :: name
      !> Gradient with respect to that, is overwritten
      real(sp), target, intent(inout) :: values(..)
      !> No such name, a gradient that is not kept, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_gradient_array(name, values_, error)
      call give_back(values_, values)
   end subroutine get_gradient_sp

   subroutine get_gradient_dp(self, name, values, error)
      !> The network, after `step` or `pull_back`
      class(network_type), intent(inout) :: self
      !> layer.weight or layer.bias, layer for its output, input for the network's input
      character(len=*), intent(in) :: name
      !> Gradient with respect to that, is overwritten
      real(dp), target, intent(inout) :: values(..)
      !> As of `get_gradient_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%get_gradient_array(name, values_, error)
      call give_back(values_, values)
   end subroutine get_gradient_dp

   subroutine set_sp(self, name, values, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Its new values
      real(sp), target, intent(in) :: values(..)
      !> No such name, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%set_array(name, values_, error)
   end subroutine set_sp

   subroutine set_dp(self, name, values, error)
      !> The network
      class(network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Its new values
      real(dp), target, intent(in) :: values(..)
      !> As of `set_sp`
      type(error_type), allocatable, intent(out) :: error
      type(array_type), target :: values_
      call take(values, values_)
      call self%set_array(name, values_, error)
   end subroutine set_dp

end module cnn_library_network
