! SPDX-License-Identifier: MIT
!> Networks: made, freed, read, saved, and how they are computed.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_network
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t
   use cnn_api_handles, only : find_network, free_network, new_network
   use cnn_api_values, only : hand_over
   use cnn_core_error, only : error_type
   use cnn_core_sgd, only : sgd_type
   use cnn_core_version, only : version
   use cnn_io_fixture, only : fixture_type
   use cnn_io_result, only : result_type
   use cnn_model_network, only : network_type
   use cnn_model_network_plan, only : describe_plan
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: network_create, network_free, network_read_weights, network_save, network_steps_done, network_plan

contains

   !> A new network from a model description; its weights are zero.
   !> `kept` is `keep_all`, `keep_after_relu` or `keep_needed` of cnn_model_layers
   subroutine network_create(text, dtype, device, kept, handle, ierr, errmsg)
      !> Description of the model, JSON
      character(len=*), intent(in) :: text
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Element type, float32 or float64 of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> 0, 1 or 2: see above
      integer(c_int), intent(in) :: kept
      !> Number of the new network
      integer(c_int), intent(out) :: handle
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call new_network(handle, network)
      network%keep_activations = int(kept)
      call network%build(text, dtype, device, error)
      if (allocated(error)) call free_network(handle)
      call hand_over(error, ierr, errmsg)
   end subroutine network_create

   !> Free a network; an unknown handle is not an error
   subroutine network_free(handle)
      !> The network's number
      integer(c_int), intent(in) :: handle
      call free_network(handle)
   end subroutine network_free

   !> Weights before step `step` from an exchange file of the same model, with their momenta where it has them
   subroutine network_read_weights(handle, path, step, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the step in the file, from 0
      integer(c_int), intent(in) :: step
      !> Name of the file
      character(len=*), intent(in) :: path
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(fixture_type) :: fixture
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call read_file(path, step, network, fixture, error)
      call fixture%close()
      call hand_over(error, ierr, errmsg)
   end subroutine network_read_weights

   !> An exchange file with the model, the optimiser settings, and the weights and momenta as those before step 0; an
   !> older file stays as it was where one of them is NaN or infinite, which no reader would take
   subroutine network_save(handle, path, lr, momentum, dampening, weight_decay, nesterov, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 1 for Nesterov's momentum, else 0
      integer(c_int), intent(in) :: nesterov
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Learning rate
      real(c_double), intent(in) :: lr
      !> Factor of the momentum
      real(c_double), intent(in) :: momentum
      !> Of the gradient that goes into the momentum
      real(c_double), intent(in) :: dampening
      !> Factor of the weights that is added to their gradient
      real(c_double), intent(in) :: weight_decay
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(result_type) :: file
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call write_file(path, network, &
         & sgd_type(lr, momentum, dampening, weight_decay, nesterov /= 0), file, error)
      if (allocated(error)) call file%abandon()
      call hand_over(error, ierr, errmsg)
   end subroutine network_save

   !> Updates so far, those before the file was written that it comes from included
   subroutine network_steps_done(handle, steps, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> How many
      integer(c_int64_t), intent(out) :: steps
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      steps = 0
      call find_network(handle, network, error)
      if (.not. allocated(error)) steps = network%steps_done
      call hand_over(error, ierr, errmsg)
   end subroutine network_steps_done

   !> How a network's convolutions are computed for an input of these extents, a line for each fused sequence; see
   !> cnn_model_network_plan
   subroutine network_plan(handle, x_extent, text, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> A line for each fused sequence, blanks behind
      character(len=4096), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      character(len=:), allocatable :: plan
      type(error_type), allocatable :: error
      text = ""
      call find_network(handle, network, error)
      if (.not. allocated(error)) call describe_plan(network, int(x_extent), plan, error)
      if (.not. allocated(error)) text = plan
      call hand_over(error, ierr, errmsg)
   end subroutine network_plan

   !> Weights, momenta and the number of the step from a file
   subroutine read_file(path, step, network, fixture, error)
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Number of the step in the file, from 0
      integer(c_int), intent(in) :: step
      !> Of the same model
      type(network_type), intent(inout) :: network
      !> The file, to be closed in any case
      type(fixture_type), intent(inout) :: fixture
      !> Of the file
      type(error_type), allocatable, intent(out) :: error
      call fixture%open(path, error)
      if (allocated(error)) return
      call fixture%read_weights(step, network, error)
      if (allocated(error)) return
      call fixture%read_training(step, network, error)
   end subroutine read_file

   !> A file with a network, whole where there is no error
   subroutine write_file(path, network, sgd, file, error)
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Whose weights and momenta are written
      type(network_type), intent(in) :: network
      !> Settings of the optimizer
      type(sgd_type), intent(in) :: sgd
      !> The file, to be abandoned after an error
      type(result_type), intent(inout) :: file
      !> Of the file; a weight or momentum that is NaN or infinite
      type(error_type), allocatable, intent(out) :: error
      file%finite_only = .true.
      call file%create(path, "bridge.Network "//version, network, sgd, error)
      if (allocated(error)) return
      call file%write_weights(0, network, error)
      if (allocated(error)) return
      call file%write_training(network, error)
      if (allocated(error)) return
      call file%commit(error)
   end subroutine write_file

end module cnn_api_network
