! SPDX-License-Identifier: MIT
!> Exchange files that are read: fixtures, and networks that were saved. docs/exchange-file.md has their names.
module cnn_io_fixture
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_name, i8
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : all_finite, tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_format, only : momenta_path, weights_path
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_header, only : read_format, read_optimizer
   use cnn_io_staging, only : staging_type
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_optimizers_optimizer, only : optimizer_type
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none
   private

   !> An exchange file to read
   type, public :: fixture_type
      type(hdf5_file_type) :: file
      !> The model description (JSON, of version 1) and the precision of the tensors
      character(len=:), allocatable :: model, precision
      !> With its settings; not allocated where the file has none
      class(optimizer_type), allocatable :: optimizer
      integer :: batches = 0
      !> Version of its format, and up to which it may be, set before `open`
      integer :: version = 1, newest = 1
      type(staging_type), private :: staging
   contains
      procedure :: open => fixture_open
      procedure :: read_weights
      procedure :: read_training
      procedure :: read_batch
      procedure :: close => fixture_close
      procedure :: read_tensor, read_checked, read_parameter
      procedure :: read_learning_rate
      procedure :: sgd => fixture_sgd
   end type fixture_type

contains

   !> Open a file, check its format, and read what is not a tensor
   subroutine fixture_open(self, path, error)
      !> A fixture that is not open
      class(fixture_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> File that cannot be read, or is no exchange file of this version
      type(error_type), allocatable, intent(out) :: error

      call self%file%open_to_read(path, error)
      if (allocated(error)) return
      call read_format(self%file, self%newest, self%version, error)
      if (allocated(error)) return
      self%precision = "float32"
      if (self%file%has_attribute("/", "precision")) then
         call self%file%read_text_attribute("/", "precision", self%precision, error)
      end if
      if (allocated(error)) return
      if (self%version == 1) call self%file%read_text("/model", self%model, error)
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
      !> The fixture, open; the rate of its optimizer is set
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

   !> Settings of SGD, which every file of version 1 has
   function fixture_sgd(self) result(sgd)
      !> The fixture, open
      class(fixture_type), intent(in) :: self
      type(sgd_type) :: sgd
      if (.not. allocated(self%optimizer)) return
      select type (optimizer => self%optimizer)
       type is (sgd_optimizer_type)
         sgd = optimizer%as_sgd()
      end select
   end function fixture_sgd

   !> Weights before step `step` into a network of the same model, and which of them are frozen
   subroutine read_weights(self, step, network, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network of the same model
      type(network_type), intent(inout) :: network
      !> Dataset that is missing, damaged, of another shape, or not finite
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i
      do i = 1, size(network%layers)
         path = weights_path(step, network%layers(i)%is%name)
         call self%read_parameter(path//"/weight", network%backend, network%parameters, network%layers(i)%weight, error)
         if (allocated(error)) return
         call self%read_parameter(path//"/bias", network%backend, network%parameters, network%layers(i)%bias, error)
         if (allocated(error)) return
      end do
   end subroutine read_weights

   !> A weight or bias, and whether it is frozen; nothing where a layer has none
   subroutine read_parameter(self, path, backend, parameters, parameter, error)
      !> Open
      class(fixture_type), intent(inout) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> The device where it is
      class(backend_type), intent(in) :: backend
      !> With this one; it is marked where it is frozen
      type(parameters_type), intent(inout) :: parameters
      !> To be read
      type(parameter_type), intent(in) :: parameter
      !> Of the file
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: frozen
      if (parameter%number == 0) return
      call self%read_checked(path, backend, parameter%value, error)
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

   !> Momenta before step `step`, where the file has them, and how many steps there were before it
   subroutine read_training(self, step, network, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Step whose momenta are read, from 0
      integer, intent(in) :: step
      !> A network that is built; momenta and number of the next step are set
      type(network_type), intent(inout) :: network
      !> A number or a tensor in the file that does not fit
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      real(dp) :: first
      integer :: i

      first = 0.0_dp
      if (self%file%has_attribute("/", "first_step")) call self%file%read_number("/", "first_step", first, error)
      if (allocated(error)) return
      if (.not. (first >= 0.0_dp .and. first <= 2.0_dp**53) .or. abs(first - aint(first)) > 0.0_dp) then
         call fail(error, self%file%path//": attribute first_step of / is "//to_text(first)// &
            & ", expected a whole number from 0 on")
         return
      end if
      network%steps_done = int(first, i8) + step
      do i = 1, size(network%layers)
         path = momenta_path(step, network%layers(i)%is%name)
         call read_momentum(self, path//"/weight", network, network%layers(i)%weight%number, error)
         if (allocated(error)) return
         call read_momentum(self, path//"/bias", network, network%layers(i)%bias%number, error)
         if (allocated(error)) return
      end do
   end subroutine read_training

   !> The momentum of a parameter, where both are there
   subroutine read_momentum(self, path, network, number, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Path of the dataset
      character(len=*), intent(in) :: path
      !> A network with this parameter
      type(network_type), intent(inout) :: network
      !> Number of the parameter, 0 for none
      integer, intent(in) :: number
      !> An error of the file
      type(error_type), allocatable, intent(out) :: error
      if (number == 0 .or. .not. self%file%has(path)) return
      call network%parameters%keep_momentum(network%backend, number, .true., error)
      if (allocated(error)) return
      call self%read_checked(path, network%backend, network%parameters%momentum(number), error)
   end subroutine read_momentum

   !> Input and target of step `step`, as new tensors of the network's device
   subroutine read_batch(self, step, network, input, target, error)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network on whose device they will be
      type(network_type), intent(inout) :: network
      !> Input (w, h, c, n), in the network's memory; what it was before is released
      type(tensor_type), intent(inout) :: input
      !> What the output should be, in the network's memory; what it was before is released
      type(tensor_type), intent(inout) :: target
      !> Dataset that is missing, damaged or not finite, or no memory
      type(error_type), allocatable, intent(out) :: error
      call self%read_tensor("/batches/"//to_text(step)//"/input", network%backend, network%dtype, input, error, 4)
      if (allocated(error)) return
      call self%read_tensor("/batches/"//to_text(step)//"/target", network%backend, network%dtype, target, error, 4)
   end subroutine read_batch

   !> A dataset as a new tensor of a device
   subroutine read_tensor(self, path, backend, dtype, tensor, error, expected_rank, rank)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> The device
      class(backend_type), intent(inout) :: backend
      !> Element type that it shall have, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> The new tensor; what it was before is released
      type(tensor_type), intent(inout) :: tensor
      !> Dataset that is missing, damaged or not finite, or no memory
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that it must have
      integer, intent(in), optional :: expected_rank
      !> Number of dimensions that it has
      integer, intent(out), optional :: rank
      integer :: extent(4)
      call backend%release(tensor)
      call self%file%extent(path, extent, error, expected_rank, rank)
      if (allocated(error)) return
      call backend%allocate(dtype, extent, tensor, error)
      if (allocated(error)) then
         error%message = self%file%path//": "//path//": "//error%message
         return
      end if
      call self%read_checked(path, backend, tensor, error, fresh=.true.)
   end subroutine read_tensor

   !> A dataset into a device tensor; NaN and infinity are refused. Unless it is `fresh`, it keeps its values then
   subroutine read_checked(self, path, backend, tensor, error, fresh)
      !> The fixture, open
      class(fixture_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> The device where the tensor is
      class(backend_type), intent(in) :: backend
      !> Tensor to be filled
      type(tensor_type), intent(in) :: tensor
      !> Dataset that is missing, damaged, of another shape, or not finite
      type(error_type), allocatable, intent(out) :: error
      !> Whether its values may be lost after an error
      logical, intent(in), optional :: fresh
      type(tensor_type) :: staged
      logical :: direct
      direct = .false.
      if (present(fresh)) direct = fresh .and. backend%in_host_memory
      staged = tensor
      if (.not. direct) call self%staging%like(tensor, staged, error)
      if (allocated(error)) return
      call self%file%read_tensor(path, staged, error)
      if (allocated(error)) return
      if (all_finite(staged%address, staged%dtype, staged%count())) then
         if (.not. direct) call backend%copy_in(staged%address, tensor, error)
      else
         call fail(error, self%file%path//": "//path//" holds NaN or infinity, expected finite "// &
            & dtype_name(tensor%dtype)//" values")
      end if
   end subroutine read_checked

   subroutine fixture_close(self)
      !> A fixture, open or not
      class(fixture_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      ! A file that was only read has nothing to lose
      call self%file%close(ignored)
      call self%staging%free()
   end subroutine fixture_close

end module cnn_io_fixture
