! SPDX-License-Identifier: MIT
!> Networks on arrays of any kind and rank, as `array_type` describes them; what a program calls is
!> cnn_library_typed_network.
module cnn_library_array_network
   use cnn_core_error, only : error_type, fail, fail_to_converge
   use cnn_core_kinds, only : dp, dtype_from_name, dtype_name, dtype_none, i8
   use cnn_core_tensor, only : extent_of, max_rank, tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_core_version, only : version
   use cnn_io_saved_network, only : open_network, save_network
   use cnn_library_any_kind, only : check_seed, integer_of, long_of, read_truth
   use cnn_library_arrays, only : array_type
   use cnn_library_gradients, only : copy_gradients, count_parameters => parameter_count
   use cnn_library_inputs, only : inputs_type, read_inputs
   use cnn_library_initialize, only : initialize
   use cnn_library_layers, only : layer, layer_type
   use cnn_library_masks, only : draw_masks
   use cnn_library_named_tensors, only : find_gradient, find_output, find_parameter, find_value, parameter_names
   use cnn_library_random, only : generator_type
   use cnn_library_states, only : call_changes, call_computes, call_reads, call_type, free_model, place_type, &
      & state_type, take_model
   use cnn_library_whole_numbers, only : as_real, is_whole
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_after_relu, keep_all, keep_needed, model_type => network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_operations_shape, only : shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   public :: assign_network

   type, public :: array_network_type
      private
      !> What the network is has its own place in memory: see cnn_library_states
      type(place_type) :: place
   contains
      procedure, public :: add
      procedure, public :: add_inputs, get_inputs
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
      generic, public :: pull_back => pull_back_array, pull_back_parameters_array
      generic, public :: get => get_array
      generic, public :: get_output => get_output_array
      generic, public :: get_gradient => get_gradient_array
      generic, public :: set => set_array
      procedure :: forward_array, evaluate_array, step_array, pull_back_array, pull_back_parameters_array
      procedure :: get_array, get_output_array, get_gradient_array, set_array
      procedure :: compute_gradients_array, get_gradients_array, set_gradients_array
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
      type(call_type) :: call
      type(error_type), allocatable :: error
      character(len=:), allocatable :: taken
      call call%begin(self%place, call_changes, error, is_draft=.true.)
      if (allocated(error)) return
      associate (state => call%state)
         if (allocated(state%failure)) return
         taken = ""
         if (present(inputs)) taken = inputs
         if (allocated(state%model)) then
            call fail(error, "network: the layer "//name//" is added after build, expected before")
         else
            call state%description%add(layer%kind, name, taken, layer%attributes, error)
         end if
         if (allocated(error)) call move_alloc(error, state%failure)
      end associate
   end subroutine add

   !> Layers that take the array of several inputs apart, each of the name of an input: the first layers of a network.
   !> What is wrong is said by `build`
   subroutine add_inputs(self, inputs)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Names and shapes
      type(inputs_type), intent(in) :: inputs
      type(call_type) :: call
      type(error_type), allocatable :: error
      type(layer_type) :: part, shaped
      character(len=:), allocatable :: name
      integer, allocatable :: extents(:)
      integer :: i
      do i = 1, inputs%count()
         name = inputs%name(i)
         extents = inputs%extents(i)
         part = layer("slice", "dim=1 start="//to_text(inputs%first(i) - 1)//" stop="//to_text(inputs%first(i + 1) - 1))
         if (size(extents) == 1) then
            call self%add(name, part, "input")
            cycle
         end if
         call self%add(name//".part", part, "input")
         if (size(extents) == 0) then
            shaped = layer("sum", "dim=1 keepdim=0")
         else
            shaped = layer("reshape", "shape=1")
            shaped%attributes%items(1)%numbers = real(extents(size(extents):1:-1), dp)
         end if
         call self%add(name, shaped)
      end do
      call call%begin(self%place, call_changes, error, is_draft=.true.)
      if (allocated(error)) return
      associate (state => call%state)
         if (inputs%count() == 0) then
            call fail(error, "network: add_inputs is given no inputs, expected one or more")
         else if (allocated(state%description%inputs)) then
            call fail(error, "network: add_inputs is called twice, expected all inputs in one call")
         else
            call inputs%write_text(state%description%inputs)
         end if
         if (allocated(error) .and. .not. allocated(state%failure)) call move_alloc(error, state%failure)
      end associate
   end subroutine add_inputs

   !> Names and shapes of several inputs, of a network that was built with them or has them from its file
   subroutine get_inputs(self, inputs, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> None where it has one input without a name
      type(inputs_type), intent(out) :: inputs
      !> No network, or a file that says something else
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      call call%begin(self%place, call_reads, error)
      if (allocated(error)) return
      if (allocated(call%state%model%inputs)) call read_inputs(call%state%model%inputs, inputs, error)
   end subroutine get_inputs

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
      class(*), intent(in), optional :: keep_activations
      !> Of the first parameters and of the masks of dropouts, an integer; 0 where it is not given
      class(*), intent(in), optional :: seed
      !> torch (the default), he or xavier: see cnn_library_initialize
      character(len=*), intent(in), optional :: initialization
      type(call_type) :: call
      call check_seed(seed, error)
      if (.not. allocated(error)) call call%begin(self%place, call_changes, error, is_draft=.true.)
      if (allocated(error)) return
      if (allocated(call%state%failure)) then
         error = call%state%failure
         return
      end if
      call free_model(call%state)
      call begin_training(call%state, device, seed)
      call build_state(call%state, error, loss, reduction, precision, keep_activations, initialization)
   end subroutine build

   !> As a new network is
   subroutine begin_training(state, device, seed)
      !> Of the network
      type(state_type), intent(inout) :: state
      !> As of `build`
      character(len=*), intent(in), optional :: device
      !> As of `build`
      class(*), intent(in), optional :: seed
      call choose("cpu", device, state%device)
      state%is_training = .true.
      state%seed = 0_i8
      if (present(seed)) state%seed = long_of(seed)
      call state%generator%seed(state%seed)
   end subroutine begin_training

   !> `build` of what has no model
   subroutine build_state(state, error, loss, reduction, precision, keep_activations, initialization)
      !> Of the network
      type(state_type), intent(inout) :: state
      !> As of `build`
      type(error_type), allocatable, intent(out) :: error
      !> As of `build`
      character(len=*), intent(in), optional :: loss
      !> As of `build`
      character(len=*), intent(in), optional :: reduction
      !> As of `build`
      character(len=*), intent(in), optional :: precision
      !> As of `build`
      class(*), intent(in), optional :: keep_activations
      !> As of `build`
      character(len=*), intent(in), optional :: initialization
      class(model_type), allocatable :: model
      character(len=:), allocatable :: text, other
      integer :: kept, dtype
      kept = keep_all
      if (present(keep_activations)) kept = integer_of(keep_activations)
      call choose("mse", loss, text)
      call choose("mean", reduction, other)
      call state%description%criterion%set(text, other, error)
      call choose("float32", precision, text)
      dtype = dtype_from_name(text)
      if (dtype == dtype_none) call fail(error, "precision "//text//": unknown, expected float32 or float64")
      if (all(kept /= [keep_all, keep_after_relu, keep_needed])) call fail(error, "keep_activations "//to_text(kept)// &
         & ": unknown, expected keep_all, keep_after_relu or keep_needed")
      call choose("torch", initialization, text)
      if (.not. allocated(error)) call build_network(state%description, dtype, state%device, kept, model, error)
      if (.not. allocated(error)) call initialize(model, text, state%generator, error)
      if (.not. allocated(error)) call take_model(state, model, error)
      ! By itself, so that it is finalized
      if (allocated(model)) deallocate (model)
   end subroutine build_state

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
      class(*), intent(in), optional :: step
      !> As of `build`
      character(len=*), intent(in), optional :: device
      !> float32 or float64; that of the file where it is not given
      character(len=*), intent(in), optional :: precision
      !> As of `build`
      class(*), intent(in), optional :: keep_activations
      !> Of the masks of dropouts, an integer; 0 where it is not given
      class(*), intent(in), optional :: seed
      type(call_type) :: call
      class(model_type), allocatable :: model
      type(description_type) :: description
      character(len=:), allocatable :: place, wanted
      integer :: number, kept
      number = 0
      if (present(step)) number = integer_of(step)
      kept = keep_all
      if (present(keep_activations)) kept = integer_of(keep_activations)
      call choose("cpu", device, place)
      call choose("", precision, wanted)
      call check_seed(seed, error)
      if (.not. allocated(error)) call call%begin(self%place, call_changes, error, is_draft=.true.)
      if (allocated(error)) return
      ! HDF5 is not safe in several threads
      !$omp critical (cnn_hdf5)
      call open_network(path, number, place, wanted, kept, description, model, error)
      !$omp end critical (cnn_hdf5)
      if (allocated(error)) return
      call free_model(call%state)
      if (allocated(call%state%failure)) deallocate (call%state%failure)
      call take_model(call%state, model, error)
      if (allocated(error)) return
      call%state%description = description
      call begin_training(call%state, place, seed)
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
      type(call_type) :: call
      call call%begin(self%place, call_reads, error)
      if (allocated(error)) return
      !$omp critical (cnn_hdf5)
      call save_network(path, "cnn "//version, call%state%model, optimizer, error)
      !$omp end critical (cnn_hdf5)
   end subroutine save_to

   !> Compute as in training, as a new network does, or as after it: by running statistics, and nothing is dropped
   subroutine set_training(self, training, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Which of both
      class(*), intent(in) :: training
      !> It is not built, or that is no logical
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      logical :: wanted
      call read_truth("training", training, wanted, error)
      if (.not. allocated(error)) call call%begin(self%place, call_changes, error)
      if (allocated(error)) return
      call%state%is_training = wanted
      call call%state%model%set_training(call%state%is_training)
   end subroutine set_training

   !> From now on steps leave a parameter as it is, or no longer
   subroutine freeze(self, name, error, frozen)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> layer.weight or layer.bias
      character(len=*), intent(in) :: name
      !> No such parameter, or no logical
      type(error_type), allocatable, intent(out) :: error
      !> Whether to leave it as it is; yes where it is not given
      class(*), intent(in), optional :: frozen
      type(call_type) :: call
      type(parameter_type) :: parameter
      type(shape_type) :: shape
      logical :: wanted
      wanted = .true.
      if (present(frozen)) call read_truth("frozen", frozen, wanted, error)
      if (.not. allocated(error)) call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call find_parameter(call%state%model, name, parameter, shape, error)
      if (.not. allocated(error)) call call%state%model%parameters%freeze(parameter%number, wanted)
   end subroutine freeze

   !> Steps so far, those before the file was written that the network comes from included
   integer(i8) function steps(self)
      !> The network
      class(array_network_type), intent(in) :: self
      type(state_type), pointer :: state
      steps = 0_i8
      call self%place%peek(state)
      if (.not. associated(state)) return
      if (allocated(state%model)) steps = state%model%steps_done
   end function steps

   !> Names of all parameters: `names(i)%text` is layer.weight, layer.bias, ...
   subroutine names(self, found, error)
      !> The network
      class(array_network_type), intent(in) :: self
      !> In the order of the layers
      type(name_type), allocatable, intent(out) :: found(:)
      !> It is not built
      type(error_type), allocatable, intent(out) :: error
      type(state_type), pointer :: state
      call self%place%peek(state, error)
      if (.not. allocated(error)) call parameter_names(state%model, found)
   end subroutine names

   !> How many numbers the network learns, frozen ones included; 0 where it is not built
   integer function parameter_count(self)
      !> The network
      class(array_network_type), intent(in) :: self
      type(state_type), pointer :: state
      parameter_count = 0
      call self%place%peek(state)
      if (.not. associated(state)) return
      if (allocated(state%model)) parameter_count = count_parameters(state%model)
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
      type(call_type) :: call
      call call%begin(self%place, call_computes, error)
      if (.not. allocated(error)) call run_forward(call%state, x, error)
      if (.not. allocated(error)) call to_caller(call%state, "y", call%state%model%output(), y, error)
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
      type(call_type) :: call
      type(tensor_type) :: placed
      loss = 0.0_dp
      call call%begin(self%place, call_computes, error)
      if (.not. allocated(error)) call run_forward(call%state, x, error)
      if (.not. allocated(error)) call put(call%state, 2, "target", target, placed, error)
      if (.not. allocated(error)) call call%state%model%compute_loss(placed, loss, error)
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
      !> As of `step_sp` of cnn_library_typed_network
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      type(tensor_type) :: placed(2)
      loss = 0.0_dp
      call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call put_batch(call%state, x, target, placed, error)
      if (allocated(error)) return
      call call%state%model%step(placed(1), placed(2), optimizer, .true., loss, error, x%rank)
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
      !> As of `compute_gradients_sp` of cnn_library_typed_network
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      type(tensor_type) :: placed(2)
      loss = 0.0_dp
      call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call put_batch(call%state, x, target, placed, error)
      if (.not. allocated(error)) call call%state%model%forward(placed(1), error, x%rank)
      if (.not. allocated(error)) call call%state%model%compute_loss(placed(2), loss, error)
      if (allocated(error)) return
      if (abs(loss) <= huge(loss)) then
         call call%state%model%backward(error)
      else
         call fail_to_converge(error, "step "//to_text(call%state%model%steps_done)//": the loss is "//to_text(loss)// &
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
      type(call_type) :: call
      call call%begin(self%place, call_reads, error)
      if (.not. allocated(error)) call check_gradients(call%state%model, values, error)
      if (.not. allocated(error)) call copy_gradients(call%state%model, values, .false., error)
   end subroutine get_gradients_array

   subroutine set_gradients_array(self, values, error)
      !> The network, after `compute_gradients`, `step` or `pull_back`
      class(array_network_type), intent(inout) :: self
      !> What `update` takes from now on
      type(array_type), intent(in) :: values
      !> Another kind or shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call check_gradients(call%state%model, values, error)
      if (allocated(error)) return
      if (call%state%model%has_gradients()) then
         call copy_gradients(call%state%model, values, .true., error)
      else
         call fail(error, "set_gradients: no gradients yet, call compute_gradients or pull_back first")
      end if
   end subroutine set_gradients_array

   !> Refuse what is not one number for each parameter
   subroutine check_gradients(model, values, error)
      !> The network's
      class(model_type), intent(in) :: model
      !> The caller's
      type(array_type), intent(in) :: values
      !> Another kind or shape
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: expected
      call check_kind("gradients", values, model, error)
      if (allocated(error)) return
      expected%dtype = model%dtype
      expected%extent = extent_of([count_parameters(model)])
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
      type(call_type) :: call
      call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call call%state%model%update(optimizer, error)
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
      call run_pull_back(self, x, dy, error, dx)
   end subroutine pull_back_array

   subroutine pull_back_parameters_array(self, x, dy, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> Gradient of what is wanted with respect to the output
      type(array_type), intent(in) :: dy
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call run_pull_back(self, x, dy, error)
   end subroutine pull_back_parameters_array

   subroutine run_pull_back(self, x, dy, error, dx)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> Input
      type(array_type), intent(in) :: x
      !> Gradient of what is wanted with respect to the output
      type(array_type), intent(in) :: dy
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      !> Gradient with respect to the input, is overwritten
      type(array_type), intent(in), optional :: dx
      type(call_type) :: call
      type(tensor_type) :: placed
      call call%begin(self%place, call_changes, error)
      if (allocated(error)) return
      if (call%state%model%keep_activations == keep_needed) then
         call fail(error, "pull_back: the network keeps only what training needs, expected keep_activations=keep_all")
         return
      end if
      call run_forward(call%state, x, error)
      if (.not. allocated(error)) call put(call%state, 2, "dy", dy, placed, error)
      if (.not. allocated(error)) call call%state%model%take_output_gradient(placed, error)
      if (.not. allocated(error)) call call%state%model%backward(error)
      if (allocated(error) .or. .not. present(dx)) return
      call to_caller(call%state, "dx", call%state%model%input_gradient, dx, error)
   end subroutine run_pull_back

   subroutine get_array(self, name, values, error)
      !> The network
      class(array_network_type), intent(inout) :: self
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Is overwritten
      type(array_type), intent(in) :: values
      !> No such name, another shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call call%begin(self%place, call_reads, error)
      if (.not. allocated(error)) call find_value(call%state%model, name, tensor, shape, error)
      if (.not. allocated(error)) call to_caller(call%state, name, tensor, values, error)
   end subroutine get_array

   subroutine get_output_array(self, layer, values, error)
      !> The network, after `forward`
      class(array_network_type), intent(inout) :: self
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Is overwritten
      type(array_type), intent(in) :: values
      !> As of `get_output_sp` of cnn_library_typed_network
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call call%begin(self%place, call_reads, error)
      if (.not. allocated(error)) call check_alone(call%state, error)
      if (.not. allocated(error)) call find_output(call%state%model, layer, tensor, shape, error)
      if (.not. allocated(error)) call to_caller(call%state, "output of "//layer, tensor, values, error)
   end subroutine get_output_array

   subroutine get_gradient_array(self, name, values, error)
      !> The network, after `step` or `pull_back`
      class(array_network_type), intent(inout) :: self
      !> As of `get_gradient_sp` of cnn_library_typed_network
      character(len=*), intent(in) :: name
      !> Gradient with respect to that, is overwritten
      type(array_type), intent(in) :: values
      !> As of `get_gradient_sp` of cnn_library_typed_network
      type(error_type), allocatable, intent(out) :: error
      type(call_type) :: call
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call call%begin(self%place, call_reads, error)
      if (.not. allocated(error)) call check_alone(call%state, error)
      if (.not. allocated(error)) call find_gradient(call%state%model, name, tensor, shape, error)
      if (.not. allocated(error)) call to_caller(call%state, "gradient of "//name, tensor, values, error)
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
      type(call_type) :: call
      type(tensor_type) :: tensor
      type(shape_type) :: shape
      call call%begin(self%place, call_changes, error)
      if (.not. allocated(error)) call find_value(call%state%model, name, tensor, shape, error)
      if (.not. allocated(error)) call check_same(name, values, tensor, error)
      if (allocated(error)) return
      if (values%on_device) then
         call call%state%model%backend%convert(values%tensor, tensor, error)
      else
         call call%state%model%backend%copy_in(values%tensor%address, tensor, error)
      end if
   end subroutine set_array

   !> Refuse outputs of which nobody knows whose they are
   subroutine check_alone(state, error)
      !> Of the network
      type(state_type), intent(in) :: state
      !> Several threads have computed at the same time
      type(error_type), allocatable, intent(out) :: error
      if (state%is_mixed) call fail(error, "network: several threads have computed at the same time, expected one, "// &
         & "or a copy for each, where outputs and gradients of layers are asked for")
   end subroutine check_alone

   !> Outputs of all layers
   subroutine run_forward(state, x, error)
      !> Of the network
      type(state_type), intent(inout) :: state
      !> Input
      type(array_type), intent(in) :: x
      !> An array that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: placed
      call put(state, 1, "x", x, placed, error)
      if (.not. allocated(error) .and. state%is_training) call draw_masks(state%model, x, state%generator, error)
      if (.not. allocated(error)) call state%model%forward(placed, error, x%rank)
   end subroutine run_forward

   !> Input and target of a step, and its masks
   subroutine put_batch(state, x, target, placed, error)
      !> Of the network
      type(state_type), intent(inout) :: state
      !> Input
      type(array_type), intent(in) :: x
      !> What the output should be
      type(array_type), intent(in) :: target
      !> Both in the network's memory
      type(tensor_type), intent(out) :: placed(2)
      !> An array that does not fit, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(generator_type) :: generator
      call put(state, 1, "x", x, placed(1), error)
      if (.not. allocated(error)) call put(state, 2, "target", target, placed(2), error)
      if (allocated(error) .or. .not. state%is_training) return
      call generator%seed(state%seed, state%model%steps_done + 1_i8)
      call draw_masks(state%model, x, generator, error)
   end subroutine put_batch

   !> An array in the network's memory: where it is, or its copy there, of integers one of real numbers
   subroutine put(state, number, name, array, tensor, error)
      !> Of the network
      type(state_type), intent(inout) :: state
      !> Which of the copies it may have
      integer, intent(in) :: number
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> The caller's
      type(array_type), intent(in) :: array
      !> In the network's memory
      type(tensor_type), intent(out) :: tensor
      !> Another kind or rank than it may have, a number that the network's kind cannot hold, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(array_type) :: converted
      call check_kind(name, array, state%model, error, may_be_whole=.true.)
      if (allocated(error)) return
      tensor = array%tensor
      if (is_whole(tensor%dtype)) then
         call as_real(name, array, state%model%dtype, converted, error)
         if (allocated(error)) return
         tensor = converted%tensor
      else if (array%on_device .or. state%model%backend%in_host_memory) then
         return
      end if
      associate (copy => state%staged(number), backend => state%model%backend)
         if (any(copy%extent /= tensor%extent)) then
            call backend%release(copy)
            call backend%allocate(tensor%dtype, tensor%extent, copy, error)
         end if
         if (.not. allocated(error)) call backend%copy_in(tensor%address, copy, error)
         tensor = copy
      end associate
   end subroutine put

   !> What the network has found, in the caller's array
   subroutine to_caller(state, name, tensor, array, error)
      !> Of the network
      type(state_type), intent(in) :: state
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> In the network's memory
      type(tensor_type), intent(in) :: tensor
      !> Is overwritten
      type(array_type), intent(in) :: array
      !> Another kind or shape, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call check_kind(name, array, state%model, error)
      if (.not. allocated(error)) call check_same(name, array, tensor, error)
      if (allocated(error)) return
      if (array%on_device) then
         call state%model%backend%convert(tensor, array%tensor, error)
      else
         call state%model%backend%copy_out(tensor, array%tensor%address, error)
      end if
   end subroutine to_caller

   subroutine check_kind(name, array, model, error, may_be_whole)
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> The caller's
      type(array_type), intent(in) :: array
      !> That is to take it
      class(model_type), intent(in) :: model
      !> Another element type, another number of dimensions, or another memory
      type(error_type), allocatable, intent(out) :: error
      !> Whether integers are taken, too
      logical, intent(in), optional :: may_be_whole
      logical :: is_taken
      is_taken = array%tensor%dtype == model%dtype
      if (present(may_be_whole)) is_taken = is_taken .or. (may_be_whole .and. is_whole(array%tensor%dtype))
      if (array%rank == 0 .and. .not. array%tensor%is_allocated()) then
         call fail(error, name//": a null pointer, expected an array")
      else if (array%rank < 1 .or. array%rank > size(array%tensor%extent)) then
         call fail(error, name//": a scalar or more than "//to_text(max_rank)//" dimensions, expected 1 to "// &
            & to_text(max_rank))
      else if (.not. is_taken) then
         call fail(error, name//": "//dtype_name(array%tensor%dtype)//", expected the network's "// &
            & dtype_name(model%dtype))
      else if (array%on_device .and. is_whole(array%tensor%dtype)) then
         call fail(error, name//": "//dtype_name(array%tensor%dtype)//" on a device, expected it in host memory")
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
         expected%rank = max(1, findloc(tensor%extent /= 1, .true., 1, back=.true.))
         call fail(error, name//": the shape "//array%shape_text()//", expected "//expected%shape_text())
      end if
   end subroutine check_same

   !> A copy that learns by itself
   impure elemental subroutine assign_network(to, from)
      !> Becomes the copy; what it was before is gone. Where there is no memory for it, its calls say so
      class(array_network_type), intent(inout) :: to
      !> Copied
      class(array_network_type), intent(in) :: from
      call to%place%copy_from(from%place)
   end subroutine assign_network

   impure elemental subroutine destroy(self)
      !> The network
      type(array_network_type), intent(inout) :: self
      call self%place%release()
   end subroutine destroy

end module cnn_library_array_network
