! SPDX-License-Identifier: MIT
!> The job of `cnn_step` and `cnn_train`: a fixture in, training steps, a result out.
module cnn_io_run_steps
   use cnn_core_atomic_file, only : check_place, same_file
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_ranks, only : ranks_type
   use cnn_core_tensor, only : tensor_type
   use cnn_core_version, only : version
   use cnn_io_batch, only : batch_type
   use cnn_io_fixture, only : fixture_type
   use cnn_io_hdf5_handle, only : still_alive
   use cnn_io_model, only : read_model
   use cnn_io_result, only : result_type
   use cnn_io_shared_gradients, only : add_up, add_up_by_image
   use cnn_io_training, only : check_trainable, check_parts, name_batch, report_step
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_all, network_type
   implicit none
   private

   public :: check_result, prepare, read_all, run_steps, train

   !> What of a fixture is run, and how
   type, public :: run_type
      !> The program that writes the result
      character(len=:), allocatable :: producer
      !> Name of the device, as a user writes it: cpu, cuda, cuda:1,math=tf32
      character(len=:), allocatable :: device
      !> float32, float64, or empty for the fixture's own
      character(len=:), allocatable :: precision
      !> How many; 0: one with each batch of the fixture. Then its batches come again, and of these steps only the loss
      !> is written
      integer :: steps = 0
      !> The processes that take part, each with its part of every batch
      class(ranks_type), allocatable :: ranks
   end type run_type

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
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(run_type) :: run
      run%producer = "cnn_step"
      run%device = device
      run%precision = precision
      allocate (ranks_type :: run%ranks)
      call train(fixture_path, result_path, run, error, report)
   end subroutine run_steps

   !> The same with all that can be chosen. All ranks call it, and the first of them writes
   subroutine train(fixture_path, result_path, run, error, report)
      !> File with the network, its weights and batches
      character(len=*), intent(in) :: fixture_path
      !> File that is written
      character(len=*), intent(in) :: result_path
      !> What is run, and how
      type(run_type), intent(in) :: run
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(fixture_type) :: fixture
      type(result_type) :: result

      if (run%ranks%rank == 0) call check_result(fixture_path, result_path, error)
      if (allocated(error)) return
      allocate (result%ranks, source=run%ranks)
      call fixture%open(fixture_path, error)
      if (.not. allocated(error)) call write_result(fixture, result_path, run, result, error, report)
      if (allocated(error)) call result%abandon()
      call fixture%close()
   end subroutine train

   !> A result, whole where there is no error
   subroutine write_result(fixture, result_path, run, result, error, report)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> File that is written
      character(len=*), intent(in) :: result_path
      !> What is run, and how
      type(run_type), intent(in) :: run
      !> The result, to be abandoned after an error
      type(result_type), intent(inout) :: result
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      class(network_type), allocatable :: network

      call prepare(fixture, run%device, run%precision, keep_all, network, error)
      if (allocated(error)) return
      call check_parts(network, run%ranks, error)
      if (allocated(error)) return
      call result%begin(result_path, run%producer//" "//version, network, fixture%optimizer, error)
      if (allocated(error)) return
      call run_batches(fixture, run%steps, result, network, error, report)
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
   subroutine read_all(fixture_path, alive)
      !> File with the network, its weights and batches
      character(len=*), intent(in) :: fixture_path
      !> Called again and again while there is progress
      procedure(still_alive) :: alive
      type(error_type), allocatable :: error
      type(fixture_type) :: fixture
      fixture%file%alive => alive
      call fixture%open(fixture_path, error)
      if (.not. allocated(error)) call read_opened(fixture, error)
      ! The library crashes there, too
      call fixture%close()
   end subroutine read_all

   !> Network and batches
   subroutine read_opened(fixture, error)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> What is wrong with it
      type(error_type), allocatable, intent(out) :: error
      class(network_type), allocatable :: network
      type(tensor_type) :: input, target
      integer :: step
      call prepare(fixture, "cpu", "", keep_all, network, error)
      if (allocated(error)) return
      do step = 0, fixture%batches - 1
         call fixture%read_batch(step, network, input, target, error)
         if (.not. allocated(error)) call fixture%read_masks(step, network, error)
         if (allocated(error)) exit
      end do
      call network%backend%release(input)
      call network%backend%release(target)
   end subroutine read_opened

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
      network%takes_any_gradients = .true.
      call fixture%read_weights(0, network, error)
      if (allocated(error)) return
      call fixture%read_training(0, network, error)
   end subroutine prepare

   !> All steps, and the weights after the last
   subroutine run_batches(fixture, wanted, result, network, error, report)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> How many steps; 0: one with each batch
      integer, intent(in) :: wanted
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The network, prepared; trained
      class(network_type), intent(inout) :: network
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(batch_type) :: batch
      integer :: step, steps
      real(dp) :: loss

      steps = fixture%batches
      if (wanted > 0) steps = wanted
      do step = 0, steps - 1
         call batch%read(mod(step, fixture%batches), fixture, network, result%ranks, error)
         if (.not. allocated(error)) call run_one(step, result, network, fixture, batch, loss, error)
         if (allocated(error)) exit
         if (present(report)) call report(step, steps, loss)
      end do
      if (.not. allocated(error)) call result%write_weights(steps, network, error)
      call batch%release(network%backend)
   end subroutine run_batches

   !> forward, loss, backward, update; each tensor is written before the next call overwrites it
   subroutine run_one(step, result, network, fixture, batch, loss, error)
      !> Which one, from 0
      integer, intent(in) :: step
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The network; trained by one step
      class(network_type), intent(inout) :: network
      !> The fixture, open; its optimizer is used
      type(fixture_type), intent(inout) :: fixture
      !> Of this step
      type(batch_type), intent(in) :: batch
      !> Of the weights before the step
      real(dp), intent(out) :: loss
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      logical :: whole
      loss = 0.0_dp
      ! What comes again is not written again
      whole = step < fixture%batches
      if (whole) call result%write_weights(step, network, error)
      if (allocated(error)) return
      if (whole .or. .not. result%ranks%by_image) then
         call pass_batch(step, whole, result, network, fixture, batch, loss, error)
         if (allocated(error)) return
      end if
      if (result%ranks%by_image) then
         call add_up_by_image(network, fixture, batch, result%ranks, loss, error)
      else
         call add_up(network, result%ranks, loss, error)
      end if
      if (allocated(error)) return
      call result%write_loss(step, loss, error)
      if (.not. allocated(error) .and. whole) call result%write_parameter_gradients(step, network, error)
      if (allocated(error)) return
      call fixture%read_learning_rate(step, error)
      if (allocated(error)) return
      call network%update(fixture%optimizer, error)
   end subroutine run_one

   !> forward, loss and backward of this rank's images
   subroutine pass_batch(step, whole, result, network, fixture, batch, loss, error)
      !> Which one, from 0
      integer, intent(in) :: step
      !> Whether outputs and their gradients are written
      logical, intent(in) :: whole
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The network
      class(network_type), intent(inout) :: network
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> Of this step
      type(batch_type), intent(in) :: batch
      !> What these images give to it
      real(dp), intent(out) :: loss
      !> A batch that does not fit, a pass that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      loss = 0.0_dp
      if (network%batch_images > 0) then
         call fixture%read_masks(batch%number, network, error, batch%first, batch%own)
      else
         call fixture%read_masks(batch%number, network, error)
      end if
      if (allocated(error)) return
      call network%forward(batch%input, error, batch%rank)
      call name_batch(fixture, batch%number, error)
      if (allocated(error)) return
      if (whole) call result%write_forward(step, network, error)
      if (allocated(error)) return
      call network%compute_loss(batch%target, loss, error)
      call name_batch(fixture, batch%number, error)
      if (allocated(error)) return
      call network%backward(error)
      if (.not. allocated(error) .and. whole) call result%write_output_gradients(step, network, error)
   end subroutine pass_batch

end module cnn_io_run_steps
