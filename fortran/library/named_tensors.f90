! SPDX-License-Identifier: MIT
!> Tensors of a network by torch's names: `conv1.weight`, `norm.running_mean`, `relu1`.
module cnn_library_named_tensors
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   public :: find_gradient, find_output, find_parameter, find_value, parameter_names

contains

   !> A parameter or a number that a layer keeps
   subroutine find_value(network, name, tensor, shape, error)
      !> That is built
      class(network_type), intent(in) :: network
      !> layer.weight, layer.bias, layer.running_mean, ...
      character(len=*), intent(in) :: name
      !> Of the network, not a copy
      type(tensor_type), intent(out) :: tensor
      !> Its shape
      type(shape_type), intent(out) :: shape
      !> No such name
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      type(parameter_type) :: parameter
      integer :: i, j
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%state)
            if (layer%name//"."//trim(layer%state_shapes(j)%name) /= name) cycle
            tensor = layer%state(j)
            shape = layer%state_shapes(j)%shape
            return
         end do
      end do
      call find_parameter(network, name, parameter, shape, error)
      tensor = parameter%value
   end subroutine find_value

   !> A parameter with its gradient
   subroutine find_parameter(network, name, parameter, shape, error)
      !> That is built
      class(network_type), intent(in) :: network
      !> layer.weight or layer.bias
      character(len=*), intent(in) :: name
      !> Of the network, not a copy
      type(parameter_type), intent(out) :: parameter
      !> Its shape
      type(shape_type), intent(out) :: shape
      !> No such name
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer :: i, j
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            if (layer%name//"."//trim(layer%parameter_shapes(j)%name) /= name) cycle
            parameter = layer%parameters(j)
            shape = layer%parameter_shapes(j)%shape
            return
         end do
      end do
      call fail(error, "network: it has no "//name//", expected the name of a layer, a dot, and weight, bias or "// &
         & "what it keeps")
   end subroutine find_parameter

   !> What a layer gives
   subroutine find_output(network, name, tensor, shape, error)
      !> After a forward pass
      class(network_type), intent(in) :: network
      !> The layer's
      character(len=*), intent(in) :: name
      !> Of the network, not a copy
      type(tensor_type), intent(out) :: tensor
      !> Its shape
      type(shape_type), intent(out) :: shape
      !> No such layer, or its output is not kept
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      call find_layer(network, name, layer, error)
      if (allocated(error)) return
      tensor = layer%output
      shape = shape_type(layer%rank, tensor%extent)
      if (allocated(layer%hidden_because)) then
         call fail(error, "output of "//name//": "//layer%hidden_because)
      else if (.not. tensor%is_allocated()) then
         call fail(error, "output of "//name//": there is none yet, or it is not kept")
      end if
   end subroutine find_output

   !> The gradient with respect to a parameter (layer.weight), a layer's output (layer) or the input (input)
   subroutine find_gradient(network, name, tensor, shape, error)
      !> After a backward pass
      class(network_type), intent(in) :: network
      !> Of what it is the gradient with respect to
      character(len=*), intent(in) :: name
      !> Of the network, not a copy
      type(tensor_type), intent(out) :: tensor
      !> Its shape
      type(shape_type), intent(out) :: shape
      !> No such name, or the gradient is not kept
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      type(parameter_type) :: parameter
      if (name == "input") then
         tensor = network%input_gradient
         shape = shape_type(network%input_rank, tensor%extent)
      else
         call find_layer(network, name, layer, error)
         tensor = layer%output_gradient
         shape = shape_type(layer%rank, tensor%extent)
         if (allocated(error)) then
            call find_parameter(network, name, parameter, shape, error)
            tensor = parameter%gradient
         end if
      end if
      if (.not. (allocated(error) .or. tensor%is_allocated())) call fail(error, "gradient of "//name// &
         & ": there is none yet, or the network does not keep it")
   end subroutine find_gradient

   !> Names of all parameters, in the order of the network
   subroutine parameter_names(network, names)
      !> That is built
      class(network_type), intent(in) :: network
      !> layer.weight, layer.bias, ...
      type(name_type), allocatable, intent(out) :: names(:)
      type(layer_view_type) :: layer
      integer :: i, j, n
      n = 0
      do i = 1, network%layer_count()
         call network%view(i, layer)
         n = n + size(layer%parameters)
      end do
      allocate (names(n))
      n = 0
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            n = n + 1
            names(n)%text = layer%name//"."//trim(layer%parameter_shapes(j)%name)
         end do
      end do
   end subroutine parameter_names

   subroutine find_layer(network, name, layer, error)
      !> That is built
      class(network_type), intent(in) :: network
      !> The layer's
      character(len=*), intent(in) :: name
      !> Found
      type(layer_view_type), intent(out) :: layer
      !> No such layer
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, network%layer_count()
         call network%view(i, layer)
         if (layer%name == name) return
      end do
      call fail(error, "network: it has no layer "//name)
   end subroutine find_layer

end module cnn_library_named_tensors
