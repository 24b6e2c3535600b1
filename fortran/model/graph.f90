! SPDX-License-Identifier: MIT
!> A network whose operations take the outputs of any before them: forward, loss, backward, update.
!>
!> Order.   `start`, `add_node` for each node in an order of computation, `finish`, then forward, compute_loss, backward
!>          and update, in this order.
!> Fan-out. Where several nodes take an output, the first of them in the backward pass overwrites its gradient, and what
!>          the others give is added to it.
!> Memory.  Every output and every gradient is kept, of the shapes that follow from the input's. A graph is not copied
!>          by assignment.
module cnn_model_graph
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_none
   use cnn_core_tensor, only : same_shape, shape_text, tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_devices, only : open_device
   use cnn_model_parameters, only : parameter_type, parameters_type
   use cnn_model_tensors, only : resize
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_primitives, only : compute
   use cnn_operations_shape, only : shape_type
   use cnn_optimizers_optimizer, only : optimizer_type
   implicit none
   private

   !> Name of the network's input among the inputs of nodes
   character(len=*), parameter, public :: input_name = "input"

   type, public :: node_type
      class(operation_type), allocatable :: operation
      !> Numbers of the nodes that it takes; 0 is the network's input
      integer, allocatable :: inputs(:)
      type(parameter_type), allocatable :: parameters(:)
      type(shape_type) :: shape
      type(tensor_type) :: output, output_gradient
      !> What its operation keeps from step to step
      type(tensor_type), allocatable :: state(:)
      !> Of 0 and 1, where its operation takes one: to be set before `forward`
      type(tensor_type) :: mask
      !> What it adds to the gradients of those of its inputs that others after it take too; empty for the rest
      type(tensor_type), allocatable :: parts(:)
   end type node_type

   type, public :: graph_type
      class(backend_type), allocatable :: backend
      type(node_type), allocatable :: nodes(:)
      type(parameters_type) :: parameters
      integer :: dtype = dtype_none
      type(criterion_type) :: criterion
      !> The caller's tensor of the last forward pass: it must stay alive until the backward pass
      type(tensor_type) :: input
      !> Number of its dimensions
      integer, private :: rank = 0
      type(tensor_type) :: input_gradient
      !> Names of all nodes, and how many of them have been added
      type(name_type), allocatable, private :: names(:)
      integer, private :: added = 0
   contains
      procedure :: start
      procedure :: add_node
      procedure :: finish
      procedure :: forward
      procedure :: compute_loss
      procedure :: backward
      procedure :: update
      procedure, private :: find_inputs, find_shapes, allocate_tensors, operands_of
      final :: destroy
   end type graph_type

contains

   !> A graph without nodes
   subroutine start(self, names, dtype, device, error)
      !> A graph of which nothing has been set
      class(graph_type), intent(inout) :: self
      !> Of the nodes that are to be added, in their order
      type(name_type), intent(in) :: names(:)
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Unknown device
      type(error_type), allocatable, intent(out) :: error
      call open_device(device, self%backend, error)
      if (allocated(error)) return
      self%dtype = dtype
      self%names = names
      allocate (self%nodes(size(names)))
   end subroutine start

   !> The next node; it takes outputs of nodes before it
   subroutine add_node(self, operation, error)
      !> A graph that is started
      class(graph_type), intent(inout) :: self
      !> With its hyperparameters; without `inputs` it takes the output of the node before it. Empty afterwards
      class(operation_type), allocatable, intent(inout) :: operation
      !> What it takes is not there, or the device does not have it
      type(error_type), allocatable, intent(out) :: error

      call self%find_inputs(operation, error)
      if (allocated(error)) return
      if (.not. (self%backend%in_host_memory .or. operation%on_every_device())) then
         call operation%refuse("device "//self%backend%name//" does not have this operation", "device cpu", error)
         return
      end if
      self%added = self%added + 1
      call move_alloc(operation, self%nodes(self%added)%operation)
   end subroutine add_node

   !> Numbers of the nodes that the next one takes
   subroutine find_inputs(self, operation, error)
      !> The nodes before it; the next one's inputs are set
      class(graph_type), intent(inout) :: self
      !> With names of inputs, or without: then they are set
      class(operation_type), intent(inout) :: operation
      !> A name that is no node's, or that of a node after it; or another number of inputs
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: why
      integer, allocatable :: inputs(:)
      integer :: i, j

      if (.not. allocated(operation%inputs)) then
         allocate (operation%inputs(1))
         operation%inputs(1)%text = input_name
         if (self%added > 0) operation%inputs(1)%text = self%names(self%added)%text
      end if
      allocate (inputs(size(operation%inputs)))
      do i = 1, size(inputs)
         inputs(i) = merge(0, -1, operation%inputs(i)%text == input_name)
         do j = 1, size(self%names)
            if (self%names(j)%text == operation%inputs(i)%text) inputs(i) = j
         end do
         if (inputs(i) >= 0 .and. inputs(i) <= self%added) cycle
         why = "and no layer has that name"
         if (inputs(i) > 0) why = "which is computed from it or after it"
         call fail(error, "layer "//operation%name//": it takes "//operation%inputs(i)%text//", "//why)
         return
      end do
      if (operation%arity() > 0 .and. size(inputs) /= operation%arity()) then
         call operation%refuse(to_text(size(inputs))//" inputs", to_text(operation%arity()), error)
      else if (operation%arity() == 0 .and. size(inputs) < 2) then
         call operation%refuse(to_text(size(inputs))//" inputs", "two or more", error)
      end if
      if (allocated(error)) return
      associate (node => self%nodes(self%added + 1))
         allocate (node%parts(size(inputs)))
         call move_alloc(inputs, node%inputs)
      end associate
   end subroutine find_inputs

   !> After the last node: memory for the parameters, whose values are 0, and for the state
   subroutine finish(self, error)
      !> With all nodes
      class(graph_type), intent(inout) :: self
      !> An output that nobody takes, or no memory
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type), allocatable :: found(:)
      integer, allocatable :: extents(:, :)
      integer :: i, j, n

      do i = 1, size(self%nodes) - 1
         if (any([(any(self%nodes(j)%inputs == i), j=i + 1, size(self%nodes))])) cycle
         call fail(error, "layer "//self%nodes(i)%operation%name//": no layer takes its output, and it is not the last")
         return
      end do
      allocate (extents(4, 0))
      do i = 1, size(self%nodes)
         if (.not. allocated(self%nodes(i)%operation%parameters)) allocate (self%nodes(i)%operation%parameters(0))
         do j = 1, size(self%nodes(i)%operation%parameters)
            extents = reshape([extents, self%nodes(i)%operation%parameters(j)%shape%extent], [4, size(extents, 2) + 1])
         end do
      end do
      allocate (found(size(extents, 2)))
      call self%parameters%build_list(self%backend, self%dtype, extents, found, error)
      if (allocated(error)) return
      n = 0
      do i = 1, size(self%nodes)
         j = n + size(self%nodes(i)%operation%parameters)
         self%nodes(i)%parameters = found(n + 1:j)
         n = j
         call allocate_state(self%backend, self%dtype, self%nodes(i), error)
         if (allocated(error)) return
      end do
   end subroutine finish

   !> Memory for what a node keeps from step to step
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
   end subroutine allocate_state

   !> Outputs of all nodes for the input x
   subroutine forward(self, x, rank, error)
      !> The graph, finished
      class(graph_type), intent(inout) :: self
      !> In the graph's memory; it must stay alive until `backward`
      type(tensor_type), intent(in) :: x
      !> Number of its dimensions
      integer, intent(in) :: rank
      !> Input that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(operands_type) :: operands
      integer :: i
      self%input = x
      self%rank = rank
      call self%find_shapes(shape_type(rank, x%extent), error)
      if (allocated(error)) return
      call self%allocate_tensors(error)
      if (allocated(error)) return
      do i = 1, size(self%nodes)
         call self%operands_of(i, operands)
         call self%nodes(i)%operation%forward(self%backend, operands, error)
         if (allocated(error)) return
      end do
   end subroutine forward

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

   !> Outputs and gradients of the shapes that were found
   subroutine allocate_tensors(self, error)
      !> The graph
      class(graph_type), intent(inout) :: self
      !> No memory on the device
      type(error_type), allocatable, intent(out) :: error
      logical :: moved, is_given(0:size(self%nodes))
      integer :: i, j
      moved = .false.
      is_given = .false.
      call resize(self%backend, self%input%extent, self%dtype, self%input_gradient, moved, error)
      if (allocated(error)) return
      ! In the order of the backward pass: the first to give a gradient overwrites it
      do i = size(self%nodes), 1, -1
         associate (node => self%nodes(i))
            call resize(self%backend, node%shape%extent, self%dtype, node%output, moved, error)
            if (allocated(error)) return
            call resize(self%backend, node%shape%extent, self%dtype, node%output_gradient, moved, error)
            if (allocated(error)) return
         end associate
         do j = 1, size(self%nodes(i)%inputs)
            associate (from => self%nodes(i)%inputs(j))
               if (is_given(from)) then
                  if (from == 0) call resize(self%backend, self%input%extent, self%dtype, self%nodes(i)%parts(j), &
                     & moved, error)
                  if (from > 0) call resize(self%backend, self%nodes(from)%shape%extent, self%dtype, &
                     & self%nodes(i)%parts(j), moved, error)
                  if (allocated(error)) return
               end if
               is_given(from) = .true.
            end associate
         end do
      end do
   end subroutine allocate_tensors

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
            if (node%parts(j)%is_allocated()) operands%dx(j) = node%parts(j)
         end do
         operands%w = node%parameters%value
         operands%dw = node%parameters%gradient
         operands%state = node%state
         operands%mask = node%mask
         operands%rank = self%rank
         if (node%inputs(1) > 0) operands%rank = self%nodes(node%inputs(1))%shape%rank
         operands%y = node%output
         operands%dy = node%output_gradient
      end associate
   end subroutine operands_of

   !> The loss, and its gradient with respect to the output
   subroutine compute_loss(self, target, loss, error)
      !> The graph, after `forward`
      class(graph_type), intent(inout) :: self
      !> What the output should be, in the graph's memory
      type(tensor_type), intent(in) :: target
      !> Of all images
      real(dp), intent(out) :: loss
      !> Target that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      loss = 0.0_dp
      associate (last => self%nodes(size(self%nodes)))
         if (.not. same_shape(target, last%output)) then
            call fail(error, "target "//shape_text(target%extent)//", expected the shape of the output "// &
               & shape_text(last%output%extent))
            return
         end if
         call self%criterion%compute(self%backend, last%output, target, last%shape%rank, last%output_gradient, loss, &
            & error)
      end associate
   end subroutine compute_loss

   !> Gradients of every parameter, every node's output and the input
   subroutine backward(self, error)
      !> The graph, after `compute_loss`
      class(graph_type), intent(inout) :: self
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(operands_type) :: operands
      integer :: i, j
      do i = size(self%nodes), 1, -1
         call self%operands_of(i, operands)
         call self%nodes(i)%operation%backward(self%backend, operands, error)
         if (allocated(error)) return
         do j = 1, size(operands%dx)
            if (.not. self%nodes(i)%parts(j)%is_allocated()) cycle
            if (self%nodes(i)%inputs(j) == 0) then
               call compute(self%backend, "accumulate", [operands%dx(j), self%input_gradient], error)
            else
               call compute(self%backend, "accumulate", [operands%dx(j), &
                  & self%nodes(self%nodes(i)%inputs(j))%output_gradient], error)
            end if
            if (allocated(error)) return
         end do
      end do
   end subroutine backward

   !> One step on all parameters that are not frozen
   subroutine update(self, optimizer, error)
      !> The graph, after `backward`
      class(graph_type), intent(inout) :: self
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Unusable setting, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call optimizer%check(error)
      if (.not. allocated(error)) call self%parameters%update(self%backend, optimizer, error)
   end subroutine update

   !> Give everything back to the device
   subroutine destroy(self)
      !> The graph
      type(graph_type), intent(inout) :: self
      integer :: i, j
      if (.not. allocated(self%backend)) return
      call self%backend%close()
      call self%parameters%release(self%backend)
      call self%backend%release(self%input_gradient)
      if (.not. allocated(self%nodes)) return
      do i = 1, size(self%nodes)
         call self%backend%release(self%nodes(i)%output)
         call self%backend%release(self%nodes(i)%output_gradient)
         call self%backend%release(self%nodes(i)%mask)
         if (allocated(self%nodes(i)%parts)) then
            do j = 1, size(self%nodes(i)%parts)
               call self%backend%release(self%nodes(i)%parts(j))
            end do
         end if
         if (.not. allocated(self%nodes(i)%state)) cycle
         do j = 1, size(self%nodes(i)%state)
            call self%backend%release(self%nodes(i)%state(j))
         end do
      end do
   end subroutine destroy

end module cnn_model_graph
