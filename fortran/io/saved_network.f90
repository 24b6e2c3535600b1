! SPDX-License-Identifier: MIT
!> Networks in exchange files: saved so that a training goes on, and read again.
module cnn_io_saved_network
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_from_name, dtype_none
   use cnn_io_fixture, only : fixture_type
   use cnn_io_model, only : read_model
   use cnn_io_result, only : result_type
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : network_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   public :: open_network, read_training, save_network

contains

   !> A new network from a file: a fixture, a result, or one that was saved
   subroutine open_network(path, step, device, precision, keep_activations, description, network, error)
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Number of the step in the file before which its parameters are read, from 0
      integer, intent(in) :: step
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> float32, float64, or empty for the file's own
      character(len=*), intent(in) :: precision
      !> `keep_all`, `keep_after_relu` or `keep_needed` of cnn_model_network
      integer, intent(in) :: keep_activations
      !> What it is made of
      type(description_type), intent(out) :: description
      !> The new network
      class(network_type), allocatable, intent(out) :: network
      !> No such file, one that is damaged, or no such device
      type(error_type), allocatable, intent(out) :: error
      type(fixture_type) :: file
      call file%open(path, error)
      if (.not. allocated(error)) call build_from(file, step, device, precision, keep_activations, description, &
         & network, error)
      call file%close()
      if (allocated(error) .and. allocated(network)) deallocate (network)
   end subroutine open_network

   subroutine build_from(file, step, device, precision, keep_activations, description, network, error)
      !> Open
      type(fixture_type), intent(inout) :: file
      !> As of `open_network`
      integer, intent(in) :: step
      !> As of `open_network`
      character(len=*), intent(in) :: device
      !> As of `open_network`
      character(len=*), intent(in) :: precision
      !> As of `open_network`
      integer, intent(in) :: keep_activations
      !> What it is made of
      type(description_type), intent(out) :: description
      !> The new network
      class(network_type), allocatable, intent(out) :: network
      !> As of `open_network`
      type(error_type), allocatable, intent(out) :: error
      integer :: dtype
      dtype = dtype_from_name(merge_text(precision, file%precision))
      if (file%version == 1) then
         call fail(error, file%file%path//": format_version is 1, whose model only Python reads, expected 2 "// &
            & "(python -m bridge.exchange.upgrade writes it)")
      else if (dtype == dtype_none) then
         call fail(error, file%file%path//": precision "//merge_text(precision, file%precision)// &
            & ", expected float32 or float64")
      end if
      if (.not. allocated(error)) call read_model(file%file, description, error)
      if (.not. allocated(error)) call build_network(description, dtype, device, keep_activations, network, error)
      if (.not. allocated(error)) call file%read_weights(step, network, error)
      if (.not. allocated(error)) call file%read_training(step, network, error)
      if (.not. allocated(error)) call file%check_memory(step, network, error)
   end subroutine build_from

   !> The first text, where it is not blank
   pure function merge_text(first, second) result(text)
      !> Wins where it says something
      character(len=*), intent(in) :: first
      !> Else this one
      character(len=*), intent(in) :: second
      character(len=:), allocatable :: text
      text = trim(first)
      if (len(text) == 0) text = second
   end function merge_text

   !> Parameters, state, what the optimizer remembers and the number of the step, into a network of the same model
   subroutine read_training(path, step, network, error)
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Number of the step in the file, from 0
      integer, intent(in) :: step
      !> Of the same model
      class(network_type), intent(inout) :: network
      type(error_type), allocatable, intent(out) :: error
      type(fixture_type) :: file
      call file%open(path, error)
      if (.not. allocated(error)) call file%read_weights(step, network, error)
      if (.not. allocated(error)) call file%read_training(step, network, error)
      call file%close()
   end subroutine read_training

   !> A file with the model, the optimizer's settings, and parameters, state and what the optimizer remembers as those
   !> before step 0; an older file stays as it was where one of them is NaN or infinite, which no reader would take
   subroutine save_network(path, producer, network, optimizer, error)
      !> Name of the file
      character(len=*), intent(in) :: path
      !> Program that writes it, in words
      character(len=*), intent(in) :: producer
      !> Whose training can go on from the file
      class(network_type), intent(in) :: network
      !> Its settings are written
      class(optimizer_type), intent(in) :: optimizer
      !> Of the file; a weight or momentum that is NaN or infinite
      type(error_type), allocatable, intent(out) :: error
      type(result_type) :: file
      file%finite_only = .true.
      call file%begin(path, producer, network, optimizer, error)
      if (.not. allocated(error)) call file%write_weights(0, network, error)
      if (.not. allocated(error)) call file%write_training(network, optimizer, error)
      if (.not. allocated(error)) call file%commit(error)
      if (allocated(error)) call file%abandon()
   end subroutine save_network

end module cnn_io_saved_network
