! SPDX-License-Identifier: MIT
!> Exchange files that are read: fixtures, and networks that were saved. docs/exchange-file.md has their names.
module cnn_io_fixture
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name, i8
   use cnn_core_tensor, only : all_finite, images_of, max_rank, tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_io_format, only : initial_state, momenta_path, optimizer_path, weights_path
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_header, only : read_format, read_optimizer
   use cnn_io_staging, only : staging_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_operations_operation, only : parameter_shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   !> An exchange file to read
   type, public :: fixture_type
      type(hdf5_file_type) :: file
      !> Of the tensors
      character(len=:), allocatable :: precision
      !> With its settings; not allocated where the file has none
      class(optimizer_type), allocatable :: optimizer
      integer :: batches = 0
      !> Version of its format
      integer :: version = 1
      type(staging_type), private :: staging
   contains
      procedure :: open => fixture_open
      procedure :: read_weights
      procedure :: read_training
      procedure :: check_memory
      procedure :: read_batch
      procedure :: read_masks
      procedure :: close => fixture_close
      procedure, private :: read_tensor, read_checked, read_parameter, read_state, read_memory, stage
      procedure :: read_learning_rate
   end type fixture_type

contains

   !> Open a file, check its format, and read what is not a tensor
   subroutine fixture_open(self, path, error)
      class(fixture_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> File that cannot be read, or is no exchange file of this version
      type(error_type), allocatable, intent(out) :: error

      call self%file%open_to_read(path, error)
      if (allocated(error)) return
      call read_format(self%file, self%version, error)
      if (allocated(error)) return
      self%precision = "float32"
      if (self%file%has_attribute("/", "precision")) then
         call self%file%read_text_attribute("/", "precision", self%precision, error)
      end if
      if (allocated(error)) return
      if (allocated(self%optimizer)) deallocate (self%optimizer)
      if (self%file%has("/optimizer")) call read_optimizer(self%file, self%version, self%optimizer, error)
      if (allocated(error)) return
      self%batches = 0
      do while (self%file%has("/batches/"//to_text(self%batches)//"/input"))
         self%batches = self%batches + 1
      end do
   end subroutine fixture_open

   !> The learning rate of a step: its own where the file has one, as of a schedule, else it stays as it is
   subroutine read_learning_rate(self, step, error)
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> A rate that is out of its range
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)
      if (.not. self%file%has_attribute(path, "lr")) return
      call self%file%read_number(path, "lr", self%optimizer%lr, error)
      if (allocated(error)) return
      call self%optimizer%check(error)
      if (allocated(error)) error%message = self%file%path//": "//path//": "//error%message
   end subroutine read_learning_rate

   !> Parameters and state before step `step` into a network of the same model, and which parameters are frozen
   subroutine read_weights(self, step, network, error)
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network of the same model
      class(network_type), intent(inout) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer :: i, j
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            associate (shape => layer%parameter_shapes(j))
               call self%read_parameter(weights_path(step, layer%name)//"/"//trim(shape%name), network%backend, &
                  & network%parameters, layer%parameters(j), shape%shape%rank, error)
            end associate
            if (allocated(error)) return
         end do
         call self%read_state(step, network, layer, error)
         if (allocated(error)) return
      end do
   end subroutine read_weights

   !> What a layer keeps from step to step, as it is before step `step`
   subroutine read_state(self, step, network, layer, error)
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Whose layer it is
      class(network_type), intent(in) :: network
      !> The layer
      type(layer_view_type), intent(in) :: layer
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i
      path = initial_state//layer%name
      if (step > 0 .and. layer%changes_state) path = "/steps/"//to_text(step - 1)//"/state/"//layer%name
      do i = 1, size(layer%state)
         call self%read_checked(path//"/"//trim(layer%state_shapes(i)%name), network%backend, layer%state(i), error, &
            & rank=layer%state_shapes(i)%shape%rank)
         if (allocated(error)) return
      end do
   end subroutine read_state

   !> A parameter, and whether it is frozen
   subroutine read_parameter(self, path, backend, parameters, parameter, rank, error)
      class(fixture_type), intent(inout) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> The device where it is
      class(backend_type), intent(in) :: backend
      !> With this one; it is marked where it is frozen
      type(parameters_type), intent(inout) :: parameters
      !> To be read
      type(parameter_type), intent(in) :: parameter
      !> Number of its dimensions
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: frozen
      call self%read_checked(path, backend, parameter%value, error, rank=rank)
      if (allocated(error)) return
      frozen = 0.0_dp
      if (self%file%has_attribute(path, "frozen")) call self%file%read_number(path, "frozen", frozen, error)
      if (allocated(error)) return
      if (.not. (abs(frozen) <= 0.0_dp .or. abs(frozen - 1.0_dp) <= 0.0_dp)) then
         call fail(error, self%file%path//": attribute frozen of "//path//" is neither 0 nor 1")
      else
         call parameters%freeze(parameter%number, frozen > 0.0_dp)
      end if
   end subroutine read_parameter

   !> What the optimizer remembers before step `step`, where the file has it, and how many steps there were before it
   subroutine read_training(self, step, network, error)
      class(fixture_type), intent(inout) :: self
      !> Step before which it is, from 0
      integer, intent(in) :: step
      !> A network that is built; what is remembered and the number of the next step are set
      class(network_type), intent(inout) :: network
      !> A number or a tensor in the file that does not fit
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer(i8) :: first
      integer :: i, j

      first = 0_i8
      if (self%file%has_attribute("/", "first_step")) call read_count(self, "/", "first_step", first, error)
      if (allocated(error)) return
      network%steps_done = first + step
      if (.not. allocated(self%optimizer)) return
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            call self%read_memory(step, network, layer%name, layer%parameter_shapes(j), layer%parameters(j)%number, &
               & error)
            if (allocated(error)) return
         end do
      end do
   end subroutine read_training

   !> What the optimizer remembers of a parameter, where the file has it
   subroutine read_memory(self, step, network, layer, parameter, number, error)
      class(fixture_type), intent(inout) :: self
      !> Step before which it is, from 0
      integer, intent(in) :: step
      !> With this parameter
      class(network_type), intent(inout) :: network
      !> Name of its layer
      character(len=*), intent(in) :: layer
      !> Its name in the layer, and its shape
      type(parameter_shape_type), intent(in) :: parameter
      !> Its number
      integer, intent(in) :: number
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: names(:)
      character(len=:), allocatable :: group, path
      integer(i8) :: updates
      integer :: i
      allocate (names, source=self%optimizer%memory_names())
      group = optimizer_path(step, layer)//"/"//trim(parameter%name)
      path = group//"/"//names(1)%text
      if (self%version == 1) path = momenta_path(step, layer)//"/"//trim(parameter%name)
      if (.not. self%file%has(path)) return
      updates = 1_i8
      if (self%file%has_attribute(group, "updates")) call read_count(self, group, "updates", updates, error)
      if (allocated(error)) return
      call network%parameters%keep_memory(network%backend, number, names, updates, error)
      do i = 1, size(names)
         if (allocated(error)) return
         if (self%version > 1) path = group//"/"//names(i)%text
         call self%read_checked(path, network%backend, network%parameters%memory(number, i), error, &
            & rank=parameter%shape%rank)
      end do
   end subroutine read_memory

   !> A training that has lost what its optimizer remembers would go on to other numbers. It must be there of every
   !> parameter that is not frozen, where there is any of it, or where there were steps before the file was written;
   !> 0 updates say that there never was any
   subroutine check_memory(self, step, network, error)
      class(fixture_type), intent(in) :: self
      !> Step before which it was read, from 0
      integer, intent(in) :: step
      !> After `read_training`
      class(network_type), intent(in) :: network
      !> Names what is missing
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      character(len=:), allocatable :: missing, group
      logical :: is_wanted
      integer :: i, j
      if (.not. allocated(self%optimizer) .or. self%version == 1) return
      if (self%optimizer%states() == 0) return
      is_wanted = step == 0 .and. network%steps_done > 0_i8
      missing = ""
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            associate (number => layer%parameters(j)%number)
               if (network%parameters%is_frozen(number)) cycle
               group = optimizer_path(step, layer%name)//"/"//trim(layer%parameter_shapes(j)%name)
               if (network%parameters%memory_count(number) > 0) then
                  is_wanted = .true.
                  ! Adam's average is worth what their number says, a momentum asks only whether there is one
                  if (self%optimizer%states() > 1) then
                     if (.not. self%file%has_attribute(group, "updates")) missing = "attribute updates of "//group
                  end if
               else if (len(missing) == 0) then
                  if (.not. says_none(self, group)) missing = group
               end if
            end associate
         end do
      end do
      if (is_wanted .and. len(missing) > 0) call fail(error, self%file%path//": "//missing//" is missing, which "// &
         & "the optimizer remembers of "//to_text(network%steps_done)//" steps: the training would go on to other "// &
         & "numbers")
   end subroutine check_memory

   !> Whether a file says that the optimizer has not updated a parameter yet
   logical function says_none(self, group)
      class(fixture_type), intent(in) :: self
      !> Of what is remembered of the parameter
      character(len=*), intent(in) :: group
      type(error_type), allocatable :: error
      real(dp) :: updates
      says_none = .false.
      if (.not. self%file%has_attribute(group, "updates")) return
      call self%file%read_number(group, "updates", updates, error)
      says_none = .not. allocated(error) .and. abs(updates) <= 0.0_dp
   end function says_none

   !> A number of steps
   subroutine read_count(self, object, name, count, error)
      class(fixture_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What it holds
      integer(i8), intent(out) :: count
      !> No whole number from 0 on
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: number
      count = 0_i8
      call self%file%read_number(object, name, number, error)
      if (allocated(error)) return
      if (number >= 0.0_dp .and. number <= 2.0_dp**53 .and. abs(number - aint(number)) <= 0.0_dp) then
         count = int(number, i8)
      else
         call fail(error, self%file%path//": attribute "//name//" of "//object//" is "//to_text(number)// &
            & ", expected a whole number from 0 on")
      end if
   end subroutine read_count

   !> Input and target of step `step`, as new tensors of the network's device
   subroutine read_batch(self, step, network, input, target, error, rank, target_rank)
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network on whose device they will be
      class(network_type), intent(inout) :: network
      !> Input, in the network's memory; what it was before is released
      type(tensor_type), intent(inout) :: input
      !> What the output should be, in the network's memory; what it was before is released
      type(tensor_type), intent(inout) :: target
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions of the input
      integer, intent(out), optional :: rank
      !> The same of the target
      integer, intent(out), optional :: target_rank
      character(len=:), allocatable :: path
      path = "/batches/"//to_text(step)
      call self%read_tensor(path//"/input", network%backend, network%dtype, input, error, rank)
      if (allocated(error)) return
      call self%read_tensor(path//"/target", network%backend, network%dtype, target, error, target_rank)
   end subroutine read_batch

   !> What a step keeps of the inputs of its dropouts
   subroutine read_masks(self, step, network, error, first, images)
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Its layers' masks are set
      class(network_type), intent(inout) :: network
      type(error_type), allocatable, intent(out) :: error
      !> Of some images alone: how many are before them
      integer, intent(in), optional :: first
      !> And how many they are
      integer, intent(in), optional :: images
      type(layer_view_type) :: layer
      type(tensor_type) :: mask
      character(len=:), allocatable :: path
      integer :: i, rank
      do i = 1, network%layer_count()
         call network%view(i, layer)
         if (.not. layer%has_mask) cycle
         path = "/steps/"//to_text(step)//"/masks/"//layer%name
         mask%dtype = network%dtype
         call self%file%extent(path, mask%extent, error, found_rank=rank)
         if (.not. allocated(error)) call self%stage(path, mask, error)
         if (.not. allocated(error) .and. present(first) .and. present(images)) then
            if (rank < 1 .or. first + images > mask%extent(max(rank, 1))) then
               call fail(error, self%file%path//": "//path//" has fewer images than the batch")
            else
               mask = images_of(mask, rank, first, images)
            end if
         end if
         if (.not. allocated(error)) call network%set_mask(i, mask, error)
         if (allocated(error)) return
      end do
   end subroutine read_masks

   !> A dataset as a new tensor of a device
   subroutine read_tensor(self, path, backend, dtype, tensor, error, rank)
      class(fixture_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      class(backend_type), intent(inout) :: backend
      !> Element type that it shall have, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> The new tensor; what it was before is released
      type(tensor_type), intent(inout) :: tensor
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that it has
      integer, intent(out), optional :: rank
      integer :: extent(max_rank)
      call backend%release(tensor)
      call self%file%extent(path, extent, error, found_rank=rank)
      if (allocated(error)) return
      call backend%allocate(dtype, extent, tensor, error)
      if (allocated(error)) then
         error%message = self%file%path//": "//path//": "//error%message
         return
      end if
      call self%read_checked(path, backend, tensor, error, fresh=.true.)
   end subroutine read_tensor

   !> A dataset into a device tensor; NaN and infinity are refused. Unless it is `fresh`, it keeps its values then
   subroutine read_checked(self, path, backend, tensor, error, fresh, rank)
      class(fixture_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> The device where the tensor is
      class(backend_type), intent(in) :: backend
      !> Tensor to be filled
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      !> Whether its values may be lost after an error
      logical, intent(in), optional :: fresh
      !> Number of dimensions that the dataset must have
      integer, intent(in), optional :: rank
      type(tensor_type) :: staged
      logical :: direct
      direct = .false.
      if (present(fresh)) direct = fresh .and. backend%in_host_memory
      staged = tensor
      if (direct) then
         call read_finite(self, path, staged, error, rank)
      else
         call self%stage(path, staged, error, rank)
         if (.not. allocated(error)) call backend%copy_in(staged%address, tensor, error)
      end if
   end subroutine read_checked

   !> A dataset into host memory that the next one overwrites
   subroutine stage(self, path, staged, error, rank)
      class(fixture_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> With its element type and extents; gets an address
      type(tensor_type), intent(inout) :: staged
      !> No memory, or a dataset that is missing, damaged, of another shape, or not finite
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that the dataset must have
      integer, intent(in), optional :: rank
      type(tensor_type) :: wanted
      wanted = staged
      call self%staging%like(wanted, staged, error)
      if (.not. allocated(error)) call read_finite(self, path, staged, error, rank)
   end subroutine stage

   !> A dataset without NaN and infinity
   subroutine read_finite(self, path, tensor, error, rank)
      class(fixture_type), intent(in) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> To be filled, *host*
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that the dataset must have
      integer, intent(in), optional :: rank
      call self%file%read_tensor(path, tensor, error, rank)
      if (allocated(error)) return
      if (all_finite(tensor%address, tensor%dtype, tensor%count())) return
      call fail(error, self%file%path//": "//path//" holds NaN or infinity, expected finite "// &
         & dtype_name(tensor%dtype)//" values")
   end subroutine read_finite

   subroutine fixture_close(self)
      class(fixture_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      ! A file that was only read has nothing to lose
      call self%file%close(ignored)
      call self%staging%free()
   end subroutine fixture_close

end module cnn_io_fixture
