! SPDX-License-Identifier: MIT
!> Memory of the outputs of a graph and of the gradients of the loss with respect to them.
!>
!> Kept all.    Each has its own.
!> Kept what training needs. All lie in one piece of memory, and those that are not needed at the same time may share
!>              it. The forward pass of node i of n happens at the time i, the loss at n + 1, and the backward pass of
!>              node i at 3n + 2 - 2i and at the time after that, to which it may leave the gradients of its inputs.
!> In place.    Where an operation works in place its output takes the memory of its first input, if that is not needed
!>              any more, and the gradient of that input the memory of the output's; in host memory alone, because
!>              kernels of a GPU take their arrays to lie apart.
!> Again.       What little work makes of outputs that are there anyway, concatenations above all, is not kept for the
!>              backward pass but found again before the first node that reads it: see T. Chen, B. Xu, C. Zhang and
!>              C. Guestrin, Training deep nets with sublinear memory cost, arXiv:1604.06174 (2016).
!> Parts.       Such an output that only a concatenation takes is written into that one's memory, where its images do
!>              not lie one behind the other, and its gradient is read there; in host memory alone.
!> ReLUs.       With the gradient of its input a convolution computes that of the ReLU before it, which then lies where
!>              that ReLU's output did. What a ReLU that a convolution computes takes and gives lies in one place.
!> Sequences.   All of a fused sequence happens in the forward pass of its first node and in the backward pass of its
!>              last.
submodule(cnn_model_graph) cnn_model_graph_memory
   use cnn_core_kinds, only : bytes_of
   use cnn_core_tensor, only : aligned, full_extent => extent_of, part_of
   use cnn_model_memory_plan, only : buffer_type, place
   implicit none

   !> Which buffers the tensors of a graph lie in
   type :: plan_type
      type(buffer_type), allocatable :: buffers(:)
      !> Of each node's output, and of its gradient
      integer, allocatable :: output(:), gradient(:)
      !> Of `parts`, by node and input; 0 where there is none
      integer, allocatable :: parts(:, :)
      !> Before the backward pass of which node an output is found again; 0 where it is not
      integer, allocatable :: again_before(:)
      !> The concatenation that an output is part of; 0 where there is none
      integer, allocatable :: whole(:)
      !> As of a node
      integer, allocatable :: relu_before(:)
   end type plan_type

   !> Bytes of a tensor for which no machine has memory; offsets of some thousand of them still fit their integers
   integer(i8), parameter :: too_many = 2_i8**48

contains

   module procedure allocate_outputs
      integer :: i
      call allocate_scratch(self, moved, error)
      if (allocated(error)) return
      if (self%in_place()) then
         call allocate_together(self, moved, error)
         return
      end if
      self%nodes%storage_dtype = self%dtype
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            if (node%relu_behind > 0) cycle
            call resize(self%backend, node%shape%extent, self%dtype, node%output, moved, error)
            if (allocated(error)) return
         end associate
      end do
   end procedure allocate_outputs

   !> As much as that pass needs which needs most
   subroutine allocate_scratch(self, moved, error)
      class(graph_type), intent(inout) :: self
      !> Becomes true where it gets another address
      logical, intent(inout) :: moved
      !> There is no memory
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, y
      integer(i8) :: bytes
      integer :: i
      bytes = 0_i8
      x%dtype = self%dtype
      y%dtype = self%dtype
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            x%extent = self%extent_of(node%inputs(1))
            y%extent = node%shape%extent
            bytes = max(bytes, node%operation%scratch_bytes(self%backend%in_host_memory, x, y))
         end associate
      end do
      if (bytes == 0_i8) return
      if (aligned(bytes)/aligned(1_i8) > huge(1)) then
         call fail(error, "network: "//to_text(bytes)//" bytes to work in, for which there is no memory")
         return
      end if
      call resize(self%backend, full_extent([int(aligned(1_i8)/bytes_of(self%dtype)), &
         & int(aligned(bytes)/aligned(1_i8))]), self%dtype, self%scratch, moved, error)
   end subroutine allocate_scratch

   !> One piece of memory for all tensors
   subroutine allocate_together(self, moved, error)
      class(graph_type), intent(inout) :: self
      !> Becomes true where a tensor gets another address
      logical, intent(inout) :: moved
      type(error_type), allocatable, intent(out) :: error
      type(plan_type) :: plan
      integer(i8) :: bytes
      integer :: i, j, units
      if (self%memory%is_allocated() .and. all(self%planned_for == [self%input%extent, self%input_rank])) return
      call forget(self)
      self%nodes%storage_dtype = self%dtype
      bytes = maxval([(self%bytes_of_output(i), i=0, size(self%nodes))])
      if (bytes < too_many) then
         call self%find_storage(error)
         if (allocated(error)) return
         call plan_memory(self, plan)
         call place(plan%buffers, bytes)
      end if
      if (bytes/aligned(1_i8) > huge(1)) then
         call fail(error, "network: "//to_text(bytes)//" bytes of outputs and gradients, for which there is no memory")
         return
      end if
      units = int(bytes/aligned(1_i8))
      call resize(self%backend, full_extent([int(aligned(1_i8)/bytes_of(self%dtype)), units]), self%dtype, &
         & self%memory, moved, error)
      if (allocated(error)) return
      moved = .true.
      self%planned_for = [self%input%extent, self%input_rank]
      do i = 1, size(self%nodes)
         associate (node => self%nodes(i))
            node%again_before = plan%again_before(i)
            node%relu_before = plan%relu_before(i)
            node%is_done(2) = any(plan%relu_before == i) .or. node%last > i
            node%stays = stays(plan, i)
            node%apart = 0_i8
            if (plan%whole(i) > 0) node%apart = bytes_of_image(self, plan%whole(i))
            bytes = offset_in_whole(self, plan, i)
            node%output = part_of(self%memory, plan%buffers(plan%output(i))%offset + bytes, node%shape%extent)
            node%output%dtype = node%storage_dtype
            node%output_gradient = part_of(self%memory, plan%buffers(plan%gradient(i))%offset + bytes, &
               & node%shape%extent)
            do j = 1, size(node%inputs)
               if (plan%parts(i, j) > 0) node%parts(j) = part_of(self%memory, plan%buffers(plan%parts(i, j))%offset, &
                  & self%extent_of(node%inputs(j)))
            end do
         end associate
      end do
   end subroutine allocate_together

   !> Leave no tensor that lies in memory which is given back
   pure subroutine forget(self)
      class(graph_type), intent(inout) :: self
      integer :: i
      self%planned_for = 0
      do i = 1, size(self%nodes)
         self%nodes(i)%output = tensor_type()
         self%nodes(i)%output_gradient = tensor_type()
         self%nodes(i)%parts = tensor_type()
      end do
   end subroutine forget

   !> When each tensor is needed, and which of them share their memory throughout
   pure subroutine plan_memory(self, plan)
      class(graph_type), intent(in) :: self
      !> Without offsets
      type(plan_type), intent(out) :: plan
      integer :: i, j, n, most
      n = size(self%nodes)
      most = maxval([(size(self%nodes(i)%inputs), i=1, n)])
      allocate (plan%buffers(n*(2 + most)), plan%parts(n, most))
      plan%output = [(i, i=1, n)]
      plan%gradient = [(n + i, i=1, n)]
      plan%parts = 0
      plan%again_before = [(0, i=1, n)]
      plan%relu_before = [(0, i=1, n)]
      plan%whole = [(whole_of(self, i), i=1, n)]
      ! A part of a part would be one of another whole
      do i = n, 1, -1
         if (plan%whole(i) == 0) cycle
         if (plan%whole(plan%whole(i)) > 0) plan%whole(i) = 0
      end do
      call plan_outputs(self, plan)
      call plan_again(self, plan)
      call share_outputs(self, plan)
      call plan_relus(self, plan)
      do i = n, 1, -1
         do j = 1, size(self%nodes(i)%inputs)
            call plan_gradient(self, i, j, plan)
         end do
      end do
      call plan_parts(plan)
   end subroutine plan_memory

   !> When the backward pass of a node begins; a time later it ends
   pure integer function backward_of(self, i)
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      backward_of = 3*size(self%nodes) + 2 - 2*i
   end function backward_of

   !> Outputs are needed from their forward pass to the last pass that reads them; that of the last node to the end
   pure subroutine plan_outputs(self, plan)
      class(graph_type), intent(in) :: self
      !> Outputs are set, and the gradient of the last
      type(plan_type), intent(inout) :: plan
      integer :: i, j, n, backward
      n = size(self%nodes)
      do i = 1, n
         backward = backward_of(self, i)
         associate (node => self%nodes(i), own => plan%buffers(i))
            own%bytes = self%bytes_of_output(i)
            plan%buffers(n + i)%bytes = own%bytes
            call own%extend(i)
            if (node%operation%reads_y()) call own%extend(backward + 1)
            call plan%buffers(n + i)%extend(backward + 1)
            do j = 1, size(node%inputs)
               if (node%inputs(j) == 0) cycle
               call plan%buffers(node%inputs(j))%extend(i)
               if (.not. node%operation%reads_x()) cycle
               call plan%buffers(node%inputs(j))%extend(backward + merge(0, 1, node%operation%reads_x_first()))
            end do
         end associate
      end do
      call plan%buffers(n)%extend(backward_of(self, 1) + 1)
      call plan%buffers(2*n)%extend(n + 1)
      do i = 1, n
         if (self%nodes(i)%first == 0) cycle
         call plan%buffers(i)%extend(self%nodes(i)%first)
         call plan%buffers(n + i)%extend(backward_of(self, self%nodes(i)%first))
      end do
   end subroutine plan_outputs

   !> Outputs that are found again
   pure subroutine plan_again(self, plan)
      class(graph_type), intent(in) :: self
      !> Outputs are set
      type(plan_type), intent(inout) :: plan
      integer :: i, j, k, n
      n = size(self%nodes)
      do i = 1, n - 1
         if (plan%buffers(i)%last(1) <= n .or. .not. self%nodes(i)%operation%is_light()) cycle
         do k = n, i + 1, -1
            if (any(self%nodes(k)%inputs == i) .and. self%nodes(k)%operation%reads_x()) exit
         end do
         k = max(k, self%nodes(k)%last)
         associate (inputs => self%nodes(i)%inputs)
            if (all([(is_at_hand(self, plan, inputs(j), k), j=1, size(inputs))])) call find_again(self, i, k, plan)
         end associate
      end do
   end subroutine plan_again

   !> Whether there is an output before the backward pass of a node, or all that it can be found from
   pure recursive logical function is_at_hand(self, plan, i, k) result(at_hand)
      class(graph_type), intent(in) :: self
      !> With the times of outputs
      type(plan_type), intent(in) :: plan
      !> Whose output; 0 is the network's input
      integer, intent(in) :: i
      !> Before the backward pass of which node
      integer, intent(in) :: k
      integer :: j
      at_hand = i == 0
      if (at_hand) return
      at_hand = plan%buffers(i)%covers(backward_of(self, k))
      if (at_hand .or. plan%again_before(i) > 0 .or. .not. self%nodes(i)%operation%is_light()) return
      at_hand = all([(is_at_hand(self, plan, self%nodes(i)%inputs(j), k), j=1, size(self%nodes(i)%inputs))])
   end function is_at_hand

   !> An output that is found again, with those of its inputs that are not there any more
   pure recursive subroutine find_again(self, i, k, plan)
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      !> Before the backward pass of which node
      integer, intent(in) :: k
      !> Outputs are set
      type(plan_type), intent(inout) :: plan
      integer :: j, time
      time = backward_of(self, k)
      associate (own => plan%buffers(i), inputs => self%nodes(i)%inputs)
         plan%again_before(i) = k
         own%first(2) = time
         own%last(2) = max(time, own%last(1))
         own%last(1) = maxval([(merge(j, i, any(self%nodes(j)%inputs == i)), j=i, size(self%nodes))])
         do j = 1, size(inputs)
            if (inputs(j) == 0) cycle
            if (.not. plan%buffers(inputs(j))%covers(time)) call find_again(self, inputs(j), k, plan)
         end do
      end associate
   end subroutine find_again

   !> Outputs that take the memory of their node's first input: it is not needed after that pass, nor is anything else
   !> that lies where it does
   pure subroutine share_outputs(self, plan)
      class(graph_type), intent(in) :: self
      !> Outputs are set
      type(plan_type), intent(inout) :: plan
      integer :: i, taken
      do i = 2, size(self%nodes)
         associate (node => self%nodes(i))
            if (node%inputs(1) == 0 .or. .not. in_place_at(self, i)) cycle
            taken = plan%output(node%inputs(1))
            if (plan%buffers(taken)%last(1) /= i) cycle
            call plan%buffers(taken)%extend(plan%buffers(i)%last(1))
            plan%buffers(i)%bytes = 0_i8
            plan%output(i) = taken
         end associate
      end do
   end subroutine share_outputs

   !> ReLUs whose gradient a convolution computes, which alone takes their output: it then lies where that did
   pure subroutine plan_relus(self, plan)
      class(graph_type), intent(in) :: self
      !> Outputs are set, and share their memory
      type(plan_type), intent(inout) :: plan
      integer :: i, k, n
      n = size(self%nodes)
      do i = 1, n
         associate (slope => self%nodes(i)%operation%relu_slope)
            if (slope < 0.0_dp .or. (slope > 0.0_dp .and. .not. self%backend%has_slopes)) cycle
         end associate
         do k = i + 1, n
            if (any(self%nodes(k)%inputs == i)) exit
         end do
         if (k > n) cycle
         if (self%nodes(k)%first == 0 .or. self%takers_of(i) > 1) cycle
         ! What is found again in that place may be read while the gradient is there
         if (plan%again_before(plan%output(i)) > 0) cycle
         plan%relu_before(k) = i
         call plan%buffers(plan%output(i))%cover(plan%buffers(n + i))
         plan%gradient(i) = plan%output(i)
      end do
   end subroutine plan_relus

   !> Whether a node's output is there after the forward pass: nothing else has come to its place
   pure logical function stays(plan, i)
      !> The plan
      type(plan_type), intent(in) :: plan
      !> Number of the node
      integer, intent(in) :: i
      integer :: n
      n = size(plan%output)
      stays = plan%whole(i) == 0 .and. plan%buffers(plan%output(i))%covers(n + 1) .and. &
         & .not. any(plan%output(i + 1:) == plan%output(i))
   end function stays

   !> Whether a node can work where its first input is, which has as many elements as its output
   pure logical function in_place_at(self, i)
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      associate (node => self%nodes(i))
         in_place_at = (self%backend%in_host_memory .or. node%is_done(1)) .and. node%operation%works_in_place() .and. &
            & self%bytes_of_output(i) == self%bytes_of_output(node%inputs(1))
      end associate
   end function in_place_at

   !> The gradient of an input is needed from the backward pass that gives it to that of the node whose output it is
   pure subroutine plan_gradient(self, i, j, plan)
      class(graph_type), intent(in) :: self
      !> Number of the node; those behind it are done
      integer, intent(in) :: i
      !> Number of its input
      integer, intent(in) :: j
      !> Gradients of the node are set
      type(plan_type), intent(inout) :: plan
      integer :: n, backward, number
      logical :: shared
      n = size(self%nodes)
      backward = backward_of(self, i) + 1
      associate (node => self%nodes(i))
         shared = j == 1 .and. (in_place_at(self, i) .or. any(plan%relu_before == i))
         number = 2*n + (j - 1)*n + i
         if (node%inputs(j) == 0 .and. node%operation%leaves_out_dx()) return
         if (node%adds(j)) then
            ! It is added to the gradient at once
            plan%parts(i, j) = merge(plan%gradient(i), number, shared)
            if (shared) return
            plan%buffers(number)%bytes = self%bytes_of_output(node%inputs(j))
            call plan%buffers(number)%extend(backward)
            if (node%inputs(j) > 0) call plan%buffers(plan%gradient(node%inputs(j)))%extend(backward)
         else if (shared) then
            plan%buffers(n + node%inputs(j))%bytes = 0_i8
            plan%gradient(node%inputs(j)) = plan%gradient(i)
            call plan%buffers(plan%gradient(i))%extend(plan%buffers(n + node%inputs(j))%last(1))
         else
            call plan%buffers(plan%gradient(node%inputs(j)))%extend(backward)
         end if
      end associate
   end subroutine plan_gradient

   !> The concatenation that the output of a node may be part of; 0 where there is none
   pure integer function whole_of(self, i) result(whole)
      class(graph_type), intent(in) :: self
      !> Number of the node
      integer, intent(in) :: i
      integer :: k
      whole = 0
      if (.not. (self%backend%in_host_memory .and. self%nodes(i)%operation%is_light())) return
      if (self%nodes(i)%shape%rank /= 4) return
      do k = i + 1, size(self%nodes)
         associate (node => self%nodes(k))
            if (.not. any(node%inputs == i)) cycle
            if (whole > 0 .or. count(node%inputs == i) > 1 .or. .not. node%operation%joins_channels() .or. &
               & any(node%shape%extent([1, 2, 4]) /= self%nodes(i)%shape%extent([1, 2, 4]))) then
               whole = 0
               return
            end if
            whole = k
         end associate
      end do
   end function whole_of

   !> Outputs and gradients that lie in the memory of others
   pure subroutine plan_parts(plan)
      !> All buffers are set
      type(plan_type), intent(inout) :: plan
      integer :: i
      do i = 1, size(plan%whole)
         associate (whole => plan%whole(i))
            if (whole == 0) cycle
            call plan%buffers(plan%output(whole))%cover(plan%buffers(plan%output(i)))
            call plan%buffers(plan%gradient(whole))%cover(plan%buffers(plan%gradient(i)))
            plan%output(i) = plan%output(whole)
            plan%gradient(i) = plan%gradient(whole)
         end associate
      end do
   end subroutine plan_parts

   !> Bytes before the output of a node in that which it is part of; 0 where there is none
   pure integer(i8) function offset_in_whole(self, plan, i) result(bytes)
      class(graph_type), intent(in) :: self
      !> With wholes
      type(plan_type), intent(in) :: plan
      !> Number of the node
      integer, intent(in) :: i
      integer :: j
      bytes = 0_i8
      if (plan%whole(i) == 0) return
      associate (inputs => self%nodes(plan%whole(i))%inputs)
         do j = 1, findloc(inputs, i, 1) - 1
            bytes = bytes + bytes_of_image(self, inputs(j))
         end do
      end associate
   end function offset_in_whole

   !> Memory of one image of a node's output, or of the input
   pure integer(i8) function bytes_of_image(self, i)
      class(graph_type), intent(in) :: self
      !> Number of the node; 0 is the input
      integer, intent(in) :: i
      integer, allocatable :: extent(:)
      allocate (extent, source=self%extent_of(i))
      bytes_of_image = self%bytes_of_output(i)/extent(4)
   end function bytes_of_image

end submodule cnn_model_graph_memory
