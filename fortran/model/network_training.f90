! SPDX-License-Identifier: MIT
!> Forward, loss, backward and update of a network, each as a call of its own.
submodule(cnn_model_network) cnn_model_network_training
   use cnn_core_tensor, only : same_shape, shape_text
   use cnn_model_passes, only : find_gradients, find_gradients_in_place, find_outputs
   use cnn_model_tensors, only : allocate_gradients, allocate_outputs
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none

contains

   module procedure forward
      logical :: moved

      if (x%dtype /= self%dtype) then
         call fail(error, "input: "//dtype_name(x%dtype)//", expected "//dtype_name(self%dtype))
         return
      end if
      self%stage = stage_built
      call allocate_outputs(self, x%extent, moved, error)
      ! A captured step has the old addresses
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      self%input = x
      call find_outputs(self, error)
      if (allocated(error)) return
      self%stage = stage_forward
   end procedure forward

   module procedure compute_loss
      loss = 0.0_dp
      call self%queue_loss(target, error)
      if (.not. allocated(error)) call self%read_loss(loss, error)
      if (allocated(error) .and. self%stage == stage_loss) self%stage = stage_forward
   end procedure compute_loss

   module procedure queue_loss
      type(tensor_type) :: y
      real(dp) :: scale
      logical :: moved

      if (self%stage < stage_forward .or. self%outputs_released()) then
         call fail(error, "loss: no output yet, call forward first")
         return
      end if
      y = self%output()
      if (.not. same_shape(y, target)) then
         call fail(error, "target: "//dtype_name(target%dtype)//" "//shape_text(target%extent)// &
            & ", expected the output's "//dtype_name(y%dtype)//" "//shape_text(y%extent))
         return
      end if
      self%stage = stage_forward
      self%has_loss = .false.
      self%unseen = .false.
      call allocate_gradients(self, moved, error)
      if (moved) self%capture%state = capture_none
      if (allocated(error)) return
      scale = 1.0_dp
      if (self%description%mean) scale = 1.0_dp/real(y%count(), dp)
      call self%backend%mse(y, target, scale, self%layers(size(self%layers))%output_gradient, error)
      if (allocated(error)) return
      self%has_loss = .true.
      self%stage = stage_loss
   end procedure queue_loss

   module procedure backward
      if (self%stage < stage_loss .or. self%outputs_released()) then
         call fail(error, "backward: no loss yet, call forward and loss first")
         return
      end if
      self%stage = stage_loss
      if (self%in_place()) then
         ! From here on the outputs of inner layers are gone, also after an error
         self%stage = stage_built
         call find_gradients_in_place(self, error)
      else
         call find_gradients(self, error)
      end if
      if (allocated(error)) return
      self%stage = stage_backward
   end procedure backward

   module procedure update
      call sgd%check(error)
      if (allocated(error)) return
      if (self%stage < stage_backward) then
         call fail(error, "update: no gradients yet, call forward, loss and backward first")
         return
      end if
      ! The outputs belong to the weights before this update; after a failure it may be half done
      self%stage = stage_built
      call self%parameters%update(self%backend, sgd_optimizer_type(sgd), error)
      if (allocated(error)) return
      self%steps_done = self%steps_done + 1_i8
   end procedure update

end submodule cnn_model_network_training
