! SPDX-License-Identifier: MIT
!> Steps of training. Where the device captures graphs, the first step of a shape is queued call by call, which makes
!> plans and memory; the second is captured; then it is one call.
!>
!> Captured are forward, loss and backward, on copies of input and target that stay where they are. The update, a call
!> of its own, is not: its settings may be others in each step.
!>
!> A loss that is NaN or infinite is no step of training: where it is looked at, before the update, the weights stay.
submodule(cnn_model_network) cnn_model_network_step
   use cnn_core_error, only : fail_to_converge
   use cnn_core_tensor, only : same_shape
   use cnn_core_text, only : to_text
   use cnn_model_resize, only : resize
   implicit none

contains

   module procedure step
      logical :: seen
      integer :: dimensions

      loss = 0.0_dp
      seen = read .or. .not. self%backend%queues
      call optimizer%check(error)
      if (allocated(error)) return
      dimensions = 4
      if (present(rank)) dimensions = rank
      call run_and_update(self, x, target, dimensions, optimizer, seen, loss, error)
      self%has_loss = .not. allocated(error)
      self%unseen = .not. seen
      ! After a failure nothing half done can be used: the caller may have dropped the input
      if (allocated(error)) self%stage = stage_built
   end procedure step

   !> A step, which leaves it to `step` to say what can be used after it
   subroutine run_and_update(self, x, target, rank, optimizer, seen, loss, error)
      class(network_type), intent(inout) :: self
      !> Input (w, h, c, n), in the network's memory
      type(tensor_type), intent(in) :: x
      !> What the output should be, in the network's memory
      type(tensor_type), intent(in) :: target
      !> Number of the input's dimensions
      integer, intent(in) :: rank
      !> With the learning rate of this step
      class(optimizer_type), intent(in) :: optimizer
      !> Whether the loss is looked at before the update
      logical, intent(in) :: seen
      !> Loss of the weights before the update; unchanged where it is not looked at
      real(dp), intent(inout) :: loss
      !> A tensor that does not fit, a loss that is not finite, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      if (is_known(self%capture, x, target) .and. self%input_rank == rank) then
         call run_captured(self, x, target, rank, error)
         if (allocated(error)) return
      else
         call run(self, x, target, rank, error)
         if (allocated(error)) return
         call expect(self, x, target)
      end if
      if (seen) call look(self, optimizer, loss, error)
      if (allocated(error)) return
      call self%update(optimizer, error)
   end subroutine run_and_update

   !> The loss of a step, before its update
   subroutine look(self, optimizer, loss, error)
      class(network_type), intent(in) :: self
      !> With the learning rate of the step
      class(optimizer_type), intent(in) :: optimizer
      !> What was found
      real(dp), intent(out) :: loss
      !> Also where the loss is NaN or infinite
      type(error_type), allocatable, intent(out) :: error
      call self%fetch_loss(loss, error)
      if (allocated(error) .or. is_finite(loss)) return
      call fail_to_converge(error, "step "//to_text(self%steps_done)//": the loss is "//to_text(loss)//", lr = "// &
         & to_text(optimizer%lr)//": the training diverges (a smaller lr?), and weights and momenta stay as they "// &
         & "were before this step")
   end subroutine look

   pure logical function is_finite(loss)
      !> Any number
      real(dp), intent(in) :: loss
      is_finite = abs(loss) <= huge(1.0_dp)
   end function is_finite

   module procedure read_loss
      loss = 0.0_dp
      if (.not. self%has_loss) then
         call fail(error, "loss: none yet, call loss or step first")
         return
      end if
      call self%fetch_loss(loss, error)
      self%has_loss = .not. allocated(error)
      if (allocated(error) .or. is_finite(loss) .or. .not. self%unseen) return
      call fail_to_converge(error, "step "//to_text(self%steps_done - 1_i8)//": the loss is "//to_text(loss)// &
         & ": the training diverges (a smaller lr?), and this step, at whose loss nobody looked, has changed the "// &
         & "weights")
   end procedure read_loss

   module procedure feed
      logical :: moved
      self%next%is_fed = .false.
      self%next%rank = 4
      if (present(rank)) self%next%rank = rank
      moved = .false.
      call resize(self%backend, input%extent, self%dtype, self%next%input, moved, error)
      if (.not. allocated(error)) call resize(self%backend, target%extent, self%dtype, self%next%target, moved, error)
      ! A captured step has the old addresses
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      call self%backend%feed([input%address, target%address], [self%next%input, self%next%target], error)
      self%next%is_fed = .not. allocated(error)
   end procedure feed

   module procedure step_fed
      type(error_type), allocatable :: failure
      loss = 0.0_dp
      if (.not. self%next%is_fed) then
         call fail(error, "step: no batch yet, call feed first, or give input and target")
         return
      end if
      self%next%is_fed = .false.
      call self%backend%await_feed(error)
      if (allocated(error)) return
      self%next%is_used = .true.
      call self%step(self%next%input, self%next%target, optimizer, read, loss, error, &
         & self%next%rank)
      call leave_batch(self, failure)
      if (allocated(failure) .and. .not. allocated(error)) call move_alloc(failure, error)
   end procedure step_fed

   !> The next batch may come; nothing happens when that was said already
   subroutine leave_batch(self, error)
      class(network_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      if (self%next%is_used) call self%backend%release_feed(error)
      self%next%is_used = .false.
   end subroutine leave_batch

   !> Call by call
   subroutine run(self, x, target, rank, error)
      class(network_type), intent(inout) :: self
      !> Input (w, h, c, n), in the network's memory
      type(tensor_type), intent(in) :: x
      !> What the output should be, in the network's memory
      type(tensor_type), intent(in) :: target
      !> Number of the input's dimensions
      integer, intent(in) :: rank
      !> A tensor that does not fit, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      call self%forward(x, error, rank)
      if (allocated(error)) return
      call self%queue_loss(target, error)
      if (allocated(error)) return
      call self%backward(error)
   end subroutine run

   !> Whether a step of these shapes may be captured, or is
   logical function is_known(capture, x, target)
      !> What the network has captured
      type(capture_type), intent(in) :: capture
      !> Input of a step; its values do not matter
      type(tensor_type), intent(in) :: x
      !> What the output should be; its values do not matter
      type(tensor_type), intent(in) :: target
      is_known = capture%state /= capture_none .and. same_shape(capture%input, x) .and. same_shape(capture%target, &
         & target)
   end function is_known

   !> After a step that was run call by call: memory for the next ones, where the device captures graphs and has some
   !> left
   subroutine expect(self, x, target)
      class(network_type), intent(inout) :: self
      !> Input of the step; only its shape matters
      type(tensor_type), intent(in) :: x
      !> What its output should be; only its shape matters
      type(tensor_type), intent(in) :: target
      type(error_type), allocatable :: error
      logical :: moved
      if (.not. self%backend%captures) return
      if (.not. (same_shape(self%capture%input, x) .and. same_shape(self%capture%target, target))) then
         ! What was captured has other addresses
         self%capture%state = capture_none
         moved = .false.
         call resize(self%backend, x%extent, x%dtype, self%capture%input, moved, error)
         if (.not. allocated(error)) call resize(self%backend, target%extent, target%dtype, self%capture%target, &
            & moved, error)
         self%capture%refused = allocated(error)
         if (self%capture%refused) then
            ! A shape without memory would be taken for a copy
            call self%backend%release(self%capture%input)
            self%capture%input = tensor_type()
            self%capture%target = tensor_type()
         end if
      end if
      if (.not. self%capture%refused) self%capture%state = capture_expected
   end subroutine expect

   !> By replaying what is captured, after capturing it where that is not done yet
   subroutine run_captured(self, x, target, rank, error)
      class(network_type), intent(inout) :: self
      !> Input (w, h, c, n), in the network's memory
      type(tensor_type), intent(in) :: x
      !> What the output should be, in the network's memory
      type(tensor_type), intent(in) :: target
      !> Number of the input's dimensions
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      logical :: done

      call self%backend%convert(x, self%capture%input, error)
      if (allocated(error)) return
      call self%backend%convert(target, self%capture%target, error)
      if (allocated(error)) return
      call leave_batch(self, error)
      if (allocated(error)) return
      done = .false.
      if (self%capture%state == capture_made) call self%backend%replay(done, error)
      if (.not. (done .or. allocated(error))) then
         call capture_step(self, rank)
         if (self%capture%state == capture_made) call self%backend%replay(done, error)
      end if
      if (done) then
         self%outputs_are_gone = self%in_place()
         self%stage = stage_backward
      else if (.not. allocated(error)) then
         call run(self, self%capture%input, self%capture%target, rank, error)
      end if
   end subroutine run_captured

   !> What cannot be captured, as a library that waits for the device in between, is run call by call from then on
   subroutine capture_step(self, rank)
      class(network_type), intent(inout) :: self
      !> Number of the input's dimensions
      integer, intent(in) :: rank
      type(error_type), allocatable :: error, failure
      call self%backend%start_capture(error)
      if (.not. allocated(error)) then
         call run(self, self%capture%input, self%capture%target, rank, failure)
         call self%backend%end_capture(error)
      end if
      self%capture%refused = allocated(error) .or. allocated(failure)
      self%capture%state = merge(capture_none, capture_made, self%capture%refused)
   end subroutine capture_step

end submodule cnn_model_network_step
