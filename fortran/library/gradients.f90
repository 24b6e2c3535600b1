! SPDX-License-Identifier: MIT
!> The gradients of all parameters as one vector: for sums over several processes or batches, for clipping by the norm.
module cnn_library_gradients
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : part_of, tensor_type
   use cnn_library_arrays, only : array_type
   use cnn_model_network, only : layer_view_type, network_type
   implicit none
   private

   public :: copy_gradients, parameter_count

contains

   !> How many numbers a network learns, frozen ones included
   integer function parameter_count(network)
      !> That is built
      class(network_type), intent(in) :: network
      type(layer_view_type) :: layer
      integer :: i, j
      parameter_count = 0
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            parameter_count = parameter_count + int(layer%parameters(j)%gradient%count())
         end do
      end do
   end function parameter_count

   !> To a vector or from it, one parameter after the other in the order of the layers
   subroutine copy_gradients(network, vector, back, error)
      !> That is built
      class(network_type), intent(in) :: network
      !> Of `parameter_count` elements of the network's type
      type(array_type), intent(in) :: vector
      !> From the vector to the network
      logical, intent(in) :: back
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      type(tensor_type) :: part
      integer(i8) :: bytes
      integer :: i, j
      bytes = 0_i8
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            associate (gradient => layer%parameters(j)%gradient)
               part = part_of(vector%tensor, bytes, gradient%extent)
               call copy_one(network, gradient, part, vector%on_device, back, error)
               if (allocated(error)) return
               bytes = bytes + gradient%bytes()
            end associate
         end do
      end do
   end subroutine copy_gradients

   !> The gradient of one parameter
   subroutine copy_one(network, gradient, part, on_device, back, error)
      !> With the device
      class(network_type), intent(in) :: network
      !> Of the parameter, the network's
      type(tensor_type), intent(in) :: gradient
      !> Its place in the caller's vector
      type(tensor_type), intent(in) :: part
      !> Whether the vector is on the device, too
      logical, intent(in) :: on_device
      !> From the vector to the network
      logical, intent(in) :: back
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      if (on_device .and. back) then
         call network%backend%convert(part, gradient, error)
      else if (on_device) then
         call network%backend%convert(gradient, part, error)
      else if (back) then
         call network%backend%copy_in(part%address, gradient, error)
      else
         call network%backend%copy_out(gradient, part%address, error)
      end if
   end subroutine copy_one

end module cnn_library_gradients
