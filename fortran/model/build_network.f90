! SPDX-License-Identifier: MIT
!> Networks from their descriptions: a chain of convolutions and ReLUs, which devices compute in fused sequences, or
!> else a graph of operations.
module cnn_model_build_network
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_float32, dtype_float64, dtype_name
   use cnn_devices, only : open_device
   use cnn_model_chain, only : chain_type
   use cnn_model_description, only : description_type
   use cnn_model_graph, only : graph_type
   use cnn_model_network, only : network_type
   implicit none
   private

   public :: build_network

contains

   !> A network with undefined weights
   subroutine build_network(description, dtype, device, keep_activations, network, error)
      !> What it is made of
      type(description_type), intent(in) :: description
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> `keep_all`, `keep_after_relu` or `keep_needed` of cnn_model_network
      integer, intent(in) :: keep_activations
      !> The new network
      class(network_type), allocatable, intent(out) :: network
      !> Unknown device, other element type, operations that do not fit together, or no memory
      type(error_type), allocatable, intent(out) :: error
      if (.not. allocated(description%nodes)) then
         call fail(error, "model: no layers, expected one or more")
      else if (dtype /= dtype_float32 .and. dtype /= dtype_float64) then
         call fail(error, "network: "//dtype_name(dtype)//", expected float32 or float64")
      else if (description%is_chain()) then
         call build_chain(description, dtype, device, keep_activations, network, error)
      else
         call build_graph(description, dtype, device, keep_activations, network, error)
      end if
   end subroutine build_network

   subroutine build_chain(description, dtype, device, keep_activations, network, error)
      !> Of a chain
      type(description_type), intent(in) :: description
      !> Element type
      integer, intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> What it keeps
      integer, intent(in) :: keep_activations
      !> The new network
      class(network_type), allocatable, intent(out) :: network
      !> Unknown device, layers that do not fit together, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(chain_type), allocatable :: chain
      allocate (chain)
      chain%dtype = dtype
      chain%keep_activations = keep_activations
      call open_device(device, chain%backend, error)
      if (.not. allocated(error)) call chain%build(description, error)
      if (.not. allocated(error)) call move_alloc(chain, network)
   end subroutine build_chain

   subroutine build_graph(description, dtype, device, keep_activations, network, error)
      !> Of a graph
      type(description_type), intent(in) :: description
      !> Element type
      integer, intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> What it keeps
      integer, intent(in) :: keep_activations
      !> The new network
      class(network_type), allocatable, intent(out) :: network
      !> Unknown device, operations that it lacks or that do not fit together, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(graph_type), allocatable :: graph
      allocate (graph)
      graph%dtype = dtype
      graph%keep_activations = keep_activations
      call open_device(device, graph%backend, error)
      if (.not. allocated(error)) call graph%build(description, error)
      if (.not. allocated(error)) call move_alloc(graph, network)
   end subroutine build_graph

end module cnn_model_build_network
