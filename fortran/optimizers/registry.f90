! SPDX-License-Identifier: MIT
!> The optimizers by their names in exchange files: one row each.
module cnn_optimizers_registry
   use cnn_core_error, only : error_type, fail
   use cnn_core_sgd, only : sgd_type
   use cnn_optimizers_adam, only : adam_type
   use cnn_optimizers_optimizer, only : optimizer_type
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none
   private

   public :: make_optimizer

contains

   !> An optimizer of this type, with torch's defaults
   subroutine make_optimizer(kind, optimizer, error)
      !> Type in an exchange file
      character(len=*), intent(in) :: kind
      !> The new one
      class(optimizer_type), allocatable, intent(out) :: optimizer
      !> No such optimizer here
      type(error_type), allocatable, intent(out) :: error
      select case (kind)
       case ("sgd")
         allocate (optimizer, source=sgd_optimizer_type(sgd_type()))
       case ("adam")
         allocate (adam_type :: optimizer)
       case ("adamw")
         allocate (optimizer, source=adam_type(decoupled=.true.))
       case default
         call fail(error, "optimizer type is "//kind//", expected sgd, adam or adamw")
      end select
   end subroutine make_optimizer

end module cnn_optimizers_registry
