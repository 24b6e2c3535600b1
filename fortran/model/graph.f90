! SPDX-License-Identifier: MIT
!> A network whose operations take the outputs of any before them.
!>
!> Fan-out. Where several nodes take an output, the first of them in the backward pass overwrites its gradient, and what
!>          the others give is added to it.
!> Memory.  Of outputs and gradients, whose shapes follow from the input's; see cnn_model_graph_memory.
module cnn_model_graph
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : accumulate_call
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float64, i8
   use cnn_core_tensor, only : shape_text, tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_model_description, only : description_type, input_name
   use cnn_model_network, only : keep_needed, layer_view_type, network_type
   use cnn_model_parameters, only : parameter_type
   use cnn_model_resize, only : resize
   use cnn_operations_by_image, only : run_by_image
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_primitives, only : compute
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
      !> The ReLU behind it that is computed with its output, and the one before it whose gradient is computed with that
      !> of its input; 0 where there is none
      integer :: relu_behind = 0, relu_before = 0
      !> Whether it is such a ReLU, in the forward pass and in the backward pass
      logical :: is_done(2) = .false.
   end type node_type

   type, extends(network_type), public :: graph_type
      type(node_type), allocatable :: nodes(:)
      type(criterion_type), private :: loss_kind
      !> Where outputs and gradients lie together, and the extents and rank of the input that it was planned for
      type(tensor_type), private :: memory
      integer, private :: planned_for(5) = 0
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
      procedure :: in_place
      procedure :: switch_training
      procedure :: find_shapes
      procedure, private :: add_node, find_inputs, mark_sums, allocate_parameters, allocate_tensors
      procedure, private :: extent_of, bytes_of_output, operands_of, run
      final :: destroy
   end type graph_type

   interface
      !> Outputs and gradients of the shapes that were found
      module subroutine allocate_tensors(self, moved, error)
         implicit none
         !> The graph
         class(graph_type), intent(inout) :: self
         !> Becomes true where a tensor gets another address
         logical, intent(inout) :: moved
         !> No memory on the device
         type(error_type), allocatable, intent(out) :: error
      end subroutine allocate_tensors
   end interface

contains

   !> The operations of a description with undefined parameters
   subroutine build(self, description, error)
      !> A network with a backend and an element type, of which nothing else has been set
      class(graph_type), intent(inout) :: self
      !> With one operation or more
      type(description_type), intent(in) :: description
      !> Inputs that are not there, an output that nobody takes, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(name_type) :: names(size(description%nodes))
      integer :: i
      self%loss_kind = description%criterion
      allocate (self%nodes(size(names)))
      do i = 1, size(names)
         names(i)%text = description%nodes(i)%operation%name
      end do
      do i = 1, size(names)
         call self%add_node(i, names, description%nodes(i)%operation, error)
         if (allocated(error)) return
      end do
      do i = 1, size(names) - 1
         if (is_taken(self%nodes(i + 1:), i)) cycle
         call fail(error, "layer "//names(i)%text//": no layer takes its output, and it is not the last")
         return
      end do
      call self%mark_sums()
      call self%allocate_parameters(error)
   end subroutine build

   !> Whether one of these nodes takes the output of node i
   pure logical function is_taken(nodes, i)
      !> Those behind it
      type(node_type), intent(in) :: nodes(:)
      !> Its number
      integer, intent(in) :: i
      integer :: j
      is_taken = any([(any(nodes(j)%inputs == i), j=1, size(nodes))])
   end function is_taken

   !> A node, which takes outputs of nodes before it
   subroutine add_node(self, i, names, operation, error)
      !> With the nodes before it
      class(graph_type), intent(inout) :: self
      !> Its number
      integer, intent(in) :: i
      !> Of all nodes
      type(name_type), intent(in) :: names(:)
      !> With its hyperparameters; without `inputs` it takes the output of the node before it
      class(operation_type), intent(in) :: operation
      !> What it takes is not there
      type(error_type), allocatable, intent(out) :: error
      allocate (self%nodes(i)%operation, source=operation)
      associate (own => self%nodes(i)%operation)
         if (.not. allocated(own%inputs)) then
            allocate (own%inputs(1))
            own%inputs(1)%text = input_name
            if (i > 1) own%inputs(1)%text = names(i - 1)%text
         end if
      end associate
      call self%find_inputs(i, names, error)
   end subroutine add_node

   !> Numbers of the nodes that a node takes
   subroutine find_inputs(self, i, names, error)
      !> The nodes before it; its inputs are set
      class(graph_type), intent(inout) :: self
      !> Its number
      integer, intent(in) :: i
      !> Of all nodes
      type(name_type), intent(in) :: names(:)
      !> A name that is no node's, or that of a node after it; or another number of inputs
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: why
      integer :: j, k
      associate (node => self%nodes(i), operation => self%nodes(i)%operation)
         allocate (node%inputs(size(operation%inputs)), node%parts(size(operation%inputs)))
         do j = 1, size(node%inputs)
            node%inputs(j) = merge(0, -1, operation%inputs(j)%text == input_name)
            do k = 1, size(names)
               if (names(k)%text == operation%inputs(j)%text) node%inputs(j) = k
            end do
            if (node%inputs(j) >= 0 .and. node%inputs(j) < i) cycle
            why = "and no layer has that name"
            if (node%inputs(j) > 0) why = "which is computed from it or after it"
            call fail(error, "layer "//operation%name//": it takes "//operation%inputs(j)%text//", "//why)
            return
         end do
         if (operation%arity() > 0 .and. size(node%inputs) /= operation%arity()) then
            call operation%refuse(to_text(size(node%inputs))//" inputs", to_text(operation%arity()), error)
         else if (operation%arity() == 0 .and. size(node%inputs) < 2) then
            call operation%refuse(to_text(size(node%inputs))//" inputs", "two or more", error)
         end if
      end associate
   end subroutine find_inputs

   !> In the order of the backward pass the first to give a gradient overwrites it, and all others add to it. The
   !> input's is nobody's where it is not kept
   pure subroutine mark_sums(self)
      !> With all nodes
      class(graph_type), intent(inout) :: self
      logical :: is_given(0:size(self%nodes))
      integer :: i, j
      is_given = .false.
      is_given(0) = self%keep_activations == keep_needed
      do i = size(self%nodes), 1, -1
         associate (node => self%nodes(i))
            allocate (node%adds(size(node%inputs)))
            do j = 1, size(node%inputs)
               node%adds(j) = is_given(node%inputs(j))
               is_given(node%inputs(j)) = .true.
            end do
         end associate
      end do
   end subroutine mark_sums

   !> Memory for the parameters, whose values are 0, and for the state
   subroutine allocate_parameters(self, error)
      !> With all nodes
      class(graph_type), intent(inout) :: self
      !> No memory
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type), allocatable :: found(:)
      integer, allocatable :: extents(:, :)
      integer :: i, j, n

      allocate (extents(4, 0))
      do i = 1, size(self%nodes)
         if (.not. allocated(self%nodes(i)%operation%parameters)) allocate (self%nodes(i)%operation%parameters(0))
         do j = 1, size(self%nodes(i)%operation%parameters)
            extents = reshape([extents, self%nodes(i)%operation%parameters(j)%shape%extent], [4, size(extents, 2) + 1])
         end do
      end do
      allocate (found(size(extents, 2)))
      call self%parameters%build(self%backend, self%dtype, extents, found, error)
      if (allocated(error)) return
      n = 0
      do i = 1, size(self%nodes)
         j = n + size(self%nodes(i)%operation%parameters)
         self%nodes(i)%parameters = found(n + 1:j)
         n = j
         call allocate_state(self%backend, self%dtype, self%nodes(i), error)
         if (allocated(error)) return
      end do
   end subroutine allocate_parameters

   !> Memory for what a node keeps from step to step, and from a forward pass to the backward pass
   subroutine allocate_state(backend, dtype, node, error)
      !> The device
      class(backend_type), intent(inout) :: backend
      !> Element type of all numbers, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> With its operation
      type(node_type), intent(inout) :: node
      !> No memory on the device
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      if (.not. allocated(node%operation%state)) allocate (node%operation%state(0))
      allocate (node%state(size(node%operation%state)))
      do i = 1, size(node%state)
         call backend%allocate(dtype, node%operation%state(i)%shape%extent, node%state(i), error)
         if (allocated(error)) return
      end do
      i = node%operation%kept_numbers()
      if (i > 0) call backend%allocate(dtype_float64, [i, 1, 1, 1], node%kept, error)
   end subroutine allocate_state

   !> Outputs of all nodes
   subroutine find_outputs(self, moved, error)
      !> The graph, finished, with its input
      class(graph_type), intent(inout) :: self
      !> Whether a tensor has another address than before
      logical, intent(out) :: moved
      !> Input that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      moved = .false.
      call self%find_shapes(shape_type(self%input_rank, self%input%extent), error)
      if (allocated(error)) return
      call self%allocate_tensors(moved, error)
      if (allocated(error)) return
      do i = 1, size(self%nodes)
         call self%run(i, .false., error)
         if (allocated(error)) return
      end do
   end subroutine find_outputs

   !> A pass of one node
   subroutine run(self, i, backward, error)
      !> The graph, with what the pass reads
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      !> Which pass
      logical, intent(in) :: backward
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(operands_type) :: operands
      if (self%nodes(i)%is_done(merge(2, 1, backward))) return
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
      !> The graph
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
      !> The graph, with all shapes
      class(graph_type), intent(in) :: self
      !> Number of the node; 0 is the input
      integer, intent(in) :: i
      !> In Fortran order
      integer :: extent(4)
      extent = self%input%extent
      if (i > 0) extent = self%nodes(i)%shape%extent
   end function extent_of

   !> Memory of a node's output, or of the input
   pure integer(i8) function bytes_of_output(self, i)
      !> The graph, with all shapes
      class(graph_type), intent(in) :: self
      !> Number of the node; 0 is the input
      integer, intent(in) :: i
      type(tensor_type) :: tensor
      tensor%dtype = self%dtype
      tensor%extent = self%extent_of(i)
      bytes_of_output = tensor%bytes()
   end function bytes_of_output

   !> What the passes of a node work on
   subroutine operands_of(self, i, operands)
      !> The graph, with tensors
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
         operands%rank = self%input_rank
         if (node%inputs(1) > 0) operands%rank = self%nodes(node%inputs(1))%shape%rank
         operands%y = node%output
         operands%dy = node%output_gradient
         if (node%relu_behind > 0) operands%slope = self%nodes(node%relu_behind)%operation%relu_slope
         if (node%relu_before > 0) operands%input_slope = self%nodes(node%relu_before)%operation%relu_slope
      end associate
   end subroutine operands_of

   !> The loss, and its gradient with respect to the output
   subroutine find_loss(self, target, moved, error)
      !> The graph, after its forward pass
      class(graph_type), intent(inout) :: self
      !> What the output should be
      type(tensor_type), intent(in) :: target
      !> False: tensors are allocated by the forward pass
      logical, intent(out) :: moved
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      moved = .false.
      self%loss_kind%batch_images = self%batch_images
      associate (last => self%nodes(size(self%nodes)))
         call self%loss_kind%compute(self%backend, last%output, target, last%shape%rank, last%output_gradient, &
            & self%loss, error)
      end associate
   end subroutine find_loss

   !> A gradient with respect to the output that is no loss's
   subroutine place_output_gradient(self, dy, moved, error)
      !> The graph, after its forward pass
      class(graph_type), intent(inout) :: self
      !> Of the output's shape; is copied
      type(tensor_type), intent(in) :: dy
      !> False: tensors are allocated by the forward pass
      logical, intent(out) :: moved
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      moved = .false.
      call self%backend%convert(dy, self%nodes(size(self%nodes))%output_gradient, error)
   end subroutine place_output_gradient

   !> The value of the last loss that was found; waits for the device
   subroutine fetch_loss(self, loss, error)
      !> The graph
      class(graph_type), intent(in) :: self
      !> Of all images
      real(dp), intent(out) :: loss
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      if (self%backend%queues) then
         call self%backend%read_loss(loss, error)
      else
         loss = self%loss
      end if
   end subroutine fetch_loss

   !> Gradients of every parameter, every node's output and the input
   subroutine find_gradients(self, error)
      !> The graph, with the gradient of the loss
      class(graph_type), intent(inout) :: self
      !> An error of the device
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
      !> The graph
      class(graph_type), intent(in) :: self
      output = self%nodes(size(self%nodes))%output
   end function output

   subroutine find_criterion(self, criterion)
      !> The graph
      class(graph_type), intent(in) :: self
      !> Its loss
      type(criterion_type), intent(out) :: criterion
      criterion = self%loss_kind
   end subroutine find_criterion

   pure integer function layer_count(self)
      !> The graph
      class(graph_type), intent(in) :: self
      layer_count = size(self%nodes)
   end function layer_count

   !> Let the operations compute as in training or as after it
   subroutine switch_training(self, training)
      !> The graph
      class(graph_type), intent(inout) :: self
      !> In training
      logical, intent(in) :: training
      integer :: i
      do i = 1, size(self%nodes)
         self%nodes(i)%operation%evaluates = .not. training
      end do
   end subroutine switch_training

   !> Whether the backward pass takes the memory of outputs
   pure logical function in_place(self)
      !> The graph
      class(graph_type), intent(in) :: self
      in_place = self%keep_activations == keep_needed
   end function in_place

   !> What there is of a node
   subroutine view(self, i, layer)
      !> The graph
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
         if (self%in_place() .and. i < size(self%nodes)) then
            layer%hidden_because = node%operation%name//" is not kept, expected "// &
               & self%nodes(size(self%nodes))%operation%name//", or a network with keep_activations=True"
         end if
         layer%output_gradient = node%output_gradient
         layer%rank = node%shape%rank
         layer%parameters = node%parameters
         layer%parameter_shapes = node%operation%parameters
         layer%state = node%state
         layer%state_shapes = node%operation%state
         layer%changes_state = node%operation%changes_state
         layer%has_mask = node%operation%has_mask()
      end associate
   end subroutine view

   !> The mask that a node takes in the next forward passes
   subroutine set_mask(self, i, mask, error)
      !> The graph
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
      !> The graph
      type(graph_type), intent(inout) :: self
      integer :: i, j
      if (.not. allocated(self%backend)) return
      call self%close()
      if (.not. allocated(self%nodes)) return
      call self%backend%release(self%memory)
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
