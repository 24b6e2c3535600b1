! SPDX-License-Identifier: MIT
!> The job of `cnn_step` for a graph: a fixture of version 2 in, K training steps, a result of version 2 out.
module cnn_io_run_graph
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_core_version, only : version
   use cnn_io_fixture, only : fixture_type
   use cnn_io_format, only : weights_path
   use cnn_io_graph_model, only : read_graph
   use cnn_io_hdf5_groups, only : copy_group
   use cnn_io_result, only : result_type
   use cnn_io_training, only : check_trainable, name_batch, report_step
   use cnn_model_graph, only : graph_type
   implicit none
   private

   public :: read_all_of_graph, write_graph_result

contains

   !> A result, whole where there is no error
   subroutine write_graph_result(fixture, result_path, device, precision, result, error, report)
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
      type(graph_type) :: graph

      call prepare(fixture, device, precision, graph, error)
      if (allocated(error)) return
      call result%begin(result_path, "cnn_step "//version, 2, graph%dtype, graph%backend, fixture%optimizer, error)
      if (allocated(error)) return
      call copy_group(fixture%file, "/model/layers", result%file, error)
      if (allocated(error)) return
      call copy_group(fixture%file, "/model/loss", result%file, error)
      if (allocated(error)) return
      call run_batches(fixture, result, graph, error, report)
      if (allocated(error)) return
      call result%commit(error)
   end subroutine write_graph_result

   !> Read all that `write_graph_result` reads, into host memory, and forget it with what was wrong
   subroutine read_all_of_graph(fixture)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      type(error_type), allocatable :: error
      type(graph_type) :: graph
      type(tensor_type) :: input, target
      integer :: step
      call prepare(fixture, "cpu", "", graph, error)
      do step = 0, fixture%batches - 1
         if (allocated(error)) return
         call read_batch(fixture, step, graph, input, target, error)
         if (.not. allocated(error)) call read_masks(fixture, step, graph, error)
      end do
   end subroutine read_all_of_graph

   !> The graph of the fixture with its first weights and state
   subroutine prepare(fixture, device, precision, graph, error)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> Name of the device, as a user writes it
      character(len=*), intent(in) :: device
      !> float32, float64, or empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> A graph of which nothing has been set
      type(graph_type), intent(inout) :: graph
      !> The fixture is not one to train on, or the device is not there
      type(error_type), allocatable, intent(out) :: error
      integer :: dtype, i, j
      call check_trainable(fixture, precision, dtype, error)
      if (allocated(error)) return
      call read_graph(fixture%file, dtype, device, graph, error)
      if (.not. allocated(error)) call fixture%optimizer%require(graph%backend, error)
      if (allocated(error)) return
      do i = 1, size(graph%nodes)
         associate (operation => graph%nodes(i)%operation)
            do j = 1, size(operation%parameters)
               call fixture%read_parameter(weights_path(0, operation%name)//"/"//trim(operation%parameters(j)%name), &
                  & graph%backend, graph%parameters, graph%nodes(i)%parameters(j), error)
               if (allocated(error)) return
            end do
            do j = 1, size(operation%state)
               call fixture%read_checked("/state/"//operation%name//"/"//trim(operation%state(j)%name), graph%backend, &
                  & graph%nodes(i)%state(j), error)
               if (allocated(error)) return
            end do
         end associate
      end do
   end subroutine prepare

   !> All steps, and the weights after the last
   subroutine run_batches(fixture, result, graph, error, report)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The graph, prepared; trained
      type(graph_type), intent(inout) :: graph
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      !> Called after every step
      procedure(report_step), optional :: report
      type(tensor_type) :: input, target
      integer :: step

      do step = 0, fixture%batches - 1
         call run_one(step, result, graph, fixture, input, target, error, report)
         if (allocated(error)) exit
      end do
      if (.not. allocated(error)) call write_weights(result, fixture%batches, graph, error)
      call graph%backend%release(input)
      call graph%backend%release(target)
   end subroutine run_batches

   !> forward, loss, backward, update; each tensor is written before the next call overwrites it
   subroutine run_one(step, result, graph, fixture, input, target, error, report)
      !> Which one, from 0
      integer, intent(in) :: step
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> The graph; trained by one step
      type(graph_type), intent(inout) :: graph
      !> The fixture, open; its optimizer is used
      type(fixture_type), intent(inout) :: fixture
      !> The batch, read to the graph's memory; that of the step before is released
      type(tensor_type), intent(inout) :: input
      !> What its output should be, as `input`
      type(tensor_type), intent(inout) :: target
      !> A batch that does not fit, a step that fails, or the file
      type(error_type), allocatable, intent(out) :: error
      !> Called after the step
      procedure(report_step), optional :: report
      real(dp) :: loss
      integer :: rank
      call read_batch(fixture, step, graph, input, target, error, rank)
      if (allocated(error)) return
      call read_masks(fixture, step, graph, error)
      if (allocated(error)) return
      call write_weights(result, step, graph, error)
      if (allocated(error)) return
      call graph%forward(input, rank, error)
      if (.not. allocated(error)) call graph%compute_loss(target, loss, error)
      call name_batch(fixture, step, error)
      if (allocated(error)) return
      call graph%backward(error)
      if (allocated(error)) return
      call write_tensors(result, step, graph, rank, loss, error)
      if (allocated(error)) return
      call fixture%read_learning_rate(step, error)
      if (allocated(error)) return
      call graph%update(fixture%optimizer, error)
      if (allocated(error)) return
      if (present(report)) call report(step, fixture%batches, loss)
   end subroutine run_one

   !> Input and target of a step, as new tensors of the graph's device
   subroutine read_batch(fixture, step, graph, input, target, error, rank)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> On whose device they will be
      type(graph_type), intent(inout) :: graph
      !> The new input; what it was before is released
      type(tensor_type), intent(inout) :: input
      !> What the output should be; what it was before is released
      type(tensor_type), intent(inout) :: target
      !> Dataset that is missing, damaged or not finite, or no memory
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions of the input
      integer, intent(out), optional :: rank
      character(len=:), allocatable :: path
      path = "/batches/"//to_text(step)
      call fixture%read_tensor(path//"/input", graph%backend, graph%dtype, input, error, rank=rank)
      if (allocated(error)) return
      call fixture%read_tensor(path//"/target", graph%backend, graph%dtype, target, error)
   end subroutine read_batch

   !> What a step keeps of the inputs of its dropouts
   subroutine read_masks(fixture, step, graph, error)
      !> The fixture, open
      type(fixture_type), intent(inout) :: fixture
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Its nodes' masks are set
      type(graph_type), intent(inout) :: graph
      !> Dataset that is missing, damaged or not finite, or no memory
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(graph%nodes)
         associate (node => graph%nodes(i))
            if (.not. node%operation%has_mask()) cycle
            call fixture%read_tensor("/steps/"//to_text(step)//"/masks/"//node%operation%name, graph%backend, &
               & graph%dtype, node%mask, error)
            if (allocated(error)) return
         end associate
      end do
   end subroutine read_masks

   !> Parameters before a step, and which of them are frozen
   subroutine write_weights(result, step, graph, error)
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> The graph
      type(graph_type), intent(in) :: graph
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path
      integer :: i, j
      do i = 1, size(graph%nodes)
         associate (node => graph%nodes(i), parameters => graph%nodes(i)%operation%parameters)
            do j = 1, size(parameters)
               path = weights_path(step, node%operation%name)//"/"//trim(parameters(j)%name)
               call result%write_staged(path, graph%backend, node%parameters(j)%value, parameters(j)%shape%rank, error)
               if (allocated(error)) return
               call result%mark_frozen(path, graph%parameters, node%parameters(j), error)
               if (allocated(error)) return
            end do
         end associate
      end do
   end subroutine write_weights

   !> Outputs, state, loss and gradients of a step
   subroutine write_tensors(result, step, graph, rank, loss, error)
      !> The result, being written
      type(result_type), intent(inout) :: result
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> The graph, after its backward pass
      type(graph_type), intent(in) :: graph
      !> Number of dimensions of the network's input
      integer, intent(in) :: rank
      !> Of the weights before the step's update
      real(dp), intent(in) :: loss
      !> Error of the file
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: path, grads
      integer :: i, j
      path = "/steps/"//to_text(step)
      call result%write_loss(step, loss, error)
      if (allocated(error)) return
      call result%write_staged(path//"/grads/input", graph%backend, graph%input_gradient, rank, error)
      if (allocated(error)) return
      do i = 1, size(graph%nodes)
         associate (node => graph%nodes(i), parameters => graph%nodes(i)%operation%parameters)
            grads = path//"/grads/"//node%operation%name//"/"
            call result%write_staged(path//"/forward/"//node%operation%name, graph%backend, node%output, &
               & node%shape%rank, error)
            if (allocated(error)) return
            call result%write_staged(grads//"output", graph%backend, node%output_gradient, node%shape%rank, error)
            if (allocated(error)) return
            do j = 1, size(parameters)
               call result%write_staged(grads//trim(parameters(j)%name), graph%backend, node%parameters(j)%gradient, &
                  & parameters(j)%shape%rank, error)
               if (allocated(error)) return
            end do
            if (.not. node%operation%changes_state) cycle
            do j = 1, size(node%state)
               call result%write_staged(path//"/state/"//node%operation%name//"/"//trim(node%operation%state(j)%name), &
                  & graph%backend, node%state(j), node%operation%state(j)%shape%rank, error)
               if (allocated(error)) return
            end do
         end associate
      end do
   end subroutine write_tensors

end module cnn_io_run_graph
