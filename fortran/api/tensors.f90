! SPDX-License-Identifier: MIT
!> The tensors and parameters of a network: where they are, their values, which of them learn.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_tensors
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t, c_intptr_t
   use cnn_api_handles, only : find_network, find_parameter, named_tensor
   use cnn_api_values, only : hand_over, pointer_to
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_optimizers_optimizer, only : optimizer_type
   use cnn_optimizers_registry, only : make_optimizer
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: network_address, network_copy, network_freeze, network_frozen, network_keep_memory

contains

   !> Address and extent of a tensor; address 0 when it does not exist (yet).
   !> `layer` counts from 1, 0 is the network's input; `item`, `number`: see `named_tensor`
   subroutine network_address(handle, layer, item, number, address, extent, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> What of the layer, see `named_tensor`
      integer(c_int), intent(in) :: item
      !> Number of the parameter or state in the layer, from 1
      integer(c_int), intent(in) :: number
      !> Of the first element, in the network's memory; 0 where there is no such tensor yet
      integer(c_int64_t), intent(out) :: address
      !> [w, h, c, n]
      integer(c_int), intent(out) :: extent(4)
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(tensor_type) :: tensor
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, item, number, tensor, error)
      address = transfer(tensor%address, 0_c_intptr_t)
      extent = tensor%extent
      call hand_over(error, ierr, errmsg)
   end subroutine network_address

   !> Copy a tensor (as in `network_address`) to host memory of its size
   subroutine network_copy(handle, layer, item, number, host, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> What of the layer, see `named_tensor`
      integer(c_int), intent(in) :: item
      !> Number of the parameter or state in the layer, from 1
      integer(c_int), intent(in) :: number
      !> Address in host memory, of the tensor's size
      integer(c_int64_t), intent(in) :: host
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(tensor_type) :: tensor
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call named_tensor(network, layer, item, number, tensor, error)
      if (.not. allocated(error)) call network%backend%copy_out(tensor, pointer_to(host), error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_copy

   !> From now on updates leave a parameter as it is (1) or not (0)
   subroutine network_freeze(handle, layer, number, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> Number of the parameter in the layer, from 1
      integer(c_int), intent(in) :: number
      !> 1 or 0
      integer(c_int), intent(in) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, number, network, parameter, error)
      if (.not. allocated(error)) call network%parameters%freeze(parameter%number, frozen /= 0)
      call hand_over(error, ierr, errmsg)
   end subroutine network_freeze

   !> 1 if updates leave a parameter as it is, else 0
   subroutine network_frozen(handle, layer, number, frozen, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> Number of the parameter in the layer, from 1
      integer(c_int), intent(in) :: number
      !> 1 or 0
      integer(c_int), intent(out) :: frozen
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      frozen = 0
      call find_parameter(handle, layer, number, network, parameter, error)
      if (.not. allocated(error)) frozen = merge(1, 0, network%parameters%is_frozen(parameter%number))
      call hand_over(error, ierr, errmsg)
   end subroutine network_frozen

   !> Let an optimizer's numbers be remembered of a parameter (1), zero where they were not, or forget them (0)
   subroutine network_keep_memory(handle, layer, number, kind, kept, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> Number of the parameter in the layer, from 1
      integer(c_int), intent(in) :: number
      !> Type of the optimizer, as in exchange files
      character(len=*), intent(in) :: kind
      !> 1 or 0
      integer(c_int), intent(in) :: kept
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      class(optimizer_type), allocatable :: optimizer
      type(parameter_type) :: parameter
      type(error_type), allocatable :: error
      call find_parameter(handle, layer, number, network, parameter, error)
      if (.not. allocated(error)) call make_optimizer(kind, optimizer, error)
      if (allocated(error)) then
         continue
      else if (kept /= 0) then
         call network%parameters%keep_memory(network%backend, parameter%number, optimizer%memory_names(), 1_i8, error)
      else
         call network%parameters%forget(parameter%number)
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_keep_memory

end module cnn_api_tensors
