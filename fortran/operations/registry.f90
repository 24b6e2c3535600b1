! SPDX-License-Identifier: MIT
!> The operations by their names in exchange files: one row each.
module cnn_operations_registry
   use cnn_core_error, only : error_type, fail
   use cnn_operations_joins, only : add_type
   use cnn_operations_operation, only : operation_type
   use cnn_operations_pointwise, only : relu_type
   use cnn_operations_products, only : conv2d_type
   implicit none
   private

   public :: make_operation

contains

   !> A node of this type, without inputs and hyperparameters yet
   subroutine make_operation(name, kind, operation, error)
      !> The node's
      character(len=*), intent(in) :: name
      !> Type in an exchange file
      character(len=*), intent(in) :: kind
      !> The new node
      class(operation_type), allocatable, intent(out) :: operation
      !> No such operation here
      type(error_type), allocatable, intent(out) :: error
      select case (kind)
       case ("add")
         allocate (add_type :: operation)
       case ("conv2d")
         allocate (conv2d_type :: operation)
       case ("relu")
         allocate (relu_type :: operation)
       case default
         call fail(error, "model: layer "//name//" has type "//kind//", expected one of add, conv2d, relu")
         return
      end select
      operation%name = name
      operation%kind = kind
   end subroutine make_operation

end module cnn_operations_registry
