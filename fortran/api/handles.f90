! SPDX-License-Identifier: MIT
!> Networks by their handles, and what belongs to them by its number.
module cnn_api_handles
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_model_description, only : description_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_operations_attributes, only : attributes_type
   implicit none
   private

   public :: new_draft, free_network, find_draft, find_network, find_parameter, named_tensor

   !> A network, or before it is built what it will be made of
   type, public :: draft_type
      class(network_type), allocatable :: network
      type(description_type) :: description
      !> The layer that is being described, which is added to the description when the next one begins
      character(len=:), allocatable :: kind, name, inputs
      type(attributes_type) :: attributes
   contains
      procedure :: add_layer
   end type draft_type

   type :: slot_type
      type(draft_type), pointer :: draft => null()
   end type slot_type

   !> Networks by handle; a freed place is used again. Calls on several networks may be at work at the same time
   type(slot_type), allocatable :: slots(:)

contains

   !> A place for a new network
   subroutine new_draft(handle)
      !> Its number
      integer(c_int), intent(out) :: handle
      !$omp critical (cnn_handles)
      handle = int(free_place(), c_int)
      allocate (slots(handle)%draft)
      !$omp end critical (cnn_handles)
   end subroutine new_draft

   !> The layer that is being described, where there is one, is complete
   subroutine add_layer(self, error)
      class(draft_type), intent(inout) :: self
      !> It cannot be a layer
      type(error_type), allocatable, intent(out) :: error
      if (.not. allocated(self%name)) return
      call self%description%add(self%kind, self%name, self%inputs, self%attributes, error)
      deallocate (self%name)
   end subroutine add_layer

   !> Free a network; an unknown handle is not an error
   subroutine free_network(handle)
      !> Its number
      integer(c_int), intent(in) :: handle
      type(draft_type), pointer :: draft
      type(error_type), allocatable :: error
      call find_draft(handle, draft, error)
      if (allocated(error)) return
      ! By itself, so that it is finalized
      if (allocated(draft%network)) deallocate (draft%network)
      !$omp critical (cnn_handles)
      nullify (slots(handle)%draft)
      !$omp end critical (cnn_handles)
      deallocate (draft)
   end subroutine free_network

   subroutine find_draft(handle, draft, error)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> With this handle; null where there is none
      type(draft_type), pointer, intent(out) :: draft
      !> Where there is no such network
      type(error_type), allocatable, intent(out) :: error
      nullify (draft)
      !$omp critical (cnn_handles)
      if (allocated(slots)) then
         if (handle >= 1 .and. handle <= size(slots)) draft => slots(handle)%draft
      end if
      !$omp end critical (cnn_handles)
      if (.not. associated(draft)) call fail(error, "network "//to_text(int(handle))//" does not exist")
   end subroutine find_draft

   subroutine find_network(handle, network, error)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> With this handle; null where there is none
      class(network_type), pointer, intent(out) :: network
      !> Where there is no such network, or it is not built
      type(error_type), allocatable, intent(out) :: error
      type(draft_type), pointer :: draft
      nullify (network)
      call find_draft(handle, draft, error)
      if (allocated(error)) return
      if (allocated(draft%network)) then
         network => draft%network
      else
         call fail(error, "network "//to_text(int(handle))//" is not built")
      end if
   end subroutine find_network

   !> A parameter of a network
   subroutine find_parameter(handle, layer, number, network, parameter, error)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> Number of the layer, from 1
      integer(c_int), intent(in) :: layer
      !> Number of the parameter in the layer, from 1
      integer(c_int), intent(in) :: number
      !> With this handle
      class(network_type), pointer, intent(out) :: network
      !> Found
      type(parameter_type), intent(out) :: parameter
      !> Where there is no such network or parameter
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: view
      call find_network(handle, network, error)
      if (allocated(error)) return
      if (layer >= 1 .and. layer <= network%layer_count()) then
         call network%view(int(layer), view)
         if (number >= 1 .and. number <= size(view%parameters)) parameter = view%parameters(number)
      end if
      if (parameter%number == 0) call fail(error, "network: layer "//to_text(int(layer))// &
         & " has no parameter number "//to_text(int(number)))
   end subroutine find_parameter

   !> item: 1 value of a parameter, 2 its gradient, 3 and 4 what the optimizer remembers of it, 5 the layer's output,
   !> 6 the output's gradient, 7 state
   subroutine named_tensor(network, layer, item, number, tensor, error)
      !> With this tensor
      class(network_type), intent(in) :: network
      !> Number of the layer, from 1; 0 for the network's input
      integer(c_int), intent(in) :: layer
      !> What of the layer
      integer(c_int), intent(in) :: item
      !> Number of the parameter or state in the layer, from 1
      integer(c_int), intent(in) :: number
      !> Found; not allocated where it does not exist yet
      type(tensor_type), intent(out) :: tensor
      !> Where there is no such number, or the output is kept in a form of the device's own
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: view
      if (layer == 0 .and. item == 6) then
         tensor = network%input_gradient
         return
      end if
      if (layer < 1 .or. layer > network%layer_count()) then
         call fail(error, "layer "//to_text(int(layer))//" of a network of "//to_text(network%layer_count()))
         return
      end if
      call network%view(int(layer), view)
      if (number < 1 .or. (item <= 4 .and. number > size(view%parameters)) .or. &
         & (item == 7 .and. number > size(view%state))) then
         call fail(error, "layer "//view%name//": no tensor "//to_text(int(number))//" of item "//to_text(int(item)))
         return
      end if
      select case (item)
       case (1)
         tensor = view%parameters(number)%value
       case (2)
         tensor = view%parameters(number)%gradient
       case (3, 4)
         tensor = network%parameters%memory(view%parameters(number)%number, item - 2)
       case (5)
         if (allocated(view%hidden_because)) then
            call fail(error, "output: "//view%hidden_because)
         else
            tensor = view%output
         end if
       case (6)
         tensor = view%output_gradient
       case (7)
         tensor = view%state(number)
       case default
         call fail(error, "no item number "//to_text(int(item)))
      end select
   end subroutine named_tensor

   !> The number of a place without a network; the table grows when all are taken
   integer function free_place()
      type(slot_type), allocatable :: larger(:)
      if (.not. allocated(slots)) allocate (slots(8))
      do free_place = 1, size(slots)
         if (.not. associated(slots(free_place)%draft)) return
      end do
      allocate (larger(2*size(slots)))
      larger(:size(slots)) = slots
      call move_alloc(larger, slots)
   end function free_place

end module cnn_api_handles
