! SPDX-License-Identifier: MIT
!> Copies of networks: all that a training goes on from, in memory of their own.
module cnn_library_copies
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : layer_view_type, network_type
   implicit none
   private

   public :: copy_network

contains

   !> A network of the same layers on the same device, with the same parameters, state and what the optimizer remembers
   subroutine copy_network(from, description, device, to, error)
      !> The network
      class(network_type), intent(in) :: from
      !> What it is made of
      type(description_type), intent(in) :: description
      !> Name of its device, with its options
      character(len=*), intent(in) :: device
      !> The copy
      class(network_type), allocatable, intent(out) :: to
      !> No memory
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: mine, theirs
      integer :: i, j
      call build_network(description, from%dtype, device, from%keep_activations, to, error)
      if (allocated(error)) return
      to%steps_done = from%steps_done
      do i = 1, from%layer_count()
         call from%view(i, theirs)
         call to%view(i, mine)
         do j = 1, size(theirs%state)
            call to%backend%convert(theirs%state(j), mine%state(j), error)
            if (allocated(error)) return
         end do
         do j = 1, size(theirs%parameters)
            call copy_parameter(from, theirs%parameters(j)%number, theirs%parameters(j)%value, &
               & mine%parameters(j)%value, to, error)
            if (allocated(error)) return
         end do
      end do
      call to%backend%wait(error)
   end subroutine copy_network

   !> The values of a parameter, whether it is frozen, and what the optimizer remembers of it
   subroutine copy_parameter(from, number, value, copied, to, error)
      !> The network
      class(network_type), intent(in) :: from
      !> Of the parameter, the same in both
      integer, intent(in) :: number
      !> In the network
      type(tensor_type), intent(in) :: value
      !> In the copy
      type(tensor_type), intent(in) :: copied
      !> The copy
      class(network_type), intent(inout) :: to
      !> No memory
      type(error_type), allocatable, intent(out) :: error
      type(name_type), allocatable :: names(:)
      integer :: i
      call to%backend%convert(value, copied, error)
      if (allocated(error)) return
      call to%parameters%freeze(number, from%parameters%is_frozen(number))
      allocate (names(from%parameters%memory_count(number)))
      if (size(names) == 0) return
      do i = 1, size(names)
         names(i)%text = from%parameters%memory_name(i)
      end do
      call to%parameters%keep_memory(to%backend, number, names, from%parameters%updates_of(number), error)
      do i = 1, size(names)
         if (.not. allocated(error)) call to%backend%convert(from%parameters%memory(number, i), &
            & to%parameters%memory(number, i), error)
      end do
   end subroutine copy_parameter

end module cnn_library_copies
