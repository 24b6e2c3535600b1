! SPDX-License-Identifier: MIT
!> Exchange files that are written: results, and networks that are saved. docs/exchange-file.md has their names.
module cnn_io_result
   use cnn_core_atomic_file, only : part_file_type
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_ranks, only : ranks_type
   use cnn_core_tensor, only : all_finite, tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_format, only : initial_state, optimizer_path, weights_path
   use cnn_io_hdf5_file, only : hdf5_file_type
   use cnn_io_header, only : write_header
   use cnn_io_model, only : write_model
   use cnn_io_staging, only : staging_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   !> An exchange file being written; it appears under its name only by `commit`
   type, public :: result_type
      type(hdf5_file_type) :: file
      character(len=:), allocatable :: path
      type(part_file_type), private :: part
      !> Refuse tensors with NaN or infinity: no reader of a fixture takes them
      logical :: finite_only = .false.
      !> The processes that have computed what is written, each a part; the first of them writes. None: this alone
      class(ranks_type), allocatable :: ranks
      type(staging_type), private :: staging, gathered
   contains
      procedure :: begin
      procedure :: write_weights
      procedure :: write_training
      procedure :: write_forward
      procedure :: write_output_gradients
      procedure :: write_parameter_gradients
      procedure :: write_loss
      procedure :: commit
      procedure :: abandon
      procedure, private :: write_state, write_staged, write_images, mark_frozen, writes
   end type result_type

contains

   !> Start a result: everything but tensors
   subroutine begin(self, path, producer, network, optimizer, error)
      class(result_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Whose model is written, and whose tensors will be written
      class(network_type), intent(in) :: network
      !> With its settings
      class(optimizer_type), intent(in) :: optimizer
      !> Unusable setting, or a file that cannot be created
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: reason
      ! A reader would refuse what no training can use
      call optimizer%check(error)
      if (allocated(error) .or. .not. self%writes()) return
      self%path = path
      call self%part%begin(path, error)
      if (allocated(error)) return
      call self%file%create(self%part%name, error)
      ! The user knows the file by its final name
      self%file%path = path
      if (allocated(error)) then
         call self%part%refusal(reason)
         error%message = path//": the file cannot be created ("//reason//")"
         return
      end if
      call self%part%hold()
      call write_header(self%file, producer, network%dtype, network%backend, optimizer, error)
      if (.not. allocated(error)) call write_model(self%file, network, error)
      if (allocated(error) .or. .not. allocated(self%ranks)) return
      if (self%ranks%count > 1) call self%file%write_number("/", "ranks", real(self%ranks%count, dp), error)
   end subroutine begin

   !> Whether this process writes the file
   pure logical function writes(self)
      class(result_type), intent(in) :: self
      writes = .true.
      if (allocated(self%ranks)) writes = self%ranks%rank == 0
   end function writes

   !> Parameters before step `step` (after the last step: with its number plus one), and which are frozen
   subroutine write_weights(self, step, network, error)
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> The network
      class(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      character(len=:), allocatable :: path
      integer :: i, j
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            path = weights_path(step, layer%name)//"/"//trim(layer%parameter_shapes(j)%name)
            call self%write_staged(path, network%backend, layer%parameters(j)%value, &
               & layer%parameter_shapes(j)%shape%rank, error)
            if (allocated(error)) return
            call self%mark_frozen(path, network%parameters, layer%parameters(j), error)
            if (allocated(error)) return
         end do
      end do
   end subroutine write_weights

   !> The attribute of the dataset of a frozen parameter
   subroutine mark_frozen(self, path, parameters, parameter, error)
      class(result_type), intent(in) :: self
      !> Of the dataset
      character(len=*), intent(in) :: path
      !> With this one
      type(parameters_type), intent(in) :: parameters
      !> Which has been written
      type(parameter_type), intent(in) :: parameter
      type(error_type), allocatable, intent(out) :: error
      if (.not. self%writes()) return
      if (parameters%is_frozen(parameter%number)) call self%file%write_number(path, "frozen", 1.0_dp, error)
   end subroutine mark_frozen

   !> What a training needs besides parameters to go on: what the optimizer remembers, the state of operations, and how
   !> many steps there were before
   subroutine write_training(self, network, optimizer, error)
      class(result_type), intent(inout) :: self
      !> A network between two steps
      class(network_type), intent(in) :: network
      !> Who goes on from here
      class(optimizer_type), intent(in) :: optimizer
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer :: i, j
      call self%file%write_number("/", "first_step", real(network%steps_done, dp), error)
      if (allocated(error)) return
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            call write_memory(self, optimizer_path(0, layer%name)//"/"//trim(layer%parameter_shapes(j)%name), network, &
               & optimizer, layer%parameters(j)%number, layer%parameter_shapes(j)%shape%rank, error)
            if (allocated(error)) return
         end do
         call self%write_state(initial_state//layer%name, network, layer, error)
         if (allocated(error)) return
      end do
   end subroutine write_training

   !> What the optimizer remembers of a parameter. Where it would remember something and has not updated it yet, the
   !> group says so by 0 updates: a reader misses nothing
   subroutine write_memory(self, path, network, optimizer, number, rank, error)
      class(result_type), intent(inout) :: self
      !> Of the group
      character(len=*), intent(in) :: path
      !> With this parameter
      class(network_type), intent(in) :: network
      !> Who remembers
      class(optimizer_type), intent(in) :: optimizer
      !> Its number
      integer, intent(in) :: number
      !> Its dimensions
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      if (optimizer%states() > 0 .and. .not. network%parameters%is_frozen(number) &
         & .and. .not. network%parameters%has_memory_of(number, optimizer)) then
         call self%file%write_number(path, "updates", 0.0_dp, error)
         return
      end if
      do i = 1, network%parameters%memory_count(number)
         call self%write_staged(path//"/"//network%parameters%memory_name(i), network%backend, &
            & network%parameters%memory(number, i), rank, error)
         if (allocated(error)) return
      end do
      if (i > 1) call self%file%write_number(path, "updates", real(network%parameters%updates_of(number), dp), error)
   end subroutine write_memory

   !> What a layer keeps from step to step and does not learn
   subroutine write_state(self, path, network, layer, error)
      class(result_type), intent(inout) :: self
      !> Of the group
      character(len=*), intent(in) :: path
      !> Whose layer it is
      class(network_type), intent(in) :: network
      !> The layer
      type(layer_view_type), intent(in) :: layer
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(layer%state)
         call self%write_staged(path//"/"//trim(layer%state_shapes(i)%name), network%backend, layer%state(i), &
            & layer%state_shapes(i)%shape%rank, error)
         if (allocated(error)) return
      end do
   end subroutine write_state

   !> Outputs of all layers, and the state that the forward pass has changed
   subroutine write_forward(self, step, network, error)
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network after a forward pass
      class(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      character(len=:), allocatable :: path
      integer :: i
      path = "/steps/"//to_text(step)
      do i = 1, network%layer_count()
         call network%view(i, layer)
         call self%write_images(path//"/forward/"//layer%name, network, layer%output, layer%rank, error)
         if (allocated(error)) return
         if (layer%changes_state) call self%write_state(path//"/state/"//layer%name, network, layer, error)
         if (allocated(error)) return
      end do
   end subroutine write_forward

   !> Gradients with respect to outputs and the input
   subroutine write_output_gradients(self, step, network, error)
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network after a backward pass
      class(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      character(len=:), allocatable :: path
      integer :: i
      path = "/steps/"//to_text(step)//"/grads/"
      call self%write_images(path//"input", network, network%input_gradient, network%input_rank, error)
      do i = 1, network%layer_count()
         if (allocated(error)) return
         call network%view(i, layer)
         call self%write_images(path//layer%name//"/output", network, layer%output_gradient, layer%rank, error)
      end do
   end subroutine write_output_gradients

   !> Gradients with respect to parameters
   subroutine write_parameter_gradients(self, step, network, error)
      class(result_type), intent(inout) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Network after a backward pass
      class(network_type), intent(in) :: network
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      character(len=:), allocatable :: path
      integer :: i, j
      path = "/steps/"//to_text(step)//"/grads/"
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            call self%write_staged(path//layer%name//"/"//trim(layer%parameter_shapes(j)%name), network%backend, &
               & layer%parameters(j)%gradient, layer%parameter_shapes(j)%shape%rank, error)
            if (allocated(error)) return
         end do
      end do
   end subroutine write_parameter_gradients

   subroutine write_loss(self, step, loss, error)
      class(result_type), intent(in) :: self
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Loss of the weights before the step's update
      real(dp), intent(in) :: loss
      type(error_type), allocatable, intent(out) :: error
      if (self%writes()) call self%file%write_scalar("/steps/"//to_text(step)//"/loss", loss, error)
   end subroutine write_loss

   !> What is there of each image: the ranks' parts one after the other
   subroutine write_images(self, path, network, tensor, rank, error)
      class(result_type), intent(inout) :: self
      !> Name of the dataset
      character(len=*), intent(in) :: path
      !> Whose tensor it is
      class(network_type), intent(in) :: network
      !> Of this rank's images
      type(tensor_type), intent(in) :: tensor
      !> Its dimensions, of which the last is that of the images
      integer, intent(in) :: rank
      !> Error of the file, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: own, whole, wanted
      logical :: is_alone
      is_alone = .not. allocated(self%ranks)
      if (.not. is_alone) is_alone = self%ranks%count == 1
      if (is_alone) then
         call self%write_staged(path, network%backend, tensor, rank, error)
         return
      end if
      own = tensor
      if (.not. network%backend%in_host_memory) then
         call self%staging%like(tensor, own, error)
         if (.not. allocated(error)) call network%backend%copy_out(tensor, own%address, error)
         if (allocated(error)) return
      end if
      wanted = tensor
      wanted%extent(rank) = network%batch_images
      if (self%writes()) call self%gathered%like(wanted, whole, error)
      if (allocated(error)) return
      call self%ranks%gather(own, network%batch_images, whole)
      if (self%writes()) call self%file%write_tensor(path, whole, rank, error)
   end subroutine write_images

   subroutine write_staged(self, path, backend, tensor, rank, error)
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
      logical :: is_finite
      if (.not. self%writes()) return
      staged = tensor
      if (.not. backend%in_host_memory) then
         call self%staging%like(tensor, staged, error)
         if (allocated(error)) return
         call backend%copy_out(tensor, staged%address, error)
         if (allocated(error)) return
      end if
      is_finite = .true.
      if (self%finite_only) is_finite = all_finite(staged%address, staged%dtype, staged%count())
      if (.not. is_finite) then
         call fail(error, self%path//": not written, as "//path//" holds NaN or infinity, expected finite values "// &
            & "(the training diverges: a smaller lr?)")
      else
         call self%file%write_tensor(path, staged, rank, error)
      end if
   end subroutine write_staged

   !> Close the file and put it in its place
   subroutine commit(self, error)
      class(result_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%staging%free()
      call self%gathered%free()
      if (.not. self%writes()) return
      call self%file%close(error)
      if (allocated(error)) then
         call self%part%discard()
      else
         call self%part%commit(error)
      end if
   end subroutine commit

   !> Forget an unfinished result; an older file of its name stays as it was
   subroutine abandon(self)
      class(result_type), intent(inout) :: self
      type(error_type), allocatable :: ignored
      call self%staging%free()
      call self%gathered%free()
      if (.not. self%writes()) return
      call self%file%close(ignored)
      call self%part%discard()
   end subroutine abandon

end module cnn_io_result
