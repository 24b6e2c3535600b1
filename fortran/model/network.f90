! SPDX-License-Identifier: MIT
!> A chain of layers with its loss and optimiser: forward, loss, backward, update.
!>
!> Written once for every device and element type: all arithmetic is the backend's.
!> Order.   forward, then compute_loss, then backward, then update; `step` does all four. A call out
!>          of order is an error.
!> Memory.  Weights and their gradients are allocated by `build` and keep their address; outputs and
!>          their gradients follow the shape of the input. A network is not copied by assignment.
module cnn_network
   use cnn_backend, only : backend_type
   use cnn_description, only : description_type, kind_conv2d, layer_description_type, read_description
   use cnn_devices, only : open_device
   use cnn_error, only : error_type, fail
   use cnn_kinds, only : dp, dtype_name, dtype_none
   use cnn_sgd, only : sgd_type
   use cnn_tensor, only : same_shape, shape_text, tensor_type
   implicit none
   private

   !> A learned tensor, its gradient and its momentum buffer
   type, public :: parameter_type
      type(tensor_type) :: value, gradient, velocity
   end type parameter_type

   type, public :: layer_type
      type(layer_description_type) :: is
      type(parameter_type) :: weight, bias
      !> What the layer gives, and the gradient of the loss with respect to it
      type(tensor_type) :: output, output_gradient
   end type layer_type

   integer, parameter :: stage_built = 0, stage_forward = 1, stage_loss = 2, stage_backward = 3

   type, public :: network_type
      type(description_type) :: description
      class(backend_type), allocatable :: backend
      type(layer_type), allocatable :: layers(:)
      integer :: dtype = dtype_none
      !> The caller's tensor of the last `forward`: it must stay alive until `backward`
      type(tensor_type) :: input
      type(tensor_type) :: input_gradient
      integer, private :: stage = stage_built
      logical, private :: has_velocity = .false.
   contains
      procedure :: build
      procedure :: forward
      procedure :: compute_loss
      procedure :: backward
      procedure :: update
      procedure :: step
      procedure :: output
      procedure, private :: allocate_outputs, allocate_gradients, allocate_velocity, resize
      final :: destroy
   end type network_type

contains

   !> A network with undefined weights from its description (JSON text)
   subroutine build(self, text, dtype, device, error)
      class(network_type), intent(inout) :: self
      character(len=*), intent(in) :: text, device
      integer, intent(in) :: dtype
      type(error_type), allocatable, intent(out) :: error
      integer :: i

      call open_device(device, self%backend, error)
      if (allocated(error)) return
      call read_description(text, self%description, error)
      if (allocated(error)) return
      self%dtype = dtype
      allocate (self%layers(size(self%description%layers)))
      do i = 1, size(self%layers)
         self%layers(i)%is = self%description%layers(i)
         if (self%layers(i)%is%kind /= kind_conv2d) cycle
         call allocate_parameter(self%backend, dtype, self%layers(i)%is%weight_extent, self%layers(i)%weight, error)
         if (allocated(error)) return
         if (.not. self%layers(i)%is%has_bias) cycle
         call allocate_parameter(self%backend, dtype, [self%layers(i)%is%weight_extent(4), 1, 1, 1], &
            & self%layers(i)%bias, error)
         if (allocated(error)) return
      end do
   end subroutine build

   !> Outputs of all layers for the input x(w,h,c,n)
   subroutine forward(self, x, error)
      class(network_type), intent(inout) :: self
      type(tensor_type), intent(in) :: x
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: from
      integer :: i

      if (x%dtype /= self%dtype) then
         call fail(error, "input: "//dtype_name(x%dtype)//", expected "//dtype_name(self%dtype))
         return
      end if
      self%stage = stage_built
      call self%allocate_outputs(x%extent, error)
      if (allocated(error)) return
      self%input = x
      from = x
      do i = 1, size(self%layers)
         associate (layer => self%layers(i))
            if (layer%is%kind == kind_conv2d) then
               call self%backend%conv_forward(layer%is%conv, from, layer%weight%value, layer%bias%value, &
                  & layer%output, error)
            else
               call self%backend%relu_forward(from, layer%output, error)
            end if
            if (allocated(error)) return
            from = layer%output
         end associate
      end do
      self%stage = stage_forward
   end subroutine forward

   !> The output of the last layer
   type(tensor_type) function output(self)
      class(network_type), intent(in) :: self
      output = self%layers(size(self%layers))%output
   end function output

   !> Mean or sum of (output - target)**2, and its gradient with respect to the output
   subroutine compute_loss(self, target, loss, error)
      class(network_type), intent(inout) :: self
      type(tensor_type), intent(in) :: target
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: y
      real(dp) :: scale

      loss = 0.0_dp
      if (self%stage < stage_forward) then
         call fail(error, "loss: no output yet, call forward first")
         return
      end if
      y = self%output()
      if (.not. same_shape(y, target)) then
         call fail(error, "target: "//dtype_name(target%dtype)//" "//shape_text(target%extent)// &
            & ", expected the output's "//dtype_name(y%dtype)//" "//shape_text(y%extent))
         return
      end if
      call self%allocate_gradients(error)
      if (allocated(error)) return
      scale = 1.0_dp
      if (self%description%mean) scale = 1.0_dp/real(y%count(), dp)
      call self%backend%mse(y, target, scale, loss, self%layers(size(self%layers))%output_gradient, error)
      if (allocated(error)) return
      self%stage = stage_loss
   end subroutine compute_loss

   !> Gradients of weights, biases, every layer's output and the input
   subroutine backward(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, dx
      integer :: i

      if (self%stage < stage_loss) then
         call fail(error, "backward: no loss yet, call forward and loss first")
         return
      end if
      do i = size(self%layers), 1, -1
         x = self%input
         dx = self%input_gradient
         if (i > 1) then
            x = self%layers(i - 1)%output
            dx = self%layers(i - 1)%output_gradient
         end if
         call layer_backward(self%backend, self%layers(i), x, dx, error)
         if (allocated(error)) return
      end do
      self%stage = stage_backward
   end subroutine backward

   !> One layer: from the gradient of its output to those of its parameters and of its input x
   subroutine layer_backward(backend, layer, x, dx, error)
      class(backend_type), intent(in) :: backend
      type(layer_type), intent(in) :: layer
      type(tensor_type), intent(in) :: x, dx
      type(error_type), allocatable, intent(out) :: error

      if (layer%is%kind /= kind_conv2d) then
         call backend%relu_backward(x, layer%output_gradient, dx, error)
         return
      end if
      call backend%conv_backward_filter(layer%is%conv, x, layer%output_gradient, layer%weight%gradient, error)
      if (allocated(error)) return
      if (layer%is%has_bias) call backend%conv_backward_bias(layer%output_gradient, layer%bias%gradient, error)
      if (allocated(error)) return
      call backend%conv_backward_data(layer%is%conv, layer%weight%value, layer%output_gradient, dx, error)
   end subroutine layer_backward

   !> One SGD step on all parameters with the gradients of the last `backward`
   subroutine update(self, sgd, error)
      class(network_type), intent(inout) :: self
      type(sgd_type), intent(in) :: sgd
      type(error_type), allocatable, intent(out) :: error
      logical :: first, with_momentum
      integer :: i

      call sgd%check(error)
      if (allocated(error)) return
      if (self%stage < stage_backward) then
         call fail(error, "update: no gradients yet, call forward, loss and backward first")
         return
      end if
      with_momentum = sgd%momentum > 0.0_dp
      first = .not. self%has_velocity
      if (with_momentum .and. first) call self%allocate_velocity(error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         call update_parameter(self%backend, sgd, first, with_momentum, self%layers(i)%weight, error)
         if (allocated(error)) return
         call update_parameter(self%backend, sgd, first, with_momentum, self%layers(i)%bias, error)
         if (allocated(error)) return
      end do
      self%has_velocity = self%has_velocity .or. with_momentum
      ! The outputs belong to the weights before this update
      self%stage = stage_built
   end subroutine update

   subroutine update_parameter(backend, sgd, first, with_momentum, parameter, error)
      class(backend_type), intent(in) :: backend
      type(sgd_type), intent(in) :: sgd
      logical, intent(in) :: first, with_momentum
      type(parameter_type), intent(in) :: parameter
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: velocity
      if (.not. parameter%value%is_allocated()) return
      if (with_momentum) velocity = parameter%velocity
      call backend%update(sgd, first, parameter%value, parameter%gradient, velocity, error)
   end subroutine update_parameter

   !> forward, loss, backward, update; `loss` is that of the weights before the update
   subroutine step(self, x, target, sgd, loss, error)
      class(network_type), intent(inout) :: self
      type(tensor_type), intent(in) :: x, target
      type(sgd_type), intent(in) :: sgd
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      loss = 0.0_dp
      call sgd%check(error)
      if (allocated(error)) return
      call self%forward(x, error)
      if (.not. allocated(error)) call self%compute_loss(target, loss, error)
      if (.not. allocated(error)) call self%backward(error)
      if (.not. allocated(error)) call self%update(sgd, error)
      ! After a failure nothing half done can be used: the caller may have dropped the input
      if (allocated(error)) self%stage = stage_built
   end subroutine step

   !> Outputs with the shapes that follow from the input's; kept when the shapes did not change
   subroutine allocate_outputs(self, extent, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: extent(4)
      type(error_type), allocatable, intent(out) :: error
      integer :: shapes(4, 0:size(self%layers)), i

      shapes(:, 0) = extent
      do i = 1, size(self%layers)
         shapes(:, i) = shapes(:, i - 1)
         if (self%layers(i)%is%kind == kind_conv2d) call self%layers(i)%is%conv%output_extent(shapes(:, i - 1), &
            & self%layers(i)%is%weight_extent, shapes(:, i), error)
         if (.not. allocated(error)) cycle
         error%message = "layer "//self%layers(i)%is%name//": "//error%message
         return
      end do
      do i = 1, size(self%layers)
         call self%resize(shapes(:, i), self%layers(i)%output, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_outputs

   !> Gradients with the shapes of what they belong to
   subroutine allocate_gradients(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call self%resize(self%input%extent, self%input_gradient, error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         call self%resize(self%layers(i)%output%extent, self%layers(i)%output_gradient, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_gradients

   subroutine allocate_velocity(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(self%layers)
         if (.not. self%layers(i)%weight%value%is_allocated()) cycle
         call self%resize(self%layers(i)%weight%value%extent, self%layers(i)%weight%velocity, error)
         if (allocated(error)) return
         if (.not. self%layers(i)%bias%value%is_allocated()) cycle
         call self%resize(self%layers(i)%bias%value%extent, self%layers(i)%bias%velocity, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_velocity

   !> A tensor of this shape: the present one when it fits, else a new one in its place
   subroutine resize(self, extent, tensor, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: extent(4)
      type(tensor_type), intent(inout) :: tensor
      type(error_type), allocatable, intent(out) :: error
      if (tensor%is_allocated() .and. all(tensor%extent == extent)) return
      call self%backend%release(tensor)
      call self%backend%allocate(self%dtype, extent, tensor, error)
   end subroutine resize

   subroutine allocate_parameter(backend, dtype, extent, parameter, error)
      class(backend_type), intent(inout) :: backend
      integer, intent(in) :: dtype, extent(4)
      type(parameter_type), intent(inout) :: parameter
      type(error_type), allocatable, intent(out) :: error
      call backend%allocate(dtype, extent, parameter%value, error)
      if (allocated(error)) return
      call backend%allocate(dtype, extent, parameter%gradient, error)
   end subroutine allocate_parameter

   !> Give everything back to the device
   subroutine destroy(self)
      type(network_type), intent(inout) :: self
      integer :: i
      if (.not. allocated(self%backend)) return
      call self%backend%release(self%input_gradient)
      if (.not. allocated(self%layers)) return
      do i = 1, size(self%layers)
         call release_parameter(self%backend, self%layers(i)%weight)
         call release_parameter(self%backend, self%layers(i)%bias)
         call self%backend%release(self%layers(i)%output)
         call self%backend%release(self%layers(i)%output_gradient)
      end do
   end subroutine destroy

   subroutine release_parameter(backend, parameter)
      class(backend_type), intent(inout) :: backend
      type(parameter_type), intent(inout) :: parameter
      call backend%release(parameter%value)
      call backend%release(parameter%gradient)
      call backend%release(parameter%velocity)
   end subroutine release_parameter

end module cnn_network
