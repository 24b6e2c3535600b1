! SPDX-License-Identifier: MIT
!> A network whose operations take the outputs of any before them.
!>
!> Fan-out. Where several nodes take an output, the first of them in the backward pass overwrites its gradient, and what
!>          the others give is added to it.
!> Memory.  Of outputs and gradients, whose shapes follow from the input's; see cnn_model_graph_memory.
!> Fused.   Convolutions with the ReLUs between them are computed together; see cnn_model_graph_build.
module cnn_model_graph
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : accumulate_call
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_none, i8
   use cnn_core_tensor, only : max_rank, tensor_type
   use cnn_core_text, only : to_text
   use cnn_model_by_image, only : run_by_image
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_all, keep_needed, layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_model_resize, only : resize
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_primitives, only : compute
   use cnn_operations_products, only : conv2d_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   type, public :: node_type
      class(operation_type), allocatable :: operation
      !> Numbers of the nodes that it takes; 0 is the network's input
      integer, allocatable :: inputs(:)
      type(parameter_type), allocatable :: parameters(:)
      type(shape_type) :: shape
      type(tensor_type) :: output, output_gradient
      !> What its operation keeps from step to step
      type(tensor_type), allocatable :: state(:)
      !> What its forward pass leaves for the backward pass
      type(tensor_type) :: kept
      !> Of 0 and 1, where its operation takes one: to be set before `forward`
      type(tensor_type) :: mask
      !> Which of its inputs have a gradient already when it gives its own, because others after it take them too
      logical, allocatable :: adds(:)
      !> What it adds to these; empty for the rest
      type(tensor_type), allocatable :: parts(:)
      !> Node before whose backward pass its output, which is not kept, is found again; 0 where there is none
      integer :: again_before = 0
      !> Bytes from image to image of output and gradient, where these are part of another's; else 0
      integer(i8) :: apart = 0_i8
      !> Of a convolution: the first and the last of the fused sequence that it belongs to, perhaps itself; else 0
      integer :: first = 0, last = 0
      !> The ReLU behind it that is computed with its output, and the one before it whose gradient is computed with that
      !> of its input; 0 where there is none
      integer :: relu_behind = 0, relu_before = 0
      !> Of a ReLU: the convolution before it, the gradient of whose bias is found with its own; 0 where there is none
      integer :: bias_of = 0
      !> Of a convolution: whether a ReLU behind it does that
      logical :: leaves_bias = .false.
      !> Whether it is computed with another node, in the forward pass and in the backward pass
      logical :: is_done(2) = .false.
      !> The element type of its output in memory, and whether only the device can read it: see `find_storage_format` of
      !> cnn_core_backend
      integer :: storage_dtype = dtype_none
      logical :: opaque = .false.
      !> Whether its output is there after the forward pass
      logical :: stays = .true.
   end type node_type

   type, extends(network_type), public :: graph_type
      type(node_type), allocatable :: nodes(:)
      type(criterion_type), private :: loss_kind
      !> Where outputs and gradients lie together, and the extents and rank of the input that it was planned for
      type(tensor_type), private :: memory
      !> What passes work in, one after the other
      type(tensor_type), private :: scratch
      integer, private :: planned_for(max_rank + 1) = 0
      !> Value of the last loss, where the device does not queue
      real(dp), private :: loss = 0.0_dp
   contains
      procedure :: build
      procedure :: find_outputs
      procedure :: find_loss
      procedure :: fetch_loss
      procedure :: place_output_gradient
      procedure :: find_gradients
      procedure :: output
      procedure :: layer_count
      procedure :: view
      procedure :: find_criterion
      procedure :: set_mask
      procedure :: switch_training
      procedure :: find_shapes
      procedure :: describe_plan
      procedure, private :: allocate_outputs, allocate_gradients
      procedure, private :: takers_of, extent_of, bytes_of_output, operands_of, run
      procedure, private :: find_storage, forward_sequence, backward_sequence
      final :: destroy
   end type graph_type

   interface
      !> The operations of a description with undefined parameters
      module subroutine build(self, description, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> With one operation or more
         type(description_type), intent(in) :: description
         !> Inputs that are not there, an output that nobody takes, layers that do not fit together, or no memory
         type(error_type), allocatable, intent(out) :: error
      end subroutine build

      !> How many nodes take an output, each as often as it does
      pure integer module function takers_of(self, i)
         implicit none
         class(graph_type), intent(in) :: self
         !> Number of the node
         integer, intent(in) :: i
      end function takers_of

      !> Outputs of the shapes that were found, and what else lies with them
      module subroutine allocate_outputs(self, moved, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> Becomes true where a tensor gets another address
         logical, intent(inout) :: moved
         type(error_type), allocatable, intent(out) :: error
      end subroutine allocate_outputs

      !> Gradients of these shapes, where they do not lie with the outputs
      module subroutine allocate_gradients(self, moved, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> Whether a tensor has another address than before
         logical, intent(out) :: moved
         type(error_type), allocatable, intent(out) :: error
      end subroutine allocate_gradients

      !> The forms in which outputs are kept
      module subroutine find_storage(self, error)
         implicit none
         class(graph_type), intent(inout) :: self
         type(error_type), allocatable, intent(out) :: error
      end subroutine find_storage

      !> Outputs of a fused sequence
      module subroutine forward_sequence(self, first, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> Number of its first node
         integer, intent(in) :: first
         type(error_type), allocatable, intent(out) :: error
      end subroutine forward_sequence

      !> Gradients of the parameters of a fused sequence and of its input, in the memory of outputs
      module subroutine backward_sequence(self, last, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> Number of its last convolution
         integer, intent(in) :: last
         type(error_type), allocatable, intent(out) :: error
      end subroutine backward_sequence

      !> A line for each fused sequence, in words: "conv1 .. conv3: depth first, ...". Nothing is computed
      module subroutine describe_plan(self, input, text, error)
         implicit none
         class(graph_type), intent(inout) :: self
         !> Shape of an input
         type(shape_type), intent(in) :: input
         !> Lines, separated by new lines
         character(len=:), allocatable, intent(out) :: text
         !> The input does not fit, or a plan cannot be made
         type(error_type), allocatable, intent(out) :: error
      end subroutine describe_plan
   end interface

contains

   !> Outputs of all nodes
   subroutine find_outputs(self, moved, error)
      class(graph_type), intent(inout) :: self
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      moved = .false.
      call self%find_shapes(shape_type(self%input_rank, self%input%extent), error)
      if (allocated(error)) return
      call self%allocate_outputs(moved, error)
      if (allocated(error)) return
      do i = 1, size(self%nodes)
         call self%run(i, .false., error)
         if (allocated(error)) return
      end do
   end subroutine find_outputs

   !> A pass of one node
   subroutine run(self, i, backward, error)
      class(graph_type), intent(inout) :: self
      !> Number of the node
      integer, intent(in) :: i
      !> Which pass
      logical, intent(in) :: backward
      type(error_type), allocatable, intent(out) :: error
      type(operands_type) :: operands
      if (self%nodes(i)%is_done(merge(2, 1, backward))) return
      if (self%nodes(i)%first > 0 .and. self%keep_activations /= keep_all) then
         if (backward .and. self%in_place()) then
            call self%backward_sequence(i, error)
            return
         else if (.not. backward) then
            call self%forward_sequence(i, error)
            return
         end if
      end if
      call self%operands_of(i, operands)
      associate (node => self%nodes(i))
         if (node%apart > 0) then
            call run_by_image(node%operation, self%backend, operands, node%apart, backward, error)
         else if (backward) then
            call node%operation%backward(self%backend, operands, error)
         else
            call node%operation%forward(self%backend, operands, error)
         end if
      end associate
   end subroutine run

   !> Shapes of all outputs
   subroutine find_shapes(self, input, error)
      class(graph_type), intent(inout) :: self
      !> Of the network's input
      type(shape_type), intent(in) :: input
      !> Names the node, and the shapes that it cannot take
      type(error_type), allocatable, intent(out) :: error
      type(shape_type), allocatable :: shapes(:)
      integer :: i, j
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            allocate (shapes(size(node%inputs)))
            do j = 1, size(shapes)
               shapes(j) = input
               if (node%inputs(j) > 0) shapes(j) = self%nodes(node%inputs(j))%shape
            end do
            call node%operation%find_shape(shapes, node%shape, error)
            if (allocated(error)) return
            deallocate (shapes)
         end associate
      end do
   end subroutine find_shapes

   !> Extents of a node's output, or of the input
   pure function extent_of(self, i) result(extent)
      class(graph_type), intent(in) :: self
      !> Number of the node; 0 is the input
      integer, intent(in) :: i
      !> In Fortran order
      integer :: extent(max_rank)
      extent = self%input%extent
      if (i > 0) extent = self%nodes(i)%shape%extent
   end function extent_of

   !> Memory of a node's output, or of the input
   pure integer(i8) function bytes_of_output(self, i)
      class(graph_type), intent(in) :: self
      !> Number of the node; 0 is the input
      integer, intent(in) :: i
      type(tensor_type) :: tensor
      tensor%dtype = self%dtype
      if (i > 0) tensor%dtype = self%nodes(i)%storage_dtype
      tensor%extent = self%extent_of(i)
      bytes_of_output = tensor%bytes()
   end function bytes_of_output

   !> What the passes of a node work on
   subroutine operands_of(self, i, operands)
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      !> Its tensors
      type(operands_type), intent(out) :: operands
      integer :: j
      associate (node => self%nodes(i))
         allocate (operands%x(size(node%inputs)), operands%dx(size(node%inputs)))
         do j = 1, size(node%inputs)
            operands%x(j) = self%input
            operands%dx(j) = self%input_gradient
            if (node%inputs(j) > 0) then
               operands%x(j) = self%nodes(node%inputs(j))%output
               operands%dx(j) = self%nodes(node%inputs(j))%output_gradient
            end if
            if (node%adds(j)) operands%dx(j) = node%parts(j)
         end do
         operands%w = node%parameters%value
         operands%dw = node%parameters%gradient
         operands%state = node%state
         operands%kept = node%kept
         operands%mask = node%mask
         operands%scratch = self%scratch
         operands%rank = self%input_rank
         if (node%inputs(1) > 0) operands%rank = self%nodes(node%inputs(1))%shape%rank
         operands%y = node%output
         operands%dy = node%output_gradient
         if (node%bias_of > 0) operands%db = self%nodes(node%bias_of)%parameters(2)%gradient
         if (node%leaves_bias .and. size(operands%dw) > 1) operands%dw(2) = tensor_type()
      end associate
   end subroutine operands_of

   !> The loss, and its gradient with respect to the output
   subroutine find_loss(self, target, moved, error)
      class(graph_type), intent(inout) :: self
      !> What the output should be
      type(tensor_type), intent(in) :: target
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      type(error_type), allocatable, intent(out) :: error
      call self%allocate_gradients(moved, error)
      if (allocated(error)) return
      self%loss_kind%batch_images = self%batch_images
      associate (last => self%nodes(size(self%nodes)))
         call self%loss_kind%compute(self%backend, last%output, target, last%shape%rank, last%output_gradient, &
            & self%loss, error)
      end associate
   end subroutine find_loss

   !> A gradient with respect to the output that is no loss's
   subroutine place_output_gradient(self, dy, moved, error)
      class(graph_type), intent(inout) :: self
      !> Of the output's shape; is copied
      type(tensor_type), intent(in) :: dy
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      type(error_type), allocatable, intent(out) :: error
      call self%allocate_gradients(moved, error)
      if (.not. allocated(error)) call self%backend%convert(dy, self%nodes(size(self%nodes))%output_gradient, error)
   end subroutine place_output_gradient

   !> The value of the last loss that was found; waits for the device
   subroutine fetch_loss(self, loss, error)
      class(graph_type), intent(in) :: self
      !> Of all images
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      if (self%backend%queues) then
         call self%backend%read_loss(loss, error)
      else
         loss = self%loss
      end if
   end subroutine fetch_loss

   !> Gradients of every parameter, every node's output and the input
   subroutine find_gradients(self, error)
      class(graph_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      integer :: i, j
      do i = size(self%nodes), 1, -1
         do j = 1, i - 1
            if (self%nodes(j)%again_before == i) call self%run(j, .false., error)
            if (allocated(error)) return
         end do
         call self%run(i, .true., error)
         if (allocated(error)) return
         do j = 1, size(self%nodes(i)%inputs)
            if (.not. self%nodes(i)%adds(j)) cycle
            if (self%nodes(i)%inputs(j) == 0) then
               if (self%keep_activations == keep_needed) cycle
               call compute(self%backend, accumulate_call(self%nodes(i)%parts(j), self%input_gradient), error)
            else
               call compute(self%backend, accumulate_call(self%nodes(i)%parts(j), &
                  & self%nodes(self%nodes(i)%inputs(j))%output_gradient), error)
            end if
            if (allocated(error)) return
         end do
      end do
   end subroutine find_gradients

   !> The output of the last node
   type(tensor_type) function output(self)
      class(graph_type), intent(in) :: self
      output = self%nodes(size(self%nodes))%output
   end function output

   subroutine find_criterion(self, criterion)
      class(graph_type), intent(in) :: self
      !> Its loss
      type(criterion_type), intent(out) :: criterion
      criterion = self%loss_kind
   end subroutine find_criterion

   pure integer function layer_count(self)
      class(graph_type), intent(in) :: self
      layer_count = size(self%nodes)
   end function layer_count

   !> Let the operations compute as in training or as after it
   subroutine switch_training(self, training)
      class(graph_type), intent(inout) :: self
      !> In training
      logical, intent(in) :: training
      integer :: i
      do i = 1, size(self%nodes)
         self%nodes(i)%operation%evaluates = .not. training
      end do
   end subroutine switch_training

   !> What there is of a node
   subroutine view(self, i, layer)
      class(graph_type), intent(in) :: self
      !> Number of the node, from 1
      integer, intent(in) :: i
      !> Tensors of the graph, not copies
      type(layer_view_type), intent(out) :: layer
      integer :: j
      associate (node => self%nodes(i))
         layer%name = node%operation%name
         layer%kind = node%operation%kind
         layer%inputs = node%operation%inputs(1)%text
         do j = 2, size(node%operation%inputs)
            layer%inputs = layer%inputs//","//node%operation%inputs(j)%text
         end do
         layer%attributes = node%operation%attributes
         layer%output = node%output
         call why_hidden(self, i, layer%hidden_because)
         if (.not. self%in_place() .or. i == size(self%nodes)) layer%output_gradient = node%output_gradient
         layer%rank = node%shape%rank
         layer%parameters = node%parameters
         layer%parameter_shapes = node%operation%parameters
         layer%state = node%state
         layer%state_shapes = node%operation%state
         layer%changes_state = node%operation%changes_state
         layer%has_mask = node%operation%has_mask()
      end associate
   end subroutine view

   !> Why a node's output cannot be read
   subroutine why_hidden(self, i, why)
      class(graph_type), intent(in) :: self
      !> Number of the node, from 1
      integer, intent(in) :: i
      !> Not allocated where it can
      character(len=:), allocatable, intent(out) :: why
      associate (node => self%nodes(i), last => self%nodes(size(self%nodes))%operation%name)
         if (node%relu_behind > 0) then
            why = "'"//node%operation%name//"' is computed together with its ReLU and does not exist, expected '"// &
               & self%nodes(node%relu_behind)%operation%name//"'"
         else if (node%opaque) then
            why = "the device keeps that of '"//node%operation%name//"' in a form of its own, expected '"//last//"'"
         else if (.not. node%stays) then
            why = "'"//node%operation%name//"' is not kept, expected '"//last//"'"
         else if (self%is_released() .and. i < size(self%nodes)) then
            why = "'"//node%operation%name//"' was released by backward, expected '"//last//"'"
         else
            return
         end if
         why = why//", or a network with keep_activations=True"
      end associate
   end subroutine why_hidden

   !> The mask that a node takes in the next forward passes
   subroutine set_mask(self, i, mask, error)
      class(graph_type), intent(inout) :: self
      !> Number of the node, from 1
      integer, intent(in) :: i
      !> 0 and 1, *host*; is copied
      type(tensor_type), intent(in) :: mask
      !> The node takes none, or no memory
      type(error_type), allocatable, intent(out) :: error
      logical :: moved
      associate (node => self%nodes(i))
         if (.not. node%operation%has_mask()) then
            call node%operation%refuse("a mask", "none", error)
            return
         end if
         moved = .false.
         call resize(self%backend, mask%extent, self%dtype, node%mask, moved, error)
         ! A captured step has the old address
         if (moved) call self%forget_captured()
         if (.not. allocated(error)) call self%backend%copy_in(mask%address, node%mask, error)
      end associate
   end subroutine set_mask

   !> Give everything back to the device
   subroutine destroy(self)
      type(graph_type), intent(inout) :: self
      integer :: i, j
      if (.not. allocated(self%backend)) return
      call self%close()
      if (.not. allocated(self%nodes)) return
      call self%backend%release(self%memory)
      call self%backend%release(self%scratch)
      call self%loss_kind%release(self%backend)
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            call self%backend%release(node%mask)
            call self%backend%release(node%kept)
            if (allocated(node%state)) then
               do j = 1, size(node%state)
                  call self%backend%release(node%state(j))
               end do
            end if
            if (self%keep_activations == keep_needed .or. .not. allocated(node%parts)) cycle
            call self%backend%release(node%output)
            call self%backend%release(node%output_gradient)
            do j = 1, size(node%parts)
               call self%backend%release(node%parts(j))
            end do
         end associate
      end do
   end subroutine destroy

end module cnn_model_graph
