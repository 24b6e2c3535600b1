! SPDX-License-Identifier: MIT
!> Networks: made, freed, read, saved, and how they are computed.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_network
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t
   use cnn_api_handles, only : draft_type, find_draft, find_network, free_network, new_draft
   use cnn_api_values, only : hand_over, optimizer_of
   use cnn_core_error, only : error_type, fail
   use cnn_core_version, only : version
   use cnn_io_saved_network, only : read_training, save_network
   use cnn_model_build_network, only : build_network
   use cnn_model_graph, only : graph_type
   use cnn_model_network, only : network_type
   use cnn_operations_attributes, only : attribute_type
   use cnn_operations_shape, only : shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: network_begin, network_layer, network_attribute, network_build, network_free, network_read_weights, &
      & network_save, network_steps_done, network_plan

contains

   !> A new network: then come its layers, each with its hyperparameters, and `network_build`
   subroutine network_begin(handle, ierr, errmsg)
      !> Number of the new network
      integer(c_int), intent(out) :: handle
      !> 0
      integer(c_int), intent(out) :: ierr
      !> Blank
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call new_draft(handle)
      call hand_over(error, ierr, errmsg)
   end subroutine network_begin

   !> The next layer of a network that is not built yet
   subroutine network_layer(handle, kind, name, inputs, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Type of the layer, as in exchange files
      character(len=*), intent(in) :: kind
      !> The layer's
      character(len=*), intent(in) :: name
      !> Names of those whose outputs it takes, with commas between them; empty: the layer before
      character(len=*), intent(in) :: inputs
      !> 0 good, 1 failed
      integer(c_int), intent(out) :: ierr
      !> What is wrong with the layer before it, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(draft_type), pointer :: draft
      type(error_type), allocatable :: error
      call find_draft(handle, draft, error)
      if (.not. allocated(error)) call draft%add_layer(error)
      if (.not. allocated(error)) then
         draft%kind = kind
         draft%name = name
         draft%inputs = inputs
         draft%attributes%items = [attribute_type ::]
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_layer

   !> A hyperparameter of the last layer
   subroutine network_attribute(handle, name, count, numbers, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> As in exchange files
      character(len=*), intent(in) :: name
      !> How many numbers it has, 1 to 4
      integer(c_int), intent(in) :: count
      !> They, and zeros behind them
      real(c_double), intent(in) :: numbers(4)
      !> 0 good, 1 failed
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(draft_type), pointer :: draft
      type(attribute_type) :: attribute
      type(error_type), allocatable :: error
      call find_draft(handle, draft, error)
      if (.not. allocated(error)) then
         attribute%name = name
         attribute%numbers = numbers(:count)
         draft%attributes%items = [draft%attributes%items, attribute]
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine network_attribute

   !> After the last layer: the network, whose parameters and state are undefined.
   !> `kept` is `keep_all`, `keep_after_relu` or `keep_needed` of cnn_model_network
   subroutine network_build(handle, dtype, device, kept, loss, reduction, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Element type, float32 or float64 of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> 0, 1 or 2: see above
      integer(c_int), intent(in) :: kept
      !> Type of the loss and its settings, as in exchange files: `huber delta=0.5`
      character(len=*), intent(in) :: loss
      !> mean or sum
      character(len=*), intent(in) :: reduction
      !> 0 good, 1 failed
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(draft_type), pointer :: draft
      type(error_type), allocatable :: error
      call find_draft(handle, draft, error)
      if (.not. allocated(error)) call draft%add_layer(error)
      if (.not. allocated(error)) call draft%description%criterion%set(loss, reduction, error)
      if (.not. allocated(error)) call build_network(draft%description, dtype, device, int(kept), draft%network, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_build

   !> Free a network; an unknown handle is not an error
   subroutine network_free(handle)
      !> The network's number
      integer(c_int), intent(in) :: handle
      call free_network(handle)
   end subroutine network_free

   !> Weights before step `step` from an exchange file of the same model, with their momenta where it has them
   subroutine network_read_weights(handle, path, step, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Number of the step in the file, from 0
      integer(c_int), intent(in) :: step
      !> Name of the file
      character(len=*), intent(in) :: path
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      call find_network(handle, network, error)
      if (.not. allocated(error)) call read_training(path, int(step), network, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_read_weights

   !> An exchange file with the model, the optimiser's settings, and parameters, state and what the optimiser remembers
   !> as those before step 0; an older file stays as it was where one of them is NaN or infinite, which no reader would
   !> take
   subroutine network_save(handle, path, kind, settings, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Name of the file
      character(len=*), intent(in) :: path
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
      if (.not. allocated(error)) call save_network(path, "bridge.Network "//version, network, optimizer, error)
      call hand_over(error, ierr, errmsg)
   end subroutine network_save

   !> Updates so far, those before the file was written that it comes from included
   subroutine network_steps_done(handle, steps, ierr, errmsg)
      !> The network's
      integer(c_int), intent(in) :: handle
      !> How many
      integer(c_int64_t), intent(out) :: steps
      !> See `hand_over`
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      type(error_type), allocatable :: error
      steps = 0
      call find_network(handle, network, error)
      if (.not. allocated(error)) steps = network%steps_done
      call hand_over(error, ierr, errmsg)
   end subroutine network_steps_done

   !> How a network's convolutions are computed for an input of these extents, a line for each fused sequence; see
   !> cnn_model_graph
   subroutine network_plan(handle, x_extent, text, ierr, errmsg)
      !> The network's number
      integer(c_int), intent(in) :: handle
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> A line for each fused sequence, blanks behind
      character(len=4096), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(network_type), pointer :: network
      character(len=:), allocatable :: plan
      type(error_type), allocatable :: error
      text = ""
      call find_network(handle, network, error)
      if (.not. allocated(error)) then
         select type (network)
          type is (graph_type)
            call network%describe_plan(shape_type(4, int(x_extent)), plan, error)
         end select
      end if
      if (.not. allocated(error)) text = plan
      call hand_over(error, ierr, errmsg)
   end subroutine network_plan

end module cnn_api_network
