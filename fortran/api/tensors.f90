! SPDX-License-Identifier: MIT
!> The tensors and parameters of a network: where they are, their values, which of them learn.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_tensors
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t, c_intptr_t
   use cnn_api_handles, only : find_network, find_parameter, named_tensor
   use cnn_api_values, only : hand_over, pointer_to
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : tensor_type
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: network_address, network_copy, network_freeze, network_frozen, network_keep_momentum

contains

   !> Address and extent of a tensor; address 0 when it does not exist (yet).
   !> `layer` counts from 1, 0 is the network's input; `which`: see `named_tensor`
   subroutine network_address(handle, layer, which, address, extent, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> Number of the tensor, see `named_tensor`
      integer(c_int), intent(in) :: which
      !> Of the first element, in the network's memory; 0 where there is no such tensor yet
      integer(c_int64_t), intent(out) :: address
      !> [w, h, c, n]
      integer(c_int), intent(out) :: extent(4)
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(tensor_type) :: tensor
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, which, tensor, error)
      address = transfer(tensor%address, 0_c_intptr_t)
      extent = tensor%extent
      call hand_over(error, ierr, errmsg)
   end subroutine network_address

   !> Copy a tensor (as in `network_address`) to host memory of its size
   subroutine network_copy(handle, layer, which, host, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> Number of the tensor, see `named_tensor`
      integer(c_int), intent(in) :: which
      !> Address in host memory, of the tensor's size
      integer(c_int64_t), intent(in) :: host
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, which, tensor, error)
      if (.not. allocated(error)) call network%backend%copy_out(tensor, pointer_to(host), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_copy

   !> From now on updates leave a parameter as it is (1) or not (0); `which`: 1 weight, 2 bias
   subroutine network_freeze(handle, layer, which, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> 1 its weight, 2 its bias
      integer(c_int), intent(in) :: which
      !> 1 or 0
      integer(c_int), intent(in) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) call network%parameters%freeze(parameter%number, frozen /= 0)
      call hand_over(error, ierr, errmsg)
   end subroutine network_freeze

   !> 1 if updates leave a parameter as it is, else 0
   subroutine network_frozen(handle, layer, which, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> 1 its weight, 2 its bias
      integer(c_int), intent(in) :: which
      !> 1 or 0
      integer(c_int), intent(out) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      frozen = 0
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) frozen = merge(1, 0, network%parameters%is_frozen(parameter%number))
      call hand_over(error, ierr, errmsg)
   end subroutine network_frozen

   !> Let a parameter have a momentum (1), zero where it had none, or forget it (0); `which`: 1 weight, 2 bias
   subroutine network_keep_momentum(handle, layer, which, kept, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> 1 its weight, 2 its bias
      integer(c_int), intent(in) :: which
      !> 1 or 0
      integer(c_int), intent(in) :: kept
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, which, network, parameter, error)
      if (.not. allocated(error)) call network%parameters%keep_momentum(network%backend, parameter%number, kept /= 0, &
         & error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_keep_momentum

end module cnn_api_tensors
