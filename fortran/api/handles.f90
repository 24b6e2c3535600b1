! SPDX-License-Identifier: MIT
!> Networks by their handles, and what belongs to them by its number.
module cnn_api_handles
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_model_network, only : network_type
   use cnn_model_parameters, only : parameter_type
   implicit none
   private

   public :: new_network, free_network, find_network, find_parameter, named_tensor

   type :: slot_type
      type(network_type), pointer :: network => null()
   end type slot_type

   !> Networks by handle; a freed place is used again
   type(slot_type), allocatable :: slots(:)

contains

   !> A place for a new network
   subroutine new_network(handle, network)
      !> Its number
      integer(c_int), intent(out) :: handle
      !> Default initialised, to be built
      type(network_type), pointer, intent(out) :: network
      handle = int(free_place(), c_int)
      allocate (slots(handle)%network)
      network => slots(handle)%network
   end subroutine new_network

   !> Free a network; an unknown handle is not an error
   subroutine free_network(handle)
      !> Its number
      integer(c_int), intent(in) :: handle
      type(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (allocated(error)) return
      deallocate (slots(handle)%network)
   end subroutine free_network

   subroutine find_network(handle, network, error)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> With this handle; null where there is none
      type(network_type), pointer, intent(out) :: network
      !> Where there is no such network
      type(error_type), allocatable, intent(out) :: error
      nullify (network)
      if (allocated(slots)) then
         if (handle >= 1 .and. handle <= size(slots)) network => slots(handle)%network
      end if
      if (.not. associated(network)) call fail(error, "network "//to_text(int(handle))//" does not exist")
   end subroutine find_network

   !> A parameter of a network
   subroutine find_parameter(handle, layer, which, network, parameter, error)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> 1 its weight, 2 its bias
      integer(c_int), intent(in) :: which
      !> With this handle
      type(network_type), pointer, intent(out) :: network
      !> Found
      type(parameter_type), intent(out) :: parameter
      !> Where there is no such network or parameter
      type(error_type), allocatable, intent(out) :: error
      call find_network(handle, network, error)
      if (allocated(error)) return
      if (layer >= 1 .and. layer <= size(network%layers)) then
         parameter = network%layers(layer)%weight
         if (which == 2) parameter = network%layers(layer)%bias
      end if
      if (parameter%number == 0) call fail(error, "network: layer "//to_text(int(layer))// &
         & " has no parameter number "//to_text(int(which)))
   end subroutine find_parameter

   !> which: 1 weight, 2 bias, 3 weight gradient, 4 bias gradient, 5 output, 6 output gradient, 7 momentum of the
   !> weight, 8 of the bias
   subroutine named_tensor(network, layer, which, tensor, error)
      !> With this tensor
      type(network_type), intent(in) :: network
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> Number of the tensor
      integer(c_int), intent(in) :: which
      !> Found; not allocated where it does not exist yet
      type(tensor_type), intent(out) :: tensor
      !> Where there is no such number, or the output is kept in a form of the device's own
      type(error_type), allocatable, intent(out) :: error
      if (layer == 0 .and. which == 6) then
         tensor = network%input_gradient
         return
      end if
      if (layer < 1 .or. layer > size(network%layers)) then
         call fail(error, "layer "//to_text(int(layer))//" of a network of "//to_text(size(network%layers)))
         return
      end if
      select case (which)
       case (1)
         tensor = network%layers(layer)%weight%value
       case (2)
         tensor = network%layers(layer)%bias%value
       case (3)
         tensor = network%layers(layer)%weight%gradient
       case (4)
         tensor = network%layers(layer)%bias%gradient
       case (5)
         if (network%layers(layer)%opaque) then
            call fail(error, "output: the device keeps that of "//network%layers(layer)%is%name//" in a form of "// &
               & "its own, expected "//network%description%layers(size(network%layers))%name// &
               & ", or a network with keep_activations=True")
         else
            tensor = network%layers(layer)%output
         end if
       case (6)
         tensor = network%layers(layer)%output_gradient
       case (7)
         tensor = network%parameters%momentum(network%layers(layer)%weight%number)
       case (8)
         tensor = network%parameters%momentum(network%layers(layer)%bias%number)
       case default
         call fail(error, "no tensor number "//to_text(int(which)))
      end select
   end subroutine named_tensor

   !> The number of a place without a network; the table grows when all are taken
   integer function free_place()
      type(slot_type), allocatable :: larger(:)
      if (.not. allocated(slots)) allocate (slots(8))
      do free_place = 1, size(slots)
         if (.not. associated(slots(free_place)%network)) return
      end do
      allocate (larger(2*size(slots)))
      larger(:size(slots)) = slots
      call move_alloc(larger, slots)
   end function free_place

end module cnn_api_handles
