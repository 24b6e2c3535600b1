! SPDX-License-Identifier: MIT
!> Exchange files that are written: results, and networks that are saved. docs/exchange-file.md has their names.
module cnn_io_result
   use cnn_core_atomic_file, only : part_file_type
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : all_finite, tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_format, only : momenta_path, weights_path
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_header, only : write_header
   use cnn_io_staging, only : staging_type
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_optimizers_optimizer, only : optimizer_type
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none
   private

   !> An exchange file being written; it appears under its name only by `commit`
   type, public :: result_type
      type(hdf5_file_type) :: file
      character(len=:), allocatable :: path
      type(part_file_type), private :: part
      !> Refuse tensors with NaN or infinity: no reader of a fixture takes them
      logical :: finite_only = .false.
      type(staging_type), private :: staging
   contains
      procedure :: begin
      procedure :: create => result_create
      procedure :: write_weights
      procedure :: write_training
      procedure :: write_forward
      procedure :: write_gradients
      procedure :: write_loss
      procedure :: commit
      procedure :: abandon
      procedure :: write_staged, mark_frozen
      procedure, private :: write_parameters
   end type result_type

contains

   !> Start a result of a chain: everything but tensors
   subroutine result_create(self, path, producer, network, sgd, error)
      !> A result that is not begun
      class(result_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Network whose model is written
      type(network_type), intent(in) :: network
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> Unusable setting, or a file that cannot be created
      type(error_type), allocatable, intent(out) :: error
      call self%begin(path, producer, 1, network%dtype, network%backend, sgd_optimizer_type(sgd), error)
      if (allocated(error)) return
      call self%file%write_text("/model", network%description%text, error)
   end subroutine result_create

   !> Start a result: everything but the model and tensors
   subroutine begin(self, path, producer, version, dtype, backend, optimizer, error)
      !> A result that is not begun
      class(result_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Of the format
      integer, intent(in) :: version
      !> Element type of the tensors
      integer, intent(in) :: dtype
      !> What computes them
      class(backend_type), intent(in) :: backend
      !> With its settings
      class(optimizer_type), intent(in) :: optimizer
      !> Unusable setting, or a file that cannot be created
      type(error_type), allocatable, intent(out) :: error
      ! A reader would refuse what no training can use
      call optimizer%check(error)
      if (allocated(error)) return
      self%path = path
      call self%part%begin(path, error)
      if (allocated(error)) return
      call self%file%create(self%part%name, error)
      ! The user knows the file by its final name
      self%file%path = path
      if (allocated(error)) then
         error%message = path//": the file cannot be created (no room?)"
         return
      end if
      call self%part%hold()
      call write_header(self%file, producer, version, dtype, backend, optimizer, error)
   end subroutine begin

   !> Weights and biases before step `step` (after the last step: with its number plus one), and which are frozen
   subroutine write_weights(self, step, network, error)
      !> The result, created
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> The network
      type(network_type), intent(in) :: network
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_parameters(weights_path(step, layer%is%name), network, layer%weight%value, &
               & layer%bias%value, error)
            if (allocated(error)) return
            call self%mark_frozen(weights_path(step, layer%is%name)//"/weight", network%parameters, layer%weight, error)
            if (allocated(error)) return
            call self%mark_frozen(weights_path(step, layer%is%name)//"/bias", network%parameters, layer%bias, error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_weights

   !> The attribute of the dataset of a frozen parameter
   subroutine mark_frozen(self, path, parameters, parameter, error)
      !> With the dataset
      class(result_type), intent(in) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> With this one
      type(parameters_type), intent(in) :: parameters
      !> Which has been written
      type(parameter_type), intent(in) :: parameter
      !> Of the file
      type(error_type), allocatable, intent(out) :: error
      if (parameters%is_frozen(parameter%number)) call self%file%write_number(path, "frozen", 1.0_dp, error)
   end subroutine mark_frozen

   !> Momenta before step 0, of the parameters that have one, and how many steps there were before it
   subroutine write_training(self, network, error)
      !> The result, being written
      class(result_type), intent(inout) :: self
      !> A network whose momenta and number of the next step are written
      type(network_type), intent(in) :: network
      !> An error of the file
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call self%file%write_number("/", "first_step", real(network%steps_done, dp), error)
      if (allocated(error)) return
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_parameters(momenta_path(0, layer%is%name), network, &
               & network%parameters%momentum(layer%weight%number), &
               & network%parameters%momentum(layer%bias%number), error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_training

   !> Outputs of all layers
   subroutine write_forward(self, step, network, error)
      !> The result, created
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network after a forward pass
      type(network_type), intent(in) :: network
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(network%layers)
         call self%write_staged("/steps/"//to_text(step)//"/forward/"//network%layers(i)%is%name, network%backend, &
            & network%layers(i)%output, 4, error)
         if (allocated(error)) return
      end do
   end subroutine write_forward

   !> Gradients with respect to parameters, outputs and the input
   subroutine write_gradients(self, step, network, error)
      !> The result, created
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network after a backward pass
      type(network_type), intent(in) :: network
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i
      path = "/steps/"//to_text(step)//"/grads/"
      call self%write_staged(path//"input", network%backend, network%input_gradient, 4, error)
      if (allocated(error)) return
      do i = 1, size(network%layers)
         associate (layer => network%layers(i))
            call self%write_staged(path//layer%is%name//"/output", network%backend, layer%output_gradient, 4, error)
            if (allocated(error)) return
            call self%write_parameters(path//layer%is%name, network, layer%weight%gradient, &
               & layer%bias%gradient, error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine write_gradients

   subroutine write_loss(self, step, loss, error)
      !> The result, created
      class(result_type), intent(in) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Loss of the weights before the step's update
      real(dp), intent(in) :: loss
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      call self%file%write_scalar("/steps/"//to_text(step)//"/loss", loss, error)
   end subroutine write_loss

   !> A pair weight, bias; what is not allocated does not exist
   subroutine write_parameters(self, path, network, weight, bias, error)
      !> The result, created
      class(result_type), intent(inout) :: self
      !> Name of the group
      character(len=*), intent(in) :: path
      !> Network of whose device the tensors are
      type(network_type), intent(in) :: network
      !> First of the pair
      type(tensor_type), intent(in) :: weight
      !> Second of the pair
      type(tensor_type), intent(in) :: bias
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      if (weight%is_allocated()) call self%write_staged(path//"/weight", network%backend, weight, 4, error)
      if (allocated(error)) return
      if (bias%is_allocated()) call self%write_staged(path//"/bias", network%backend, bias, 1, error)
   end subroutine write_parameters

   subroutine write_staged(self, path, backend, tensor, rank, error)
      !> The result, created
      class(result_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> The device where the tensor is
      class(backend_type), intent(in) :: backend
      !> Tensor to be written
      type(tensor_type), intent(in) :: tensor
      !> Dimensions of the dataset: the first of the tensor's four
      integer, intent(in) :: rank
      !> Error of the file, or with `finite_only` a value that is NaN or infinite
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: staged
      staged = tensor
      if (.not. backend%in_host_memory) then
         call self%staging%like(tensor, staged, error)
         if (allocated(error)) return
         call backend%copy_out(tensor, staged%address, error)
         if (allocated(error)) return
      end if
      if (self%finite_only .and. .not. all_finite(staged%address, staged%dtype, staged%count())) then
         call fail(error, self%path//": not written, as "//path//" holds NaN or infinity, expected finite values "// &
            & "(the training diverges: a smaller lr?)")
      else
         call self%file%write_tensor(path, staged, rank, error)
      end if
   end subroutine write_staged

   !> Close the file and put it in its place
   subroutine commit(self, error)
      !> The result, complete
      class(result_type), intent(inout) :: self
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      call self%staging%free()
      call self%file%close(error)
      if (allocated(error)) then
         call self%part%discard()
      else
         call self%part%commit(error)
      end if
   end subroutine commit

   !> Forget an unfinished result; an older file of its name stays as it was
   subroutine abandon(self)
      !> A result, in whatever state
      class(result_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      call self%staging%free()
      call self%file%close(ignored)
      call self%part%discard()
   end subroutine abandon

end module cnn_io_result
