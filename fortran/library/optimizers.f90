! SPDX-License-Identifier: MIT
!> Optimizers by torch's names and arguments. The learning rate of the next step is `optimizer%lr`, which may be changed
!> from step to step, as schedules do. Settings that are out of their range are an error of the step.
module cnn_library_optimizers
   use, intrinsic :: ieee_arithmetic, only : ieee_quiet_nan, ieee_value
   use cnn_core_kinds, only : dp
   use cnn_library_any_kind, only : read_logical
   use cnn_core_sgd, only : sgd_type
   use cnn_optimizers_adam, only : adam_type
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none
   private

   public :: adam, adamw, sgd

contains

   !> Stochastic gradient descent
   pure type(sgd_optimizer_type) function sgd(lr, momentum, dampening, weight_decay, nesterov)
      !> Learning rate
      real(dp), intent(in) :: lr
      !> 0
      real(dp), intent(in), optional :: momentum
      !> 0
      real(dp), intent(in), optional :: dampening
      !> 0
      real(dp), intent(in), optional :: weight_decay
      !> No
      class(*), intent(in), optional :: nesterov
      type(sgd_type) :: settings
      logical :: is_logical
      settings%lr = lr
      if (present(momentum)) settings%momentum = momentum
      if (present(dampening)) settings%dampening = dampening
      if (present(weight_decay)) settings%weight_decay = weight_decay
      if (present(nesterov)) then
         call read_logical(nesterov, settings%nesterov, is_logical)
         ! The step refuses settings that are not finite, and so what is no logical
         if (.not. is_logical) settings%dampening = ieee_value(0.0_dp, ieee_quiet_nan)
      end if
      sgd = sgd_optimizer_type(settings)
   end function sgd

   !> Adam, whose weight decay is added to the gradient
   pure type(adam_type) function adam(lr, beta1, beta2, eps, weight_decay)
      !> Learning rate; 0.001
      real(dp), intent(in), optional :: lr
      !> Of the average of gradients; 0.9
      real(dp), intent(in), optional :: beta1
      !> Of the average of their squares; 0.999
      real(dp), intent(in), optional :: beta2
      !> Added to the root; 1e-8
      real(dp), intent(in), optional :: eps
      !> 0
      real(dp), intent(in), optional :: weight_decay
      adam%lr = 1.0e-3_dp
      if (present(lr)) adam%lr = lr
      if (present(beta1)) adam%beta1 = beta1
      if (present(beta2)) adam%beta2 = beta2
      if (present(eps)) adam%eps = eps
      if (present(weight_decay)) adam%weight_decay = weight_decay
   end function adam

   !> Adam, whose weight decay is taken off the weights
   pure type(adam_type) function adamw(lr, beta1, beta2, eps, weight_decay)
      !> Learning rate; 0.001
      real(dp), intent(in), optional :: lr
      !> Of the average of gradients; 0.9
      real(dp), intent(in), optional :: beta1
      !> Of the average of their squares; 0.999
      real(dp), intent(in), optional :: beta2
      !> Added to the root; 1e-8
      real(dp), intent(in), optional :: eps
      !> 0.01
      real(dp), intent(in), optional :: weight_decay
      adamw = adam(lr, beta1, beta2, eps, weight_decay)
      adamw%decoupled = .true.
      if (.not. present(weight_decay)) adamw%weight_decay = 1.0e-2_dp
   end function adamw

end module cnn_library_optimizers
