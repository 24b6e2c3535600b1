! SPDX-License-Identifier: MIT
!> Settings of stochastic gradient descent, with torch's names and meaning.
!>
!>     g = g + weight_decay*w
!>     v = g                                 at the first step
!>     v = momentum*v + (1 - dampening)*g    afterwards
!>     g = g + momentum*v  (nesterov)  or  g = v
!>     w = w - lr*g
!>
!> Source.  torch.optim.SGD.
module cnn_core_sgd
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   implicit none
   private

   type, public :: sgd_type
      real(dp) :: lr = 0.0_dp
      real(dp) :: momentum = 0.0_dp
      real(dp) :: dampening = 0.0_dp
      real(dp) :: weight_decay = 0.0_dp
      logical :: nesterov = .false.
   contains
      procedure :: check
   end type sgd_type

contains

   !> The same refusals as torch.optim.SGD, and non-finite settings
   subroutine check(self, error)
      class(sgd_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      call not_negative("lr", self%lr, error)
      if (allocated(error)) return
      call not_negative("momentum", self%momentum, error)
      if (allocated(error)) return
      call not_negative("weight_decay", self%weight_decay, error)
      if (allocated(error)) return
      if (.not. abs(self%dampening) <= huge(1.0_dp)) then
         call fail(error, "sgd: dampening is not finite")
      else if (self%nesterov .and. (self%momentum <= 0.0_dp .or. abs(self%dampening) > 0.0_dp)) then
         call fail(error, "sgd: nesterov needs momentum > 0 and dampening = 0")
      end if
   end subroutine check

   subroutine not_negative(name, value, error)
      !> Name of the setting
      character(len=*), intent(in) :: name
      !> Value of the setting
      real(dp), intent(in) :: value
      !> Negative, infinite or NaN
      type(error_type), allocatable, intent(out) :: error
      character(len=32) :: found
      if (value >= 0.0_dp .and. value <= huge(1.0_dp)) return
      write (found, "(g0)") value
      call fail(error, "sgd: "//name//" is "//trim(found)//", expected a finite value >= 0")
   end subroutine not_negative

end module cnn_core_sgd
