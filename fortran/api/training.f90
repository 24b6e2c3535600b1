! SPDX-License-Identifier: MIT
!> The training of a network: forward, loss, backward, update, and whole steps.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_training
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t
   use cnn_api_handles, only : find_network
   use cnn_api_values, only : hand_over, optimizer_of, tensor_at
   use cnn_core_error, only : error_type
   use cnn_model_network, only : network_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: network_forward, network_set_training, network_set_mask, network_loss, network_backward, network_update, &
      & network_step, network_feed, network_step_fed, network_read_loss, network_captured

contains

   !> Outputs of all layers; the input must stay alive until `network_backward`
   subroutine network_forward(handle, input, extent, rank, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Address of the input, in the network's memory
      integer(c_int64_t), intent(in) :: input
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Dimensions of the input
      integer(c_int), intent(in) :: rank
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%forward(tensor_at(input, int(network%dtype, c_int), extent), error, &
         & int(rank))
      call hand_over(error, ierr, errmsg)
   end subroutine network_forward

   !> Compute as in training (1), or as after it (0)
   subroutine network_set_training(handle, training, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 1 or 0
      integer(c_int), intent(in) :: training
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%set_training(training /= 0)
      call hand_over(error, ierr, errmsg)
   end subroutine network_set_training

   !> The mask that a layer takes in the next forward passes
   subroutine network_set_mask(handle, layer, mask, extent, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> Address of the mask, 0 and 1, host memory; it is copied
      integer(c_int64_t), intent(in) :: mask
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> 0 good, 1 failed
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%set_mask(int(layer), tensor_at(mask, int(network%dtype, c_int), &
         & extent), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_set_mask

   subroutine network_loss(handle, target, extent, loss, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Address of the target, in the network's memory
      integer(c_int64_t), intent(in) :: target
      !> [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Mean or sum of (output - target)**2, as the model says
      real(c_double), intent(out) :: loss
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find_network(handle, network, error)
      if (.not. allocated(error)) then
         call network%compute_loss(tensor_at(target, int(network%dtype, c_int), extent), loss, error)
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_loss

   subroutine network_backward(handle, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%backward(error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_backward

   subroutine network_update(handle, kind, settings, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Type of the optimizer, as in exchange files
      character(len=*), intent(in) :: kind
      !> Its settings in their order there, the learning rate first; zeros behind them
      real(c_double), intent(in) :: settings(8)
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      class(optimizer_type), allocatable :: optimizer
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call optimizer_of(kind, settings, optimizer, error)
      if (.not. allocated(error)) call network%update(optimizer, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_update

   !> forward, loss, backward, update; the loss is read, which waits for the device, if `read` is not 0: it is an error
   !> (2) if it is NaN or infinite, and there is no update then
   subroutine network_step(handle, input, input_extent, rank, target, target_extent, kind, settings, read, loss, ierr, &
         & errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 1 to read the loss, which waits for the device; else 0
      integer(c_int), intent(in) :: read
      !> Address of the input, in the network's memory
      integer(c_int64_t), intent(in) :: input
      !> Address of the target, in the network's memory
      integer(c_int64_t), intent(in) :: target
      !> [w, h, c, n]
      integer(c_int), intent(in) :: input_extent(4)
      !> Dimensions of the input
      integer(c_int), intent(in) :: rank
      !> [w, h, c, n]
      integer(c_int), intent(in) :: target_extent(4)
      !> Type of the optimizer, as in exchange files
      character(len=*), intent(in) :: kind
      !> Its settings in their order there, the learning rate first; zeros behind them
      real(c_double), intent(in) :: settings(8)
      !> Of the weights before the update; 0 where it was not read
      real(c_double), intent(out) :: loss
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      class(optimizer_type), allocatable :: optimizer
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find_network(handle, network, error)
      if (.not. allocated(error)) call optimizer_of(kind, settings, optimizer, error)
      if (.not. allocated(error)) call network%step(tensor_at(input, int(network%dtype, c_int), input_extent), &
         & tensor_at(target, int(network%dtype, c_int), target_extent), optimizer, read /= 0, loss, error, int(rank))
      call hand_over(error, ierr, errmsg)
   end subroutine network_step

   !> Input and target of the next `network_step_fed`, from host memory, which is free to change on return
   subroutine network_feed(handle, input, input_extent, rank, target, target_extent, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Address of the input, host memory
      integer(c_int64_t), intent(in) :: input
      !> Address of the target, host memory
      integer(c_int64_t), intent(in) :: target
      !> [w, h, c, n]
      integer(c_int), intent(in) :: input_extent(4)
      !> Dimensions of the input
      integer(c_int), intent(in) :: rank
      !> [w, h, c, n]
      integer(c_int), intent(in) :: target_extent(4)
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%feed(tensor_at(input, int(network%dtype, c_int), input_extent), &
         & tensor_at(target, int(network%dtype, c_int), target_extent), error, int(rank))
      call hand_over(error, ierr, errmsg)
   end subroutine network_feed

   !> `network_step` with the last `network_feed`
   subroutine network_step_fed(handle, kind, settings, read, loss, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 1 to read the loss, which waits for the device; else 0
      integer(c_int), intent(in) :: read
      !> Type of the optimizer, as in exchange files
      character(len=*), intent(in) :: kind
      !> Its settings in their order there, the learning rate first; zeros behind them
      real(c_double), intent(in) :: settings(8)
      !> Of the weights before the update; 0 where it was not read
      real(c_double), intent(out) :: loss
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      class(optimizer_type), allocatable :: optimizer
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find_network(handle, network, error)
      if (.not. allocated(error)) call optimizer_of(kind, settings, optimizer, error)
      if (.not. allocated(error)) call network%step_fed(optimizer, read /= 0, loss, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_step_fed

   !> The loss of the last `network_loss` or `network_step`; waits for the device
   subroutine network_read_loss(handle, loss, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Of the weights before the last update
      real(c_double), intent(out) :: loss
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call find_network(handle, network, error)
      if (.not. allocated(error)) call network%read_loss(loss, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_read_loss

   !> 1 if the last step was the replay of a captured one, else 0
   subroutine network_captured(handle, captured, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> 1 or 0
      integer(c_int), intent(out) :: captured
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      captured = 0
      call find_network(handle, network, error)
      if (.not. allocated(error)) captured = merge(1, 0, network%is_captured())
      call hand_over(error, ierr, errmsg)
   end subroutine network_captured

end module cnn_api_training
