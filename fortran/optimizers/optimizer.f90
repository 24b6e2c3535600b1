! SPDX-License-Identifier: MIT
!> What every optimizer is: settings with torch's names, and a step on a vector of parameters.
!>
!> An optimizer is an extension of this type, a row in cnn_optimizers_registry, and a class in
!> bridge/exchange/optimizers.py.
module cnn_optimizers_optimizer
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type
   implicit none
   private

   !> A number that an optimizer is told, by its name in exchange files
   type, public :: setting_type
      character(len=16) :: name = ""
      real(dp) :: value = 0.0_dp
   end type setting_type

   type, abstract, public :: optimizer_type
      !> Learning rate of the next step
      real(dp) :: lr = 0.0_dp
   contains
      procedure(kind_), deferred :: kind
      procedure(settings_), deferred :: settings
      procedure(set_), deferred :: set
      procedure(check_), deferred :: check
      procedure(states_), deferred :: states
      procedure(memory_names_), deferred :: memory_names
      procedure(step_), deferred :: step
   end type optimizer_type

   abstract interface
      !> Its name in exchange files
      pure function kind_(self) result(kind)
         import :: optimizer_type
         implicit none
         class(optimizer_type), intent(in) :: self
         character(len=:), allocatable :: kind
      end function kind_

      !> Its settings, the learning rate first
      pure function settings_(self) result(settings)
         import :: optimizer_type, setting_type
         implicit none
         class(optimizer_type), intent(in) :: self
         type(setting_type), allocatable :: settings(:)
      end function settings_

      !> Change all settings
      subroutine set_(self, values, error)
         import :: dp, error_type, optimizer_type
         implicit none
         class(optimizer_type), intent(inout) :: self
         !> In the order of `settings`
         real(dp), intent(in) :: values(:)
         type(error_type), allocatable, intent(out) :: error
      end subroutine set_

      !> The same refusals as torch's, and non-finite settings
      subroutine check_(self, error)
         import :: error_type, optimizer_type
         implicit none
         class(optimizer_type), intent(in) :: self
         type(error_type), allocatable, intent(out) :: error
      end subroutine check_

      !> How many numbers it remembers of each parameter from step to step: 0, 1 or 2
      pure integer function states_(self)
         import :: optimizer_type
         implicit none
         class(optimizer_type), intent(in) :: self
      end function states_

      !> Names of all that it can remember of a parameter, in the order of its states, as exchange files have them
      pure function memory_names_(self) result(names)
         import :: name_type, optimizer_type
         implicit none
         class(optimizer_type), intent(in) :: self
         type(name_type), allocatable :: names(:)
      end function memory_names_

      !> One step on a vector
      subroutine step_(self, backend, taken, w, g, state, error)
         import :: backend_type, error_type, i8, optimizer_type, tensor_type
         implicit none
         class(optimizer_type), intent(in) :: self
         class(backend_type), intent(in) :: backend
         !> Steps that have changed `state` before this one; with 0 it holds zeros
         integer(i8), intent(in) :: taken
         !> Parameters, updated in place
         type(tensor_type), intent(in) :: w
         !> Gradient of the loss with respect to them
         type(tensor_type), intent(in) :: g
         !> As many vectors as `states` says, updated in place; the others are empty
         type(tensor_type), intent(in) :: state(:)
         type(error_type), allocatable, intent(out) :: error
      end subroutine step_
   end interface

end module cnn_optimizers_optimizer
