! SPDX-License-Identifier: MIT
!> Networks on arrays of any kind and rank, as `array_type` describes them; what a program calls is cnn_library_network.
module cnn_library_array_network
   use, intrinsic :: iso_c_binding, only : c_int, c_intptr_t, c_loc, c_null_ptr
   use cnn_core_error, only : error_type, fail, fail_to_converge
   use cnn_core_kinds, only : dp, dtype_from_name, dtype_name, dtype_none, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_core_version, only : version
   use cnn_io_saved_network, only : open_network, save_network
   use cnn_library_arrays, only : array_type
   use cnn_library_copies, only : copy_network
   use cnn_library_gradients, only : copy_gradients, count_parameters => parameter_count
   use cnn_library_initialize, only : initialize
   use cnn_library_layers, only : layer_type
   use cnn_library_masks, only : draw_masks
   use cnn_library_named_tensors, only : find_gradient, find_output, find_parameter, find_value, parameter_names
   use cnn_library_random, only : generator_type
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_after_relu, keep_all, keep_needed, model_type => network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_operations_shape, only : shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   type :: owned_type
      class(model_type), allocatable :: model
   end type owned_type

   type, public :: array_network_type
      private
      !> What gives its memory back. A pointer, because compilers copy variables on their own, for an assignment between
      !> elements of an array say, and finalize such copies: only who made it at its own address gives it back
      type(owned_type), pointer :: owned => null()
      integer(c_intptr_t) :: owner = 0_c_intptr_t
      !> Has this variable's address
      integer(c_int) :: place_mark = 0_c_int
      type(description_type) :: description
      !> What was wrong with a layer, or with a copy
      type(error_type), allocatable :: failure
      !> Name of the device, with its options
      character(len=:), allocatable :: device
      !> Of the masks of steps, which follow from it and the number of the step, so that a training that goes on from a
      !> file has the same; and what draws those of other calls
      integer(i8) :: seed = 0_i8
      type(generator_type) :: generator
      logical :: is_training = .true.
      !> On another device than the caller's arrays: copies of these
      type(tensor_type) :: staged(2)
   contains
      procedure, public :: add
      procedure, public :: build
      procedure, public :: load
      procedure, public :: save => save_to
      procedure, public :: set_training
      procedure, public :: freeze
      procedure, public :: steps
      procedure, public :: names
      procedure, public :: parameter_count
      procedure, public :: update
      generic, public :: forward => forward_array
      generic, public :: evaluate => evaluate_array
      generic, public :: step => step_array
      generic, public :: compute_gradients => compute_gradients_array
      generic, public :: get_gradients => get_gradients_array
      generic, public :: set_gradients => set_gradients_array
      generic, public :: pull_back => pull_back_array
      generic, public :: get => get_array
      generic, public :: get_output => get_output_array
      generic, public :: get_gradient => get_gradient_array
      generic, public :: set => set_array
      generic, public :: assignment(=) => assign
      procedure :: forward_array, evaluate_array, step_array, pull_back_array
      procedure :: get_array, get_output_array, get_gradient_array, set_array
      procedure :: compute_gradients_array, get_gradients_array, set_gradients_array
      procedure, private :: check_built, check_gradients, run_forward, place, to_caller, address, own, release_model
      procedure, private :: assign
      final :: destroy
   end type array_network_type

contains

   !> The next layer of a network that is not built yet
   subroutine add(self, name, layer, inputs)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> The layer's, by which its parameters are found: name.weight
      character(len=*), intent(in) :: name
      !> What it computes: see cnn_library_layers
      type(layer_type), intent(in) :: layer
      !> Names of those whose outputs it takes, with commas between them, `input` for the network's input; without it
      !> that of the layer before
      character(len=*), intent(in), optional :: inputs
      type(error_type), allocatable :: error
      character(len=:), allocatable :: taken
      if (allocated(self%failure)) return
      if (associated(self%owned)) then
         call fail(self%failure, "network: the layer "//name//" is added after build, expected before")
         return
      end if
      taken = ""
      if (present(inputs)) taken = inputs
      call self%description%add(layer%kind, name, taken, layer%attributes, error)
      if (allocated(error)) call move_alloc(error, self%failure)
   end subroutine add

   !> Make the network of the layers that were added, as for training. Once more: the same with new parameters
   subroutine build(self, error, loss, reduction, device, precision, keep_activations, seed, initialization)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> A layer that cannot be, layers that do not fit together, no such device, or no memory: the network is not built
      type(error_type), allocatable, intent(out) :: error
      !> mse (the default), or another of exchange files with its settings, `huber delta=0.5`: see cnn_operations_losses
      character(len=*), intent(in), optional :: loss
      !> mean (the default) or sum
      character(len=*), intent(in), optional :: reduction
      !> cpu (the default), or cuda with its options: see cnn_core_device_name
      character(len=*), intent(in), optional :: device
      !> float32 (the default) or float64
      character(len=*), intent(in), optional :: precision
      !> `keep_all` (the default), or for less memory `keep_needed`, with which there are no outputs and gradients of
      !> inner layers and no gradient of the input; see cnn_model_network
      integer, intent(in), optional :: keep_activations
      !> Of the first parameters and of the masks of dropouts; 0 where it is not given
      integer(i8), intent(in), optional :: seed
      !> torch (the default), he or xavier: see cnn_library_initialize
      character(len=*), intent(in), optional :: initialization
      class(model_type), allocatable :: model
      character(len=:), allocatable :: text, other
      integer :: kept, dtype
      if (allocated(self%failure)) then
         error = self%failure
         return
      end if
      call self%release_model()
      self%is_training = .true.
      self%seed = 0_i8
      if (present(seed)) self%seed = seed
      kept = keep_all
      if (present(keep_activations)) kept = keep_activations
      call choose("cpu", device, self%device)
      call choose("mse", loss, text)
      call choose("mean", reduction, other)
      call self%description%criterion%set(text, other, error)
      call choose("float32", precision, text)
      dtype = dtype_from_name(text)
      if (dtype == dtype_none) call fail(error, "precision "//text//": unknown, expected float32 or float64")
      if (all(kept /= [keep_all, keep_after_relu, keep_needed])) call fail(error, "keep_activations "//to_text(kept)// &
         & ": unknown, expected keep_all, keep_after_relu or keep_needed")
      call choose("torch", initialization, text)
      if (.not. allocated(error)) call build_network(self%description, dtype, self%device, kept, model, error)
      call self%generator%seed(self%seed)
      if (.not. allocated(error)) call initialize(model, text, self%generator, error)
      if (allocated(error)) then
         if (allocated(model)) deallocate (model)
      else
         call self%own(model, error)
      end if
   end subroutine build

   !> What is given, or the default
   pure subroutine choose(default, given, text)
      !> Where nothing is given
      character(len=*), intent(in) :: default
      !> Wins; without the blanks behind it
      character(len=*), intent(in), optional :: given
      !> Not a function: see cnn_core_text
      character(len=:), allocatable, intent(out) :: text
      text = default
      if (present(given)) text = trim(given)
   end subroutine choose

   !> A network from an exchange file that PyTorch, Python or `save` has written; what it was before is gone
   subroutine load(self, path, error, step, device, precision, keep_activations, seed)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> No such file, one that is damaged, no such device, or no memory; the network is as it was
      type(error_type), allocatable, intent(out) :: error
      !> Number of the step in the file before which its parameters are read; 0 where it is not given
      integer, intent(in), optional :: step
      !> As of `build`
      character(len=*), intent(in), optional :: device
      !> float32 or float64; that of the file where it is not given
      character(len=*), intent(in), optional :: precision
      !> As of `build`
      integer, intent(in), optional :: keep_activations
      !> Of the masks of dropouts; 0 where it is not given
      integer(i8), intent(in), optional :: seed
      class(model_type), allocatable :: model
      type(description_type) :: description
      character(len=:), allocatable :: place, wanted
      integer :: number, kept
      number = 0
      if (present(step)) number = step
      kept = keep_all
      if (present(keep_activations)) kept = keep_activations
      call choose("cpu", device, place)
      call choose("", precision, wanted)
      ! HDF5 is not safe in several threads
      !$omp critical (cnn_hdf5)
      call open_network(path, number, place, wanted, kept, description, model, error)
      !$omp end critical (cnn_hdf5)
      if (allocated(error)) return
      call self%release_model()
      if (allocated(self%failure)) deallocate (self%failure)
      call self%own(model, error)
      if (allocated(error)) return
      self%description = description
      self%device = place
      self%is_training = .true.
      self%seed = 0_i8
      if (present(seed)) self%seed = seed
      call self%generator%seed(self%seed)
   end subroutine load

   !> An exchange file from which `load`, `bridge.Network.from_file` and a training go on
   subroutine save_to(self, path, optimizer, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Name of the file; one that is there is replaced when all is written
      character(len=*), intent(in) :: path
      !> Its settings are written
      class(optimizer_type), intent(in) :: optimizer
      !> A file that cannot be written, or a parameter that is NaN or infinite
      type(error_type), allocatable, intent(out) :: error
      call self%check_built(error)
      if (allocated(error)) return
      !$omp critical (cnn_hdf5)
      call save_network(path, "cnn "//version, self%owned%model, optimizer, error)
      !$omp end critical (cnn_hdf5)
   end subroutine save_to

   !> Compute as in training, as a new network does, or as after it: by running statistics, and nothing is dropped
   subroutine set_training(self, training, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Which of both
      logical, intent(in) :: training
      !> It is not built
      type(error_type), allocatable, intent(out) :: error
      call self%check_built(error)
      if (allocated(error)) return
      self%is_training = training
      call self%owned%model%set_training(training)
   end subroutine set_training

   !> From now on steps leave a parameter as it is, or no longer
   subroutine freeze(self, name, error, frozen)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> layer.weight or layer.bias
      character(len=*), intent(in) :: name
      !> No such parameter
      type(error_type), allocatable, intent(out) :: error
      !> Whether to leave it as it is; yes where it is not given
      logical, intent(in), optional :: frozen
      type(parameter_type) :: parameter
      type(shape_type) :: shape
      call self%check_built(error)
      if (.not. allocated(error)) call find_parameter(self%owned%model, name, parameter, shape, error)
      if (allocated(error)) return
      if (present(frozen)) then
         call self%owned%model%parameters%freeze(parameter%number, frozen)
      else
         call self%owned%model%parameters%freeze(parameter%number, .true.)
      end if
   end subroutine freeze

   !> Steps so far, those before the file was written that the network comes from included
   pure integer(i8) function steps(self)
      !> The network
      class(array_network_type), intent(in) :: self
      steps = 0_i8
      if (associated(self%owned)) steps = self%owned%model%steps_done
   end function steps

   !> Names of all parameters: `names(i)%text` is layer.weight, layer.bias, ...
   subroutine names(self, found, error)
      !> The network
      class(array_network_type), intent(in) :: self
      !> In the order of the layers
      type(name_type), allocatable, intent(out) :: found(:)
      !> It is not built
      type(error_type), allocatable, intent(out) :: error
      call self%check_built(error)
      if (.not. allocated(error)) call parameter_names(self%owned%model, found)
   end subroutine names

   !> How many numbers the network learns, frozen ones included; 0 where it is not built
   integer function parameter_count(self)
      !> The network
      class(array_network_type), intent(in) :: self
      parameter_count = 0
      if (associated(self%owned)) parameter_count = count_parameters(self%owned%model)
   end function parameter_count

   subroutine forward_array(self, x, y, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> Output, is overwritten
      type(array_type), intent(in) :: y
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call self%run_forward(x, error)
      if (.not. allocated(error)) call self%to_caller("y", self%owned%model%output(), y, error)
   end subroutine forward_array

   subroutine evaluate_array(self, x, target, loss, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> What the output should be
      type(array_type), intent(in) :: target
      !> The loss
      real(dp), intent(out) :: loss
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed
      loss = 0.0_dp
      call self%run_forward(x, error)
      if (.not. allocated(error)) call self%place(2, "target", target, placed, error)
      if (.not. allocated(error)) call self%owned%model%compute_loss(placed, loss, error)
   end subroutine evaluate_array

   subroutine step_array(self, x, target, optimizer, loss, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> What the output should be
      type(array_type), intent(in) :: target
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Of the parameters before the step
      real(dp), intent(out) :: loss
      !> As of `step_sp` of cnn_library_network
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed(2)
      type(generator_type) :: generator
      loss = 0.0_dp
      call self%check_built(error)
      if (.not. allocated(error)) call self%place(1, "x", x, placed(1), error)
      if (.not. allocated(error)) call self%place(2, "target", target, placed(2), error)
      call generator%seed(self%seed, self%steps() + 1_i8)
      if (.not. allocated(error) .and. self%is_training) then
         call draw_masks(self%owned%model, x, generator, error)
      end if
      if (allocated(error)) return
      call self%owned%model%step(placed(1), placed(2), optimizer, .true., loss, error, x%rank)
   end subroutine step_array

   !> A step without its update: forward, loss, backward
   subroutine compute_gradients_array(self, x, target, loss, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> What the output should be
      type(array_type), intent(in) :: target
      !> Of the parameters as they are
      real(dp), intent(out) :: loss
      !> As of `compute_gradients_sp` of cnn_library_network
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed(2)
      type(generator_type) :: generator
      loss = 0.0_dp
      call self%check_built(error)
      if (.not. allocated(error)) call self%place(1, "x", x, placed(1), error)
      if (.not. allocated(error)) call self%place(2, "target", target, placed(2), error)
      call generator%seed(self%seed, self%steps() + 1_i8)
      if (.not. allocated(error) .and. self%is_training) then
         call draw_masks(self%owned%model, x, generator, error)
      end if
      if (.not. allocated(error)) call self%owned%model%forward(placed(1), error, x%rank)
      if (.not. allocated(error)) call self%owned%model%compute_loss(placed(2), loss, error)
      if (allocated(error)) return
      if (abs(loss) <= huge(loss)) then
         call self%owned%model%backward(error)
      else
         call fail_to_converge(error, "step "//to_text(self%steps())//": the loss is "//to_text(loss)// &
            & ": the training diverges (a smaller lr?), and there are no gradients")
      end if
   end subroutine compute_gradients_array

   subroutine get_gradients_array(self, values, error)
      !> The network, after `compute_gradients`, `step` or `pull_back`
      class(array_network_type), intent(inout) :: self
      !> Is overwritten
      type(array_type), intent(in) :: values
      !> Another kind or shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call self%check_gradients(values, error)
      if (.not. allocated(error)) call copy_gradients(self%owned%model, values, .false., error)
   end subroutine get_gradients_array

   subroutine set_gradients_array(self, values, error)
      !> The network, after `compute_gradients`, `step` or `pull_back`
      class(array_network_type), intent(inout) :: self
      !> What `update` takes from now on
      type(array_type), intent(in) :: values
      !> Another kind or shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call self%check_gradients(values, error)
      if (.not. allocated(error)) call copy_gradients(self%owned%model, values, .true., error)
   end subroutine set_gradients_array

   !> Refuse what is not one number for each parameter
   subroutine check_gradients(self, values, error)
      !> The network
      class(array_network_type), intent(in) :: self
      !> The caller's
      type(array_type), intent(in) :: values
      !> It is not built, or another kind or shape
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: expected
      call self%check_built(error)
      if (.not. allocated(error)) call check_kind("gradients", values, self%owned%model, error)
      if (allocated(error)) return
      expected%dtype = self%owned%model%dtype
      expected%extent = [self%parameter_count(), 1, 1, 1]
      call check_same("gradients", values, expected, error)
   end subroutine check_gradients

   !> One step of the optimizer with the gradients of the last `compute_gradients`, or those that were set
   subroutine update(self, optimizer, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> No gradients since the last update, a setting out of its range, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call self%check_built(error)
      if (.not. allocated(error)) call self%owned%model%update(optimizer, error)
   end subroutine update

   subroutine pull_back_array(self, x, dy, dx, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> Gradient of what is wanted with respect to the output
      type(array_type), intent(in) :: dy
      !> Gradient with respect to the input, is overwritten
      type(array_type), intent(in) :: dx
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed
      call self%check_built(error)
      if (allocated(error)) return
      if (self%owned%model%keep_activations == keep_needed) then
         call fail(error, "pull_back: the network keeps only what training needs, expected keep_activations=keep_all")
         return
      end if
      call self%run_forward(x, error)
      if (.not. allocated(error)) call self%place(2, "dy", dy, placed, error)
      if (.not. allocated(error)) call self%owned%model%take_output_gradient(placed, error)
      if (.not. allocated(error)) call self%owned%model%backward(error)
      if (.not. allocated(error)) call self%to_caller("dx", self%owned%model%input_gradient, dx, error)
   end subroutine pull_back_array

   subroutine get_array(self, name, values, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Is overwritten
      type(array_type), intent(in) :: values
      !> No such name, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call self%check_built(error)
      if (.not. allocated(error)) call find_value(self%owned%model, name, tensor, shape, error)
      if (.not. allocated(error)) call self%to_caller(name, tensor, values, error)
   end subroutine get_array

   subroutine get_output_array(self, layer, values, error)
      !> The network, after `forward`
      class(array_network_type), intent(inout) :: self
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Is overwritten
      type(array_type), intent(in) :: values
      !> As of `get_output_sp` of cnn_library_network
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call self%check_built(error)
      if (.not. allocated(error)) call find_output(self%owned%model, layer, tensor, shape, error)
      if (.not. allocated(error)) call self%to_caller("output of "//layer, tensor, values, error)
   end subroutine get_output_array

   subroutine get_gradient_array(self, name, values, error)
      !> The network, after `step` or `pull_back`
      class(array_network_type), intent(inout) :: self
      !> As of `get_gradient_sp` of cnn_library_network
      character(len=*), intent(in) :: name
      !> Gradient with respect to that, is overwritten
      type(array_type), intent(in) :: values
      !> As of `get_gradient_sp` of cnn_library_network
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call self%check_built(error)
      if (.not. allocated(error)) call find_gradient(self%owned%model, name, tensor, shape, error)
      if (.not. allocated(error)) call self%to_caller("gradient of "//name, tensor, values, error)
   end subroutine get_gradient_array

   subroutine set_array(self, name, values, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Its new values
      type(array_type), intent(in) :: values
      !> No such name, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call self%check_built(error)
      if (.not. allocated(error)) call find_value(self%owned%model, name, tensor, shape, error)
      if (.not. allocated(error)) call check_same(name, values, tensor, error)
      if (allocated(error)) return
      if (values%on_device) then
         call self%owned%model%backend%convert(values%tensor, tensor, error)
      else
         call self%owned%model%backend%copy_in(values%tensor%address, tensor, error)
      end if
   end subroutine set_array

   !> Refuse what is no network yet
   subroutine check_built(self, error)
      !> The network
      class(array_network_type), intent(in) :: self
      !> It is not built, or what made it so
      type(error_type), allocatable, intent(out) :: error
      if (allocated(self%failure)) then
         error = self%failure
      else if (.not. associated(self%owned)) then
         call fail(error, "network: it is not built, expected build or load first")
      else if (self%owner /= self%address()) then
         call fail(error, "network: a copy that no assignment has made (allocate with source, an array "// &
            & "constructor), expected an assignment")
      end if
   end subroutine check_built

   !> Outputs of all layers
   subroutine run_forward(self, x, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed
      call self%check_built(error)
      if (.not. allocated(error)) call self%place(1, "x", x, placed, error)
      if (.not. allocated(error) .and. self%is_training) call draw_masks(self%owned%model, x, self%generator, error)
      if (.not. allocated(error)) call self%owned%model%forward(placed, error, x%rank)
   end subroutine run_forward

   !> An array in the network's memory: where it is, or its copy there
   subroutine place(self, number, name, array, tensor, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Which of the copies it may have
      integer, intent(in) :: number
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> The caller's
      type(array_type), intent(in) :: array
      !> In the network's memory
      type(tensor_type), intent(out) :: tensor
      !> Another kind or rank than it may have, or no memory
      type(error_type), allocatable, intent(out) :: error
      call check_kind(name, array, self%owned%model, error)
      if (allocated(error)) return
      tensor = array%tensor
      if (array%on_device .or. self%owned%model%backend%in_host_memory) return
      associate (copy => self%staged(number))
         if (any(copy%extent /= tensor%extent)) then
            call self%owned%model%backend%release(copy)
            call self%owned%model%backend%allocate(tensor%dtype, tensor%extent, copy, error)
         end if
         if (.not. allocated(error)) call self%owned%model%backend%copy_in(tensor%address, copy, error)
         tensor = copy
      end associate
   end subroutine place

   !> What the network has found, in the caller's array
   subroutine to_caller(self, name, tensor, array, error)
      !> The network
      class(array_network_type), intent(in) :: self
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> In the network's memory
      type(tensor_type), intent(in) :: tensor
      !> Is overwritten
      type(array_type), intent(in) :: array
      !> Another kind or shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call check_kind(name, array, self%owned%model, error)
      if (.not. allocated(error)) call check_same(name, array, tensor, error)
      if (allocated(error)) return
      if (array%on_device) then
         call self%owned%model%backend%convert(tensor, array%tensor, error)
      else
         call self%owned%model%backend%copy_out(tensor, array%tensor%address, error)
      end if
   end subroutine to_caller

   subroutine check_kind(name, array, model, error)
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> The caller's
      type(array_type), intent(in) :: array
      !> That is to take it
      class(model_type), intent(in) :: model
      !> Another element type, another number of dimensions, or another memory
      type(error_type), allocatable, intent(out) :: error
      if (array%rank < 1 .or. array%rank > size(array%tensor%extent)) then
         call fail(error, name//": a scalar or more than 4 dimensions, expected 1 to 4")
      else if (array%tensor%dtype /= model%dtype) then
         call fail(error, name//": "//dtype_name(array%tensor%dtype)//", expected the network's "// &
            & dtype_name(model%dtype))
      else if (array%on_device .and. model%backend%in_host_memory) then
         call fail(error, name//": an array on a device, expected one in host memory, where the network is")
      else if (.not. array%tensor%is_allocated()) then
         call fail(error, name//": it has no memory, expected an array that is allocated")
      end if
   end subroutine check_kind

   subroutine check_same(name, array, tensor, error)
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> The caller's
      type(array_type), intent(in) :: array
      !> Of the network
      type(tensor_type), intent(in) :: tensor
      !> Another shape
      type(error_type), allocatable, intent(out) :: error
      type(array_type) :: expected
      if (array%tensor%dtype /= tensor%dtype) then
         call fail(error, name//": "//dtype_name(array%tensor%dtype)//", expected "//dtype_name(tensor%dtype))
      else if (any(array%tensor%extent /= tensor%extent)) then
         expected%tensor = tensor
         expected%rank = max(1, 4 - (findloc(tensor%extent(4:1:-1) == 1, .false., 1) - 1))
         call fail(error, name//": the shape "//array%shape_text()//", expected "//expected%shape_text())
      end if
   end subroutine check_same

   !> A copy that learns by itself
   impure elemental subroutine assign(self, other)
      !> Becomes the copy; what it was before is gone. Where there is no memory for it, its calls say so
      class(array_network_type), intent(inout) :: self
      !> Copied
      class(array_network_type), intent(in) :: other
      class(model_type), allocatable :: model
      type(error_type), allocatable :: error
      if (associated(other%owned)) call copy_network(other%owned%model, other%description, other%device, model, error)
      call self%release_model()
      self%description = other%description
      self%seed = other%seed
      self%generator = other%generator
      self%is_training = other%is_training
      if (allocated(self%failure)) deallocate (self%failure)
      if (allocated(other%failure)) allocate (self%failure, source=other%failure)
      if (.not. associated(other%owned)) return
      self%device = other%device
      if (.not. allocated(error)) call self%own(model, error)
      if (allocated(error)) then
         call move_alloc(error, self%failure)
      else
         call self%owned%model%set_training(self%is_training)
      end if
   end subroutine assign

   !> Where the variable is
   integer(c_intptr_t) function address(self)
      !> The network
      class(array_network_type), target, intent(in) :: self
      address = transfer(c_loc(self%place_mark), address)
   end function address

   !> Take what was made for this network.
   !> On a device it works on the default stream, in the order of what the caller queues there: CUDA Fortran's and
   !> OpenACC's kernels and copies
   subroutine own(self, model, error)
      !> The network, which has none
      class(array_network_type), intent(inout) :: self
      !> Is its from now on, but after an error
      class(model_type), allocatable, intent(inout) :: model
      !> Of the device
      type(error_type), allocatable, intent(out) :: error
      call model%backend%use_stream(c_null_ptr, .false., error)
      if (allocated(error)) return
      allocate (self%owned)
      call move_alloc(model, self%owned%model)
      self%owner = self%address()
   end subroutine own

   !> Give the memory of a network back; it is not built afterwards
   subroutine release_model(self)
      !> The network
      class(array_network_type), intent(inout) :: self
      integer :: i
      if (.not. associated(self%owned)) return
      if (self%owner /= self%address()) then
         ! Another's
         nullify (self%owned)
         self%staged = tensor_type()
         return
      end if
      do i = 1, size(self%staged)
         call self%owned%model%backend%release(self%staged(i))
      end do
      ! By itself, so that it is finalized
      deallocate (self%owned%model)
      deallocate (self%owned)
   end subroutine release_model

   impure elemental subroutine destroy(self)
      !> The network
      type(array_network_type), intent(inout) :: self
      call self%release_model()
   end subroutine destroy

end module cnn_library_array_network
