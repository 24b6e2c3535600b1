! SPDX-License-Identifier: MIT
!> What a training on a fixture asks of it, whatever its network.
module cnn_io_training
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_from_name, dtype_none
   use cnn_core_ranks, only : ranks_type
   use cnn_core_text, only : to_text
   use cnn_io_fixture, only : fixture_type
   use cnn_model_network, only : layer_view_type, network_type
   implicit none
   private

   public :: check_parts, check_trainable, name_batch, report_step

   abstract interface
      !> Told after every step, numbered from 0
      subroutine report_step(step, steps, loss)
         import :: dp
         implicit none
         !> Which one has been taken, from 0
         integer, intent(in) :: step
         !> How many there are
         integer, intent(in) :: steps
         !> Loss of this step
         real(dp), intent(in) :: loss
      end subroutine report_step
   end interface

contains

   !> Element type of a training
   subroutine check_trainable(fixture, precision, dtype, error)
      !> The fixture, open
      type(fixture_type), intent(in) :: fixture
      !> float32, float64, or empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> Of cnn_core_kinds
      integer, intent(out) :: dtype
      !> The fixture is not one to train on
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: wanted
      wanted = fixture%precision
      if (len_trim(precision) > 0) wanted = trim(precision)
      dtype = dtype_from_name(wanted)
      if (fixture%version == 1) then
         call fail(error, fixture%file%path//": format_version is 1, whose model only Python reads, expected 2 "// &
            & "(python -m bridge.exchange.upgrade writes it)")
      else if (dtype_from_name(fixture%precision) == dtype_none) then
         call fail(error, fixture%file%path//": precision is "//fixture%precision//", expected float32 or float64")
      else if (dtype == dtype_none) then
         call fail(error, "precision "//wanted//": unknown, expected float32 or float64")
      else if (fixture%batches == 0) then
         call fail(error, fixture%file%path//": /batches/0/input is missing, there is nothing to run")
      else if (.not. allocated(fixture%optimizer)) then
         call fail(error, fixture%file%path//": /optimizer is missing, there is no step without it")
      end if
   end subroutine check_trainable

   !> Whether images can be taken one by one
   subroutine check_parts(network, ranks, error)
      !> That is built
      class(network_type), intent(in) :: network
      !> Who takes them
      class(ranks_type), intent(in) :: ranks
      !> A layer that computes over all images of a batch
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      logical :: couples
      integer :: i
      if (.not. ranks%by_image) return
      do i = 1, network%layer_count()
         call network%view(i, layer)
         if (layer%kind /= "batch_norm2d") cycle
         call layer%attributes%get_flag("training", couples, error, .true.)
         if (couples .and. .not. allocated(error)) call fail(error, "layer "//layer%name//": batch_norm2d computes "// &
            & "over all images of a batch, expected none of it where images are taken one by one")
         if (allocated(error)) return
      end do
   end subroutine check_parts

   !> Say which batch of which file does not fit the model
   subroutine name_batch(fixture, step, error)
      !> Where the batch is from
      type(fixture_type), intent(in) :: fixture
      !> Number of the batch, from 0
      integer, intent(in) :: step
      !> The message is made longer, where there is one
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) error%message = fixture%file%path//": /batches/"//to_text(step)//": "//error%message
   end subroutine name_batch

end module cnn_io_training
