! SPDX-License-Identifier: MIT
!> Stochastic gradient descent as an optimizer; cnn_core_sgd has its formula.
module cnn_optimizers_sgd
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, i8
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type
   use cnn_optimizers_optimizer, only : optimizer_type, setting_type
   implicit none
   private

   type, extends(optimizer_type), public :: sgd_optimizer_type
      !> All settings but the learning rate, which is that of the optimizer
      type(sgd_type), private :: sgd
   contains
      procedure :: as_sgd
      procedure :: kind => sgd_kind
      procedure :: settings => sgd_settings
      procedure :: set => sgd_set
      procedure :: check => sgd_check
      procedure :: states => sgd_states
      procedure :: memory_names => sgd_memory_names
      procedure :: step => sgd_step
   end type sgd_optimizer_type

   !> The optimizer with these settings
   interface sgd_optimizer_type
      module procedure new_sgd
   end interface sgd_optimizer_type

contains

   pure function new_sgd(settings) result(optimizer)
      !> With the learning rate
      type(sgd_type), intent(in) :: settings
      type(sgd_optimizer_type) :: optimizer
      optimizer%sgd = settings
      optimizer%lr = settings%lr
   end function new_sgd

   !> Its settings with the learning rate of the next step, as the devices take them
   pure function as_sgd(self) result(sgd)
      class(sgd_optimizer_type), intent(in) :: self
      type(sgd_type) :: sgd
      sgd = self%sgd
      sgd%lr = self%lr
   end function as_sgd

   pure function sgd_kind(self) result(kind)
      class(sgd_optimizer_type), intent(in) :: self
      character(len=:), allocatable :: kind
      associate (unused => self)
      end associate
      kind = "sgd"
   end function sgd_kind

   pure function sgd_settings(self) result(settings)
      class(sgd_optimizer_type), intent(in) :: self
      type(setting_type), allocatable :: settings(:)
      settings = [setting_type("lr", self%lr), setting_type("momentum", self%sgd%momentum), &
         & setting_type("dampening", self%sgd%dampening), setting_type("weight_decay", self%sgd%weight_decay), &
         & setting_type("nesterov", merge(1.0_dp, 0.0_dp, self%sgd%nesterov))]
   end function sgd_settings

   subroutine sgd_set(self, values, error)
      class(sgd_optimizer_type), intent(inout) :: self
      !> lr, momentum, dampening, weight_decay, nesterov
      real(dp), intent(in) :: values(:)
      type(error_type), allocatable, intent(out) :: error
      self%lr = values(1)
      self%sgd = sgd_type(values(1), values(2), values(3), values(4), abs(values(5) - 1.0_dp) <= 0.0_dp)
      if (.not. (self%sgd%nesterov .or. abs(values(5)) <= 0.0_dp)) then
         call fail(error, "attribute nesterov of /optimizer is neither 0 nor 1")
      else
         call self%check(error)
      end if
   end subroutine sgd_set

   subroutine sgd_check(self, error)
      class(sgd_optimizer_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      type(sgd_type) :: sgd
      sgd = self%as_sgd()
      call sgd%check(error)
   end subroutine sgd_check

   pure integer function sgd_states(self)
      class(sgd_optimizer_type), intent(in) :: self
      sgd_states = merge(1, 0, self%sgd%momentum > 0.0_dp)
   end function sgd_states

   pure function sgd_memory_names(self) result(names)
      class(sgd_optimizer_type), intent(in) :: self
      type(name_type), allocatable :: names(:)
      associate (unused => self)
      end associate
      allocate (names(1))
      names(1)%text = "momentum"
   end function sgd_memory_names

   subroutine sgd_step(self, backend, taken, w, g, state, error)
      class(sgd_optimizer_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Steps before this one that changed the momentum
      integer(i8), intent(in) :: taken
      !> Parameters, updated in place
      type(tensor_type), intent(in) :: w
      !> Gradient of the loss with respect to them
      type(tensor_type), intent(in) :: g
      !> The momentum, where there is one
      type(tensor_type), intent(in) :: state(:)
      type(error_type), allocatable, intent(out) :: error
      call backend%update(self%as_sgd(), taken == 0, w, g, state(1), error)
   end subroutine sgd_step

end module cnn_optimizers_sgd
