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
   use cnn_core_backend, only : backend_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, dtype_name, dtype_none, i8
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : same_shape, shape_text, tensor_type
   use cnn_devices, only : open_device
   use cnn_model_description, only : description_type, kind_conv2d, layer_description_type, read_description
   use cnn_model_parameters, only : parameter_type, parameters_type
   implicit none
   private

   type, public :: layer_type
      type(layer_description_type) :: is
      type(parameter_type) :: weight, bias
      !> What the layer gives, and the gradient of the loss with respect to it
      type(tensor_type) :: output, output_gradient
      !> The element type of the output in memory, and whether only the device can read it: see `find_kept_form` of
      !> cnn_core_backend
      integer :: kept_as = dtype_none
      logical :: hidden = .false.
   end type layer_type

   integer, parameter :: stage_built = 0, stage_forward = 1, stage_loss = 2, stage_backward = 3

   !> Nothing; a step has run since tensors were last allocated, so that one may be recorded; one is recorded
   integer, parameter :: record_none = 0, record_expected = 1, record_made = 2

   !> Steps of the same shapes, which a device may record and run again
   type :: record_type
      !> Copies of input and target, at addresses that stay
      type(tensor_type) :: input, target
      integer :: state = record_none
      !> Whether recording has failed
      logical :: refused = .false.
   end type record_type

   !> Input and target of the next step, fed from the host
   type :: batch_type
      type(tensor_type) :: input, target
      !> Whether they are there, and whether a step is at work on them
      logical :: is_fed = .false., is_used = .false.
   end type batch_type

   type, public :: network_type
      type(description_type) :: description
      class(backend_type), allocatable :: backend
      type(layer_type), allocatable :: layers(:)
      integer :: dtype = dtype_none
      !> The caller's tensor of the last `forward`: it must stay alive until `backward`
      type(tensor_type) :: input
      type(tensor_type) :: input_gradient
      !> ReLU together with the convolution before it, whose own output then is not kept
      logical :: fuse = .false.
      !> Keep only what training needs (with `fuse`): no gradient with respect to the input, and where the device can
      !> work in place `backward` puts the gradients of inner layers where their outputs were
      logical :: lean = .false.
      !> Which of them are frozen, and their update; the tensors are those of the layers
      type(parameters_type) :: parameters
      type(record_type), private :: record
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
      procedure :: feed, step, step_fed, read_loss, is_recorded
      procedure :: output
      procedure :: chain, chain_end, find_chain, output_extents
      procedure, private :: queue_loss
      procedure, private :: allocate_parameters, allocate_outputs, set_forms, allocate_gradients
      procedure, private, nopass :: resize
      procedure, private :: fused, relu_follows
      procedure, private :: backward_in_place, chain_backward_in_place, in_place, spent
      procedure, private :: chain_start, input_of
      final :: destroy
   end type network_type

   interface
      !> forward, loss, backward, update. A loss that is looked at and is NaN or infinite is an error, and there is no
      !> update then; where looking does not wait for the device it is always looked at
      module subroutine step(self, x, target, sgd, read, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         type(tensor_type), intent(in) :: x, target
         type(sgd_type), intent(in) :: sgd
         !> Look at the loss, which waits for the device before the update
         logical, intent(in) :: read
         !> Of the weights before the update; 0 where it was not looked at
         real(dp), intent(out) :: loss
         type(error_type), allocatable, intent(out) :: error
      end subroutine step

      !> Input and target of the next `step_fed`, from host memory, which is free to change on return; what is queued on
      !> the device goes on meanwhile
      module subroutine feed(self, input, target, error)
         implicit none
         class(network_type), intent(inout) :: self
         type(tensor_type), intent(in) :: input, target
         type(error_type), allocatable, intent(out) :: error
      end subroutine feed

      !> `step` with the last `feed`, which it uses up
      module subroutine step_fed(self, sgd, read, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         type(sgd_type), intent(in) :: sgd
         !> As of `step`
         logical, intent(in) :: read
         !> As of `step`
         real(dp), intent(out) :: loss
         type(error_type), allocatable, intent(out) :: error
      end subroutine step_fed

      !> The loss of the last `compute_loss` or `step`, of the weights before the update; waits for the device. That of
      !> a step that nobody looked at is an error if it is NaN or infinite
      module subroutine read_loss(self, loss, error)
         implicit none
         class(network_type), intent(inout) :: self
         real(dp), intent(out) :: loss
         type(error_type), allocatable, intent(out) :: error
      end subroutine read_loss
   end interface

contains

   !> Whether the last step was replayed from a recording, and the next of its shapes will be
   pure logical function is_recorded(self)
      class(network_type), intent(in) :: self
      is_recorded = self%record%state == record_made
   end function is_recorded

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
      if (dtype /= dtype_float32 .and. dtype /= dtype_float64) then
         call fail(error, "network: "//dtype_name(dtype)//", expected float32 or float64")
         return
      end if
      self%dtype = dtype
      self%fuse = self%fuse .or. self%lean
      allocate (self%layers(size(self%description%layers)))
      do i = 1, size(self%layers)
         self%layers(i)%is = self%description%layers(i)
      end do
      call self%allocate_parameters(error)
   end subroutine build

   subroutine allocate_parameters(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type) :: weights(size(self%layers)), biases(size(self%layers))
      call self%parameters%build(self%backend, self%dtype, self%description%layers, weights, biases, error)
      self%layers%weight = weights
      self%layers%bias = biases
   end subroutine allocate_parameters

   !> Outputs of all layers for the input x(w,h,c,n)
   subroutine forward(self, x, error)
      class(network_type), intent(inout) :: self
      type(tensor_type), intent(in) :: x
      type(error_type), allocatable, intent(out) :: error
      integer :: i, last

      if (x%dtype /= self%dtype) then
         call fail(error, "input: "//dtype_name(x%dtype)//", expected "//dtype_name(self%dtype))
         return
      end if
      self%stage = stage_built
      call self%allocate_outputs(x%extent, error)
      if (allocated(error)) return
      self%input = x
      i = 1
      do while (i <= size(self%layers))
         if (self%layers(i)%is%kind == kind_conv2d) then
            last = self%chain_end(i)
            call self%backend%forward_chain(self%chain(i, last), error)
            i = last
         else
            call self%backend%relu_forward(self%input_of(i), self%layers(i)%output, error)
         end if
         if (allocated(error)) return
         i = i + merge(2, 1, self%fused(i))
      end do
      self%stage = stage_forward
   end subroutine forward

   !> The input of layer i
   type(tensor_type) function input_of(self, i)
      class(network_type), intent(in) :: self
      integer, intent(in) :: i
      input_of = self%input
      if (i > 1) input_of = self%layers(i - 1)%output
   end function input_of

   !> The last convolution that the output of convolution `first` reaches through fused ReLUs only
   pure integer function chain_end(self, first)
      class(network_type), intent(in) :: self
      integer, intent(in) :: first
      chain_end = first
      do while (self%fused(chain_end) .and. chain_end + 2 <= size(self%layers))
         if (self%layers(chain_end + 2)%is%kind /= kind_conv2d) return
         chain_end = chain_end + 2
      end do
   end function chain_end

   !> Convolutions first, first + 2, ... last with the ReLUs that are fused with them
   function chain(self, first, last) result(steps)
      class(network_type), intent(in) :: self
      integer, intent(in) :: first, last
      type(conv_step_type) :: steps((last - first)/2 + 1)
      integer :: i
      do i = first, last, 2
         associate (layer => self%layers(i), step => steps((i - first)/2 + 1))
            step%conv = layer%is%conv
            step%relu = self%fused(i)
            step%keeps_gradient = any(self%layers(:i - 1)%is%kind == kind_conv2d)
            step%hidden = self%layers(i)%hidden
            step%x = self%input_of(i)
            step%y = self%layers(merge(i + 1, i, step%relu))%output
            step%w = layer%weight%value
            step%bias = layer%bias%value
            step%dw = layer%weight%gradient
            step%db = layer%bias%gradient
         end associate
      end do
   end function chain

   !> Whether layer i is a convolution that is computed with the ReLU after it
   pure logical function fused(self, i)
      class(network_type), intent(in) :: self
      integer, intent(in) :: i
      fused = .false.
      if (.not. self%fuse .or. i < 1 .or. i >= size(self%layers)) return
      fused = self%layers(i)%is%kind == kind_conv2d .and. self%relu_follows(i)
   end function fused

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
      loss = 0.0_dp
      call self%queue_loss(target, error)
      if (.not. allocated(error)) call self%read_loss(loss, error)
      if (allocated(error) .and. self%stage == stage_loss) self%stage = stage_forward
   end subroutine compute_loss

   !> `compute_loss` without waiting for its value
   subroutine queue_loss(self, target, error)
      class(network_type), intent(inout) :: self
      type(tensor_type), intent(in) :: target
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: y
      real(dp) :: scale

      if (self%stage < stage_forward .or. self%spent()) then
         call fail(error, "loss: no output yet, call forward first")
         return
      end if
      y = self%output()
      if (.not. same_shape(y, target)) then
         call fail(error, "target: "//dtype_name(target%dtype)//" "//shape_text(target%extent)// &
            & ", expected the output's "//dtype_name(y%dtype)//" "//shape_text(y%extent))
         return
      end if
      self%stage = stage_forward
      self%has_loss = .false.
      self%unseen = .false.
      call self%allocate_gradients(error)
      if (allocated(error)) return
      scale = 1.0_dp
      if (self%description%mean) scale = 1.0_dp/real(y%count(), dp)
      call self%backend%mse(y, target, scale, self%layers(size(self%layers))%output_gradient, error)
      if (allocated(error)) return
      self%has_loss = .true.
      self%stage = stage_loss
   end subroutine queue_loss

   !> Gradients of weights, biases, every layer's output and the input
   subroutine backward(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, dx, db
      integer :: i

      if (self%stage < stage_loss .or. self%spent()) then
         call fail(error, "backward: no loss yet, call forward and loss first")
         return
      end if
      self%stage = stage_loss
      if (self%in_place()) then
         call self%backward_in_place(error)
         return
      end if
      do i = size(self%layers), 1, -1
         x = self%input
         dx = self%input_gradient
         db = tensor_type()
         if (i > 1) then
            x = self%layers(i - 1)%output
            dx = self%layers(i - 1)%output_gradient
            ! The bias gradient of a convolution is a sum over what the ReLU after it passes on: one pass for both
            if (self%layers(i)%is%kind /= kind_conv2d) db = self%layers(i - 1)%bias%gradient
            if (self%fused(i - 1)) x = self%layers(i)%output
         end if
         if (self%layers(i)%is%kind == kind_conv2d) then
            call conv_backward(self%backend, self%layers(i), x, dx, .not. self%relu_follows(i), error)
         else if (dx%is_allocated()) then
            call self%backend%relu_backward(x, self%layers(i)%output_gradient, dx, db, error)
         end if
         if (allocated(error)) return
      end do
      self%stage = stage_backward
   end subroutine backward

   !> Whether `backward` takes the memory of outputs
   pure logical function in_place(self)
      class(network_type), intent(in) :: self
      in_place = self%lean .and. self%backend%works_in_place
   end function in_place

   !> Whether it has
   pure logical function spent(self)
      class(network_type), intent(in) :: self
      spent = self%in_place() .and. self%stage == stage_backward
   end function spent

   !> `backward` with the gradient of each inner layer's output in the memory of an output that is no longer needed
   subroutine backward_in_place(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dy, db
      integer :: i, first

      ! From here on the outputs of inner layers are gone, also after an error
      self%stage = stage_built
      dy = self%layers(size(self%layers))%output_gradient
      i = size(self%layers)
      ! Below the first convolution there is nothing to learn
      do while (any(self%layers(:i)%is%kind == kind_conv2d))
         if (self%layers(i)%is%kind == kind_conv2d) then
            first = self%chain_start(i)
            call self%chain_backward_in_place(first, i, dy, error)
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
      self%stage = stage_backward
   end subroutine backward_in_place

   !> The first convolution of which the input of convolution `last` comes through fused ReLUs only
   pure integer function chain_start(self, last)
      class(network_type), intent(in) :: self
      integer, intent(in) :: last
      chain_start = last
      do while (chain_start > 2)
         if (.not. self%fused(chain_start - 2)) return
         chain_start = chain_start - 2
      end do
   end function chain_start

   !> Gradients of the parameters of convolutions first, first + 2, ... last from that of the output of the last, dy; dy
   !> becomes the gradient of the output of the layer before them, or before the ReLU before it
   subroutine chain_backward_in_place(self, first, last, dy, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: first, last
      type(tensor_type), intent(inout) :: dy
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, db
      type(conv_step_type) :: steps((last - first)/2 + 1)

      steps = self%chain(first, last)
      if (self%layers(last)%is%has_bias .and. .not. self%relu_follows(last)) then
         call self%backend%conv_backward_bias(dy, self%layers(last)%bias%gradient, error)
         if (allocated(error)) return
      end if
      call self%backend%backward_chain(steps, dy, error)
      if (allocated(error) .or. .not. steps(1)%keeps_gradient) return
      if (last > first) dy = self%layers(first + 1)%output
      x = self%layers(first - 1)%output
      associate (layer => self%layers(first))
         if (self%layers(first - 1)%is%kind == kind_conv2d) then
            call self%backend%conv_backward_data(layer%is%conv, layer%weight%value, dy, x, error)
         else
            db = tensor_type()
            if (first > 2) db = self%layers(first - 2)%bias%gradient
            call self%backend%conv_backward_relu(layer%is%conv, layer%weight%value, dy, x, db, error)
         end if
      end associate
      dy = x
   end subroutine chain_backward_in_place

   !> Whether the layer after layer i is a ReLU
   pure logical function relu_follows(self, i)
      class(network_type), intent(in) :: self
      integer, intent(in) :: i
      relu_follows = .false.
      if (i < size(self%layers)) relu_follows = self%layers(i + 1)%is%kind /= kind_conv2d
   end function relu_follows

   !> From the gradient of a convolution's output to those of its parameters and of its input x
   subroutine conv_backward(backend, layer, x, dx, with_bias, error)
      class(backend_type), intent(in) :: backend
      type(layer_type), intent(in) :: layer
      type(tensor_type), intent(in) :: x, dx
      logical, intent(in) :: with_bias
      type(error_type), allocatable, intent(out) :: error

      call backend%conv_backward_filter(layer%is%conv, x, layer%output_gradient, layer%weight%gradient, error)
      if (allocated(error)) return
      if (layer%is%has_bias .and. with_bias) then
         call backend%conv_backward_bias(layer%output_gradient, layer%bias%gradient, error)
         if (allocated(error)) return
      end if
      if (.not. dx%is_allocated()) return
      call backend%conv_backward_data(layer%is%conv, layer%weight%value, layer%output_gradient, dx, error)
   end subroutine conv_backward

   !> One SGD step on all parameters that are not frozen with the gradients of the last `backward`
   subroutine update(self, sgd, error)
      class(network_type), intent(inout) :: self
      type(sgd_type), intent(in) :: sgd
      type(error_type), allocatable, intent(out) :: error
      call sgd%check(error)
      if (allocated(error)) return
      if (self%stage < stage_backward) then
         call fail(error, "update: no gradients yet, call forward, loss and backward first")
         return
      end if
      ! The outputs belong to the weights before this update; after a failure it may be half done
      self%stage = stage_built
      call self%parameters%update(self%backend, sgd, error)
      if (.not. allocated(error)) self%steps_done = self%steps_done + 1_i8
   end subroutine update

   !> Outputs with the shapes that follow from the input's; kept when the shapes did not change
   subroutine allocate_outputs(self, extent, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: extent(4)
      type(error_type), allocatable, intent(out) :: error
      integer :: shapes(4, 0:size(self%layers)), i

      call self%output_extents(extent, shapes, error)
      if (.not. allocated(error)) call self%set_forms(shapes, error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         if (self%fused(i)) cycle
         call self%resize(self%backend, shapes(:, i), self%layers(i)%kept_as, self%layers(i)%output, &
            & self%record%state, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_outputs

   !> The forms in which outputs are kept
   subroutine set_forms(self, extents, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: extents(:, 0:)
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type), allocatable :: steps(:)
      integer :: first, last

      self%layers%kept_as = self%dtype
      self%layers%hidden = .false.
      first = 1
      do while (first <= size(self%layers))
         last = first
         if (self%layers(first)%is%kind == kind_conv2d) then
            last = self%chain_end(first)
            call self%find_chain(first, last, extents, steps, error)
            if (allocated(error)) return
            self%layers(first:last - 1)%kept_as = steps(1)%y%dtype
            self%layers(first:last - 1)%hidden = steps(1)%hidden
         end if
         first = last + 1
      end do
   end subroutine set_forms

   !> The steps of a chain before there are tensors, whose extents follow from the input's; and the form in which what
   !> lies between them is kept
   subroutine find_chain(self, first, last, extents, steps, error)
      class(network_type), intent(inout) :: self
      integer, intent(in) :: first, last, extents(:, 0:)
      type(conv_step_type), allocatable, intent(out) :: steps(:)
      type(error_type), allocatable, intent(out) :: error
      integer :: i, dtype
      logical :: hidden

      steps = self%chain(first, last)
      do i = 1, size(steps)
         steps(i)%x%dtype = self%dtype
         steps(i)%x%extent = extents(:, first + 2*i - 3)
         steps(i)%y%dtype = self%dtype
         steps(i)%y%extent = extents(:, first + 2*i - 2)
      end do
      steps%hidden = .false.
      if (.not. self%lean .or. size(steps) == 1) return
      call self%backend%find_kept_form(steps, dtype, hidden, error)
      if (allocated(error)) return
      steps%hidden = hidden
      steps(2:)%x%dtype = dtype
      steps(:size(steps) - 1)%y%dtype = dtype
   end subroutine find_chain

   !> Extents of the input (0) and of the outputs of all layers
   subroutine output_extents(self, extent, extents, error)
      class(network_type), intent(in) :: self
      integer, intent(in) :: extent(4)
      integer, intent(out) :: extents(:, 0:)
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      extents(:, 0) = extent
      do i = 1, size(self%layers)
         extents(:, i) = extents(:, i - 1)
         if (self%layers(i)%is%kind == kind_conv2d) call self%layers(i)%is%conv%output_extent(extents(:, i - 1), &
            & self%layers(i)%is%weight_extent, extents(:, i), error)
         if (.not. allocated(error)) cycle
         error%message = "layer "//self%layers(i)%is%name//": "//error%message
         return
      end do
   end subroutine output_extents

   !> Gradients with the shapes of what they belong to
   subroutine allocate_gradients(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      integer :: i, extent(4)
      if (.not. self%lean) call self%resize(self%backend, self%input%extent, self%dtype, self%input_gradient, &
         & self%record%state, error)
      if (allocated(error)) return
      do i = 1, size(self%layers)
         ! The gradient of the loss itself has no output to take the place of: that is kept
         if (self%in_place() .and. i < size(self%layers)) cycle
         ! A fused convolution has no output, but the ReLU after it has one of the same shape
         extent = self%layers(merge(i + 1, i, self%fused(i)))%output%extent
         call self%resize(self%backend, extent, self%dtype, self%layers(i)%output_gradient, self%record%state, error)
         if (allocated(error)) return
      end do
   end subroutine allocate_gradients

   !> A tensor of this shape and type: the present one when it fits, else a new one in its place
   subroutine resize(backend, extent, dtype, tensor, record_state, error)
      class(backend_type), intent(inout) :: backend
      integer, intent(in) :: extent(4), dtype
      type(tensor_type), intent(inout) :: tensor
      integer, intent(inout) :: record_state
      type(error_type), allocatable, intent(out) :: error
      if (tensor%is_allocated() .and. all(tensor%extent == extent) .and. tensor%dtype == dtype) return
      ! A recorded step has the old address
      record_state = record_none
      call backend%release(tensor)
      call backend%allocate(dtype, extent, tensor, error)
   end subroutine resize

   !> Give everything back to the device
   subroutine destroy(self)
      type(network_type), intent(inout) :: self
      integer :: i
      if (.not. allocated(self%backend)) return
      call self%backend%close()
      call self%backend%release(self%next%input)
      call self%backend%release(self%next%target)
      call self%backend%release(self%record%input)
      call self%backend%release(self%record%target)
      call self%backend%release(self%input_gradient)
      call self%parameters%release(self%backend)
      if (allocated(self%layers)) then
         do i = 1, size(self%layers)
            call self%backend%release(self%layers(i)%output)
            call self%backend%release(self%layers(i)%output_gradient)
         end do
      end if
   end subroutine destroy

end module cnn_model_network
