! SPDX-License-Identifier: MIT
!> Fused sequences of a graph's convolutions: what a device is asked for, forward, backward and in words.
!>
!> Backward. In place alone, all of a sequence when the pass comes to its last convolution. What else is computed
!>           between its first node and its last is part of it: nothing.
submodule(cnn_model_graph) cnn_model_graph_sequences
   implicit none

contains

   !> The convolutions of a sequence with the ReLUs that they compute
   function steps_of(self, first) result(steps)
      class(graph_type), intent(in) :: self
      !> Number of the sequence's first node
      integer, intent(in) :: first
      type(conv_step_type), allocatable :: steps(:)
      integer :: i
      allocate (steps((self%nodes(first)%last - first)/2 + 1))
      do i = first, self%nodes(first)%last, 2
         associate (node => self%nodes(i), step => steps((i - first)/2 + 1))
            select type (operation => node%operation)
             type is (conv2d_type)
               step%conv = operation%conv
            end select
            step%relu = node%relu_behind > 0
            if (step%relu) step%slope = self%nodes(node%relu_behind)%operation%relu_slope
            step%keeps_gradient = node%inputs(1) > 0
            step%x = self%input
            if (node%inputs(1) > 0) step%x = self%nodes(node%inputs(1))%output
            step%y = self%nodes(merge(node%relu_behind, i, step%relu))%output
            step%w = node%parameters(1)%value
            step%dw = node%parameters(1)%gradient
            if (size(node%parameters) > 1) then
               step%bias = node%parameters(2)%value
               step%db = node%parameters(2)%gradient
            end if
         end associate
      end do
      steps(1)%opaque = self%nodes(first)%opaque
   end function steps_of

   module procedure forward_sequence
      call self%backend%forward_sequence(steps_of(self, first), error)
      call self%nodes(first)%operation%name_node(error)
   end procedure forward_sequence

   module procedure backward_sequence
      type(conv_step_type), allocatable :: steps(:)
      type(operands_type) :: operands
      type(tensor_type) :: dy
      allocate (steps, source=steps_of(self, self%nodes(last)%first))
      dy = self%nodes(last)%output_gradient
      call self%operands_of(self%nodes(last)%first, operands)
      associate (db => steps(size(steps))%db)
         if (db%is_allocated() .and. .not. self%nodes(last)%leaves_bias) call self%backend%conv_backward_bias(dy, db, &
            & error)
      end associate
      if (.not. allocated(error)) call self%backend%backward_sequence(steps, dy, error)
      if (size(steps) > 1) dy = steps(2)%x
      if (.not. allocated(error) .and. operands%dx(1)%is_allocated()) call gradient_of_input(self, &
         & self%nodes(self%nodes(last)%first)%relu_before, steps(1), dy, operands%dx(1), error)
      call self%nodes(last)%operation%name_node(error)
   end procedure backward_sequence

   !> From the gradient of the first convolution's output to that of its input, or of the ReLU before it
   subroutine gradient_of_input(self, relu_before, step, dy, dx, error)
      class(graph_type), intent(inout) :: self
      !> Number of that ReLU; 0 where there is none
      integer, intent(in) :: relu_before
      !> The first convolution of a sequence
      type(conv_step_type), intent(in) :: step
      !> Gradient of its output
      type(tensor_type), intent(in) :: dy
      !> Is overwritten; where there is such a ReLU, its output
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: db
      if (relu_before == 0) then
         call self%backend%conv_backward_data(step%conv, step%w, dy, dx, error)
         return
      end if
      associate (relu => self%nodes(relu_before))
         if (relu%operation%relu_slope > 0.0_dp) then
            call self%backend%conv_backward_leaky(step%conv, step%w, dy, dx, relu%operation%relu_slope, error)
         else
            if (relu%bias_of > 0) db = self%nodes(relu%bias_of)%parameters(2)%gradient
            call self%backend%conv_backward_relu(step%conv, step%w, dy, dx, db, error)
         end if
      end associate
   end subroutine gradient_of_input

   module procedure find_storage
      type(conv_step_type), allocatable :: steps(:)
      integer :: i, dtype
      self%nodes%storage_dtype = self%dtype
      self%nodes%opaque = .false.
      if (.not. self%in_place()) return
      do i = 1, size(self%nodes)
         associate (last => self%nodes(i)%last)
            if (self%nodes(i)%first /= i .or. last == i) cycle
            steps = steps_before(self, i)
            call self%backend%find_storage_format(steps, dtype, self%nodes(i)%opaque, error)
            if (allocated(error)) return
            self%nodes(i:last - 1)%opaque = self%nodes(i)%opaque
            self%nodes(i:last - 1)%storage_dtype = dtype
         end associate
      end do
   end procedure find_storage

   !> The steps of a sequence before there are tensors: with extents and element types, but no addresses
   function steps_before(self, first) result(steps)
      class(graph_type), intent(in) :: self
      !> Number of the sequence's first node
      integer, intent(in) :: first
      type(conv_step_type), allocatable :: steps(:)
      integer :: i
      allocate (steps, source=steps_of(self, first))
      do i = first, self%nodes(first)%last, 2
         associate (step => steps((i - first)/2 + 1))
            step%x = tensor_type()
            step%x%dtype = self%dtype
            step%x%extent = self%extent_of(self%nodes(i)%inputs(1))
            if (i > first) step%x%dtype = self%nodes(i - 1)%storage_dtype
            step%y = tensor_type()
            step%y%dtype = self%nodes(i)%storage_dtype
            step%y%extent = self%nodes(i)%shape%extent
         end associate
      end do
   end function steps_before

   module procedure describe_plan
      type(shape_type) :: shapes(size(self%nodes))
      integer :: dtypes(size(self%nodes))
      logical :: opaque(size(self%nodes))
      type(tensor_type) :: x
      ! What there is of the last pass is found again afterwards
      shapes = self%nodes%shape
      dtypes = self%nodes%storage_dtype
      opaque = self%nodes%opaque
      x = self%input
      self%input%extent = input%extent
      text = ""
      call self%find_shapes(input, error)
      if (.not. allocated(error)) call self%find_storage(error)
      if (.not. allocated(error)) call describe_sequences(self, text)
      self%nodes%shape = shapes
      self%nodes%storage_dtype = dtypes
      self%nodes%opaque = opaque
      self%input = x
   end procedure describe_plan

   subroutine describe_sequences(self, text)
      class(graph_type), intent(in) :: self
      !> A line for each
      character(len=:), allocatable, intent(inout) :: text
      type(conv_step_type), allocatable :: steps(:)
      integer :: i
      do i = 1, size(self%nodes)
         if (self%nodes(i)%first /= i) cycle
         steps = steps_before(self, i)
         if (len(text) > 0) text = text//new_line("a")
         text = text//self%nodes(i)%operation%name
         if (self%nodes(i)%last > i) text = text//" .. "//self%nodes(self%nodes(i)%last)%operation%name
         text = text//": "//self%backend%sequence_algorithm(steps)
      end do
   end subroutine describe_sequences

end submodule cnn_model_graph_sequences
