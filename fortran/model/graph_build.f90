! SPDX-License-Identifier: MIT
!> A graph as its description has it: who takes what, what is computed together, memory for parameters, and for
!> gradients that do not lie with the outputs.
!>
!> ReLUs.       Unless all is kept, a convolution computes the ReLU that alone takes its output.
!> Sequences.   Convolutions with such ReLUs between them, of which each is taken by the next convolution alone, are a
!>              fused sequence, which a device computes as it likes.
submodule(cnn_model_graph) cnn_model_graph_build
   use cnn_core_kinds, only : dtype_float64
   use cnn_core_tensor, only : full_extent => extent_of
   use cnn_core_text, only : name_type
   use cnn_model_description, only : input_name
   implicit none

contains

   module procedure build
      type(name_type) :: names(size(description%nodes))
      integer :: i
      self%loss_kind = description%criterion
      if (allocated(description%inputs)) self%inputs = description%inputs
      allocate (self%nodes(size(names)))
      do i = 1, size(names)
         names(i)%text = description%nodes(i)%operation%name
      end do
      do i = 1, size(names)
         call add_node(self, i, names, description%nodes(i)%operation, error)
         if (allocated(error)) return
      end do
      do i = 1, size(names) - 1
         if (is_taken(self%nodes(i + 1:), i)) cycle
         call fail(error, "layer "//names(i)%text//": no layer takes its output, and it is not the last")
         return
      end do
      call check_channels(self, error)
      if (allocated(error)) return
      call mark_sums(self)
      do i = 1, size(names)
         call mark_relu(self, i)
      end do
      do i = 1, size(names)
         call mark_sequence(self, i)
      end do
      call allocate_parameters(self, error)
   end procedure build

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
      call find_inputs(self, i, names, error)
   end subroutine add_node

   !> Numbers of the nodes that a node takes
   subroutine find_inputs(self, i, names, error)
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
      class(graph_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(parameter_type), allocatable :: found(:)
      integer, allocatable :: extents(:, :)
      integer :: i, j, n

      allocate (extents(max_rank, 0))
      do i = 1, size(self%nodes)
         if (.not. allocated(self%nodes(i)%operation%parameters)) allocate (self%nodes(i)%operation%parameters(0))
         do j = 1, size(self%nodes(i)%operation%parameters)
            extents = reshape([extents, self%nodes(i)%operation%parameters(j)%shape%extent], &
               & [max_rank, size(extents, 2) + 1])
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
      class(backend_type), intent(inout) :: backend
      !> Element type of all numbers, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> With its operation
      type(node_type), intent(inout) :: node
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      if (.not. allocated(node%operation%state)) allocate (node%operation%state(0))
      allocate (node%state(size(node%operation%state)))
      do i = 1, size(node%state)
         call backend%allocate(dtype, node%operation%state(i)%shape%extent, node%state(i), error)
         if (allocated(error)) return
      end do
      i = node%operation%kept_numbers()
      if (i > 0) call backend%allocate(dtype_float64, full_extent([i]), node%kept, error)
   end subroutine allocate_state

   !> The channels of each convolution are those that the one before it gives, where there are only ReLUs between them
   subroutine check_channels(self, error)
      class(graph_type), intent(in) :: self
      !> Two convolutions that do not fit together
      type(error_type), allocatable, intent(out) :: error
      integer :: i, k, here(2), before(2)
      do i = 1, size(self%nodes)
         here = channels_of(self%nodes(i)%operation)
         k = self%nodes(i)%inputs(1)
         do while (k > 0)
            if (self%nodes(k)%operation%relu_slope < 0.0_dp) exit
            k = self%nodes(k)%inputs(1)
         end do
         if (k == 0) cycle
         before = channels_of(self%nodes(k)%operation)
         if (here(1) == 0 .or. before(2) == 0 .or. here(1) == before(2)) cycle
         call fail(error, "model: layer "//self%nodes(i)%operation%name//" has in_channels "//to_text(here(1))// &
            & ", but the layer before it gives "//to_text(before(2)))
         return
      end do
   end subroutine check_channels

   !> Channels of a convolution's input and output; 0 where it is none
   pure function channels_of(operation) result(channels)
      !> Of a node
      class(operation_type), intent(in) :: operation
      integer :: channels(2)
      channels = 0
      select type (operation)
       type is (conv2d_type)
         channels = operation%weight_extent(3:)*[operation%conv%groups, 1]
      end select
   end function channels_of

   pure logical function is_convolution(operation)
      !> Of a node
      class(operation_type), intent(in) :: operation
      is_convolution = any(channels_of(operation) > 0)
   end function is_convolution

   !> What a convolution computes of the ReLU that alone takes its output: with `keep_all` only, in the backward pass,
   !> the gradient of its bias, which is a sum over what the ReLU passes on: one pass for both
   pure subroutine mark_relu(self, i)
      class(graph_type), intent(inout) :: self
      !> Number of a node, perhaps a ReLU
      integer, intent(in) :: i
      integer :: k
      associate (slope => self%nodes(i)%operation%relu_slope)
         if (slope < 0.0_dp) return
         k = self%nodes(i)%inputs(1)
         if (k == 0) return
         if (.not. is_convolution(self%nodes(k)%operation) .or. self%takers_of(k) > 1) return
         if (slope > 0.0_dp) then
            if (self%keep_activations /= keep_needed .or. .not. self%backend%has_slopes) return
         else
            self%nodes(k)%leaves_bias = .true.
            if (size(self%nodes(k)%operation%parameters) > 1) self%nodes(i)%bias_of = k
         end if
         if (self%keep_activations == keep_all) return
         self%nodes(k)%relu_behind = i
         self%nodes(i)%is_done(1) = .true.
      end associate
   end subroutine mark_relu

   !> The fused sequence that a convolution belongs to: nodes one behind the other, of which the last ReLU may be leaky
   !> if the convolution is alone
   pure subroutine mark_sequence(self, i)
      class(graph_type), intent(inout) :: self
      !> Number of a node, perhaps a convolution
      integer, intent(in) :: i
      integer :: relu
      if (.not. is_convolution(self%nodes(i)%operation)) return
      self%nodes(i)%first = i
      if (i > 2) then
         relu = self%nodes(i - 2)%relu_behind
         if (relu == i - 1 .and. self%nodes(i)%inputs(1) == i - 1 .and. self%takers_of(i - 1) == 1) then
            if (self%nodes(relu)%operation%relu_slope <= 0.0_dp) self%nodes(i)%first = self%nodes(i - 2)%first
         end if
      end if
      associate (first => self%nodes(i)%first)
         self%nodes(first:i:2)%last = i
         if (first == i) return
         self%nodes(i)%is_done(1) = .true.
         relu = self%nodes(i)%relu_behind
         if (relu == 0) return
         if (self%nodes(relu)%operation%relu_slope <= 0.0_dp) return
         self%nodes(i)%relu_behind = 0
         self%nodes(relu)%is_done(1) = .false.
      end associate
   end subroutine mark_sequence

   module procedure allocate_gradients
      integer :: i, j
      moved = .false.
      if (self%in_place()) return
      call resize(self%backend, self%input%extent, self%dtype, self%input_gradient, moved, error)
      if (allocated(error)) return
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            call resize(self%backend, node%shape%extent, self%dtype, node%output_gradient, moved, error)
            if (allocated(error)) return
            do j = 1, size(node%inputs)
               if (.not. node%adds(j)) cycle
               call resize(self%backend, self%extent_of(node%inputs(j)), self%dtype, node%parts(j), moved, error)
               if (allocated(error)) return
            end do
         end associate
      end do
   end procedure allocate_gradients

   module procedure takers_of
      integer :: j
      takers_of = sum([(count(self%nodes(j)%inputs == i), j=1, size(self%nodes))])
   end procedure takers_of

end submodule cnn_model_graph_build
