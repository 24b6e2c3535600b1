! SPDX-License-Identifier: MIT
!> The job of `cnn_step`: a fixture in, K training steps, a result out.
module cnn_io_run_steps
   use cnn_core_atomic_file, only : check_place, same_file
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_core_version, only : version
   use cnn_io_fixture, only : fixture_type
   use cnn_io_model, only : read_model
   use cnn_io_result, only : result_type
   use cnn_io_training, only : check_trainable, name_batch, report_step
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_all, network_type
   implicit none
   private

   public :: check_result, prepare, read_all, run_steps

contains

   !> Run every batch of the fixture and write every tensor of every step.
   !> Nothing is left under `result_path` unless all went well.
   subroutine run_steps(fixture_path, result_path, device, precision, error, report)
      !> File with the network, its weights and batches
      character(len=*), intent(in) :: fixture_path
      !> File that is written
      character(len=*), intent(in) :: result_path
      !> Name of the device, as a user writes it: cpu, cuda, cuda:1,math=tf32
      character(len=*), intent(in) :: device
      !> float32, float64, or empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> What is wrong with one of the files, or why a step failed
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(fixture_type) :: fixture
      type(result_type) :: result

      call check_result(fixture_path, result_path, error)
      if (allocated(error)) return
      call fixture%open(fixture_path, error)
      if (.not. allocated(error)) call write_result(fixture, result_path, device, precision, result, error, report)
      if (allocated(error)) call result%abandon()
      call fixture%close()
   end subroutine run_steps

   !> A result, whole where there is no error
   subroutine write_result(fixture, result_path, device, precision, result, error, report)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> File that is written
      character(len=*), intent(in) :: result_path
      !> Name of the device, as a user writes it
      character(len=*), intent(in) :: device
      !> float32, float64, or empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> The result, to be abandoned after an error
      type(result_type), intent(inout) :: result
      !> What is wrong with one of the files, or why a step failed
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      class(network_type), allocatable :: network

      call prepare(fixture, device, precision, keep_all, network, error)
      if (allocated(error)) return
      call result%begin(result_path, "cnn_step "//version, network, fixture%optimizer, error)
      if (allocated(error)) return
      call run_batches(fixture, result, network, error, report)
      if (allocated(error)) return
      call result%commit(error)
   end subroutine write_result

   !> Refuse a result that cannot be written, or that would replace the fixture, before any work
   subroutine check_result(fixture_path, result_path, error)
      !> The fixture, by any of its names
      character(len=*), intent(in) :: fixture_path
      !> The result, by any of its names
      character(len=*), intent(in) :: result_path
      !> What is wrong with the result
      type(error_type), allocatable, intent(out) :: error
      if (same_file(fixture_path, result_path)) then
         call fail(error, result_path//": the result would replace the fixture, expected two files")
      else
         call check_place(result_path, error)
      end if
   end subroutine check_result

   !> Read all that `run_steps` reads, into host memory, and forget it with what was wrong
   subroutine read_all(fixture_path)
      !> File with the network, its weights and batches
      character(len=*), intent(in) :: fixture_path
      type(error_type), allocatable :: error
      type(fixture_type) :: fixture
      class(network_type), allocatable :: network
      type(tensor_type) :: input, target
      integer :: step
      call fixture%open(fixture_path, error)
      if (allocated(error)) return
      call prepare(fixture, "cpu", "", keep_all, network, error)
      if (allocated(error)) return
      do step = 0, fixture%batches - 1
         call fixture%read_batch(step, network, input, target, error)
         if (.not. allocated(error)) call fixture%read_masks(step, network, error)
         if (allocated(error)) return
      end do
   end subroutine read_all

   !> The network of the fixture with its first weights
   subroutine prepare(fixture, device, precision, keep_activations, network, error)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> Name of the device, as a user writes it
      character(len=*), intent(in) :: device
      !> float32, float64, or empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> See `build_network`
      integer, intent(in) :: keep_activations
      !> A network that is built, with the weights of step 0
      class(network_type), allocatable, intent(out) :: network
      !> The fixture is not one to train on, or the device is not there
      type(error_type), allocatable, intent(out) :: error
      type(description_type) :: description
      integer :: dtype
      call check_trainable(fixture, precision, dtype, error)
      if (allocated(error)) return
      call read_model(fixture%file, description, error)
      if (allocated(error)) return
      call build_network(description, dtype, device, keep_activations, network, error)
      if (allocated(error)) then
         if (index(error%message, "model") == 1 .or. index(error%message, "layer") == 1) then
            error%message = fixture%file%path//": "//error%message
         end if
         return
      end if
      call fixture%read_weights(0, network, error)
      if (allocated(error)) return
      call fixture%read_training(0, network, error)
   end subroutine prepare

   !> All steps, and the weights after the last
   subroutine run_batches(fixture, result, network, error, report)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The network, prepared; trained
      class(network_type), intent(inout) :: network
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(tensor_type) :: input, target
      integer :: step

      do step = 0, fixture%batches - 1
         call run_one(step, result, network, fixture, input, target, error, report)
         if (allocated(error)) exit
      end do
      if (.not. allocated(error)) call result%write_weights(fixture%batches, network, error)
      call network%backend%release(input)
      call network%backend%release(target)
   end subroutine run_batches

   !> forward, loss, backward, update; each tensor is written before the next call overwrites it
   subroutine run_one(step, result, network, fixture, input, target, error, report)
      !> Which one, from 0
      integer, intent(in) :: step
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The network; trained by one step
      class(network_type), intent(inout) :: network
      !> The fixture, open; its optimizer is used
      type(fixture_type), intent(inout) :: fixture
      !> The batch, read to the network's memory; that of the step before is released
      type(tensor_type), intent(inout) :: input
      !> What its output should be, as `input`
      type(tensor_type), intent(inout) :: target
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      !> Called after the step
      procedure(report_step), optional :: report
      real(dp) :: loss
      integer :: rank
      call fixture%read_batch(step, network, input, target, error, rank)
      if (allocated(error)) return
      call fixture%read_masks(step, network, error)
      if (allocated(error)) return
      call result%write_weights(step, network, error)
      if (allocated(error)) return
      call network%forward(input, error, rank)
      call name_batch(fixture, step, error)
      if (allocated(error)) return
      call result%write_forward(step, network, error)
      if (allocated(error)) return
      call network%compute_loss(target, loss, error)
      call name_batch(fixture, step, error)
      if (allocated(error)) return
      call result%write_loss(step, loss, error)
      if (allocated(error)) return
      call network%backward(error)
      if (allocated(error)) return
      call result%write_gradients(step, network, error)
      if (allocated(error)) return
      call fixture%read_learning_rate(step, error)
      if (allocated(error)) return
      call network%update(fixture%optimizer, error)
      if (allocated(error)) return
      if (present(report)) call report(step, fixture%batches, loss)
   end subroutine run_one

end module cnn_io_run_steps
