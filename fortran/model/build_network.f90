! SPDX-License-Identifier: MIT
!> Networks from their descriptions.
module cnn_model_build_network
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_float32, dtype_float64, dtype_name
   use cnn_devices, only : open_device
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
      type(graph_type), allocatable :: graph
      if (.not. allocated(description%nodes)) then
         call fail(error, "model: no layers, expected one or more")
      else if (dtype /= dtype_float32 .and. dtype /= dtype_float64) then
         call fail(error, "network: "//dtype_name(dtype)//", expected float32 or float64")
      end if
      if (allocated(error)) return
      allocate (graph)
      graph%dtype = dtype
      graph%keep_activations = keep_activations
      call open_device(device, graph%backend, error)
      if (.not. allocated(error)) call graph%build(description, error)
      if (.not. allocated(error)) call move_alloc(graph, network)
   end subroutine build_network

end module cnn_model_build_network
