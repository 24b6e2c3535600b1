! SPDX-License-Identifier: MIT
!> Forward, loss, backward and update of a network, each as a call of its own.
submodule(cnn_model_network) cnn_model_network_training
   use cnn_core_error, only : fail_to_converge
   use cnn_core_tensor, only : all_finite, same_shape, shape_text
   use cnn_core_text, only : to_text
   implicit none

contains

   module procedure forward
      logical :: moved

      if (x%dtype /= self%dtype) then
         call fail(error, "input: "//dtype_name(x%dtype)//", expected "//dtype_name(self%dtype))
         return
      end if
      self%stage = stage_built
      self%input = x
      self%input_rank = 4
      if (present(rank)) self%input_rank = rank
      call self%find_outputs(moved, error)
      ! A captured step has the old addresses
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      self%outputs_are_gone = .false.
      self%stage = stage_forward
   end procedure forward

   module procedure compute_loss
      loss = 0.0_dp
      call self%queue_loss(target, error)
      if (.not. allocated(error)) call self%read_loss(loss, error)
      if (allocated(error) .and. self%stage == stage_loss) self%stage = stage_forward
   end procedure compute_loss

   module procedure take_output_gradient
      logical :: moved
      call prepare_for(self, "backward", "output gradient", dy, error)
      if (allocated(error)) return
      call self%place_output_gradient(dy, moved, error)
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      self%stage = stage_loss
   end procedure take_output_gradient

   !> After a forward pass: what has the output's shape may come
   subroutine prepare_for(self, call, name, tensor, error)
      class(network_type), intent(inout) :: self
      !> Who asks, for messages
      character(len=*), intent(in) :: call
      !> Of the tensor, for messages
      character(len=*), intent(in) :: name
      !> What must have the output's shape
      type(tensor_type), intent(in) :: tensor
      !> Call out of order, or another shape
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: y
      if (self%stage < stage_forward .or. self%outputs_are_gone) then
         call fail(error, call//": no output yet, call forward first")
         return
      end if
      y = self%output()
      if (.not. same_shape(y, tensor)) then
         call fail(error, name//": "//dtype_name(tensor%dtype)//" "//shape_text(tensor%extent)// &
            & ", expected the output's "//dtype_name(y%dtype)//" "//shape_text(y%extent))
         return
      end if
      self%stage = stage_forward
      self%has_loss = .false.
      self%unseen = .false.
   end subroutine prepare_for

   module procedure queue_loss
      logical :: moved
      call prepare_for(self, "loss", "target", target, error)
      if (allocated(error)) return
      call self%find_loss(target, moved, error)
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      self%has_loss = .true.
      self%stage = stage_loss
   end procedure queue_loss

   module procedure backward
      if (self%stage < stage_loss .or. self%outputs_are_gone) then
         call fail(error, "backward: no loss yet, call forward and loss first")
         return
      end if
      ! In place the outputs of inner layers are gone from here on, also after an error
      self%outputs_are_gone = self%in_place()
      self%stage = merge(stage_built, stage_loss, self%in_place())
      call self%find_gradients(error)
      if (allocated(error)) return
      self%stage = stage_backward
   end procedure backward

   module procedure update
      call optimizer%check(error)
      if (allocated(error)) return
      if (self%stage < stage_backward) then
         call fail(error, "update: no gradients yet, call forward, loss and backward first")
         return
      end if
      call check_gradients(self, optimizer, error)
      if (allocated(error)) return
      ! The outputs belong to the weights before this update; after a failure it may be half done
      self%stage = stage_built
      call self%parameters%update(self%backend, optimizer, error)
      if (allocated(error)) return
      self%steps_done = self%steps_done + 1_i8
   end procedure update

   !> A loss may be finite where its gradients are not, and an update with them loses all. On a device they are not
   !> looked at: the next step would wait for them
   subroutine check_gradients(self, optimizer, error)
      class(network_type), intent(in) :: self
      !> With the learning rate of the step
      class(optimizer_type), intent(in) :: optimizer
      !> Names a parameter that is not frozen, whose gradient holds NaN or infinity
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      integer :: i, j
      if (self%takes_any_gradients .or. .not. self%backend%in_host_memory) return
      if (is_finite(self%parameters%all_gradients())) return
      do i = 1, self%layer_count()
         call self%view(i, layer)
         do j = 1, size(layer%parameters)
            associate (one => layer%parameters(j))
               if (self%parameters%is_frozen(one%number)) cycle
               if (is_finite(one%gradient)) cycle
               call fail_to_converge(error, "step "//to_text(self%steps_done)//": the gradient of "//layer%name// &
                  & "."//trim(layer%parameter_shapes(j)%name)//" holds NaN or infinity, lr = "// &
                  & to_text(optimizer%lr)//": the training diverges (a smaller lr?), and weights and momenta stay "// &
                  & "as they were before this step")
               return
            end associate
         end do
      end do
   end subroutine check_gradients

   logical function is_finite(tensor)
      !> In host memory; empty where there are no parameters
      type(tensor_type), intent(in) :: tensor
      is_finite = .true.
      if (tensor%is_allocated()) is_finite = all_finite(tensor%address, tensor%dtype, tensor%count())
   end function is_finite

end submodule cnn_model_network_training
