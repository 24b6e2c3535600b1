! SPDX-License-Identifier: MIT
!> What a network is made of, before it has tensors: operations in an order of computation, and the loss.
module cnn_model_description
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : name_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operation_type
   use cnn_operations_registry, only : make_operation
   implicit none
   private

   public :: check_name

   !> Name of the network's input among the inputs of operations
   character(len=*), parameter, public :: input_name = "input"
   character(len=*), parameter :: letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

   !> Only a type makes an array of operations of different types
   type, public :: described_type
      class(operation_type), allocatable :: operation
   end type described_type

   type, public :: description_type
      !> Each with its hyperparameters, and with `inputs` where it does not take the output of the one before
      type(described_type), allocatable :: nodes(:)
      type(criterion_type) :: criterion
      !> Names and shapes of several inputs, as exchange files have them; not allocated where there is one
      character(len=:), allocatable :: inputs
   contains
      procedure :: add
   end type description_type

contains

   !> The next operation
   subroutine add(self, kind, name, inputs, given, error)
      class(description_type), intent(inout) :: self
      !> Type in an exchange file
      character(len=*), intent(in) :: kind
      !> The operation's
      character(len=*), intent(in) :: name
      !> Names of those whose outputs it takes, with commas between them; empty: the one before
      character(len=*), intent(in) :: inputs
      !> Its hyperparameters
      type(attributes_type), intent(in) :: given
      !> A name that is not allowed or there twice, an unknown type, or a hyperparameter that is unknown or out of range
      type(error_type), allocatable, intent(out) :: error
      class(operation_type), allocatable :: operation
      type(described_type), allocatable :: larger(:)
      integer :: i, n

      if (.not. allocated(self%nodes)) allocate (self%nodes(0))
      n = size(self%nodes)
      call check_name(name, error)
      if (allocated(error)) return
      do i = 1, n
         if (self%nodes(i)%operation%name /= name) cycle
         call fail(error, "model: two layers are named "//name)
         return
      end do
      call make_operation(name, kind, operation, error)
      if (allocated(error)) return
      operation%attributes = given
      operation%attributes%node = name
      call operation%read(operation%attributes, error)
      if (.not. allocated(error)) call operation%attributes%check_known(error)
      if (allocated(error)) return
      if (len(inputs) > 0) operation%inputs = split(inputs)
      allocate (larger(n + 1))
      do i = 1, n
         call move_alloc(self%nodes(i)%operation, larger(i)%operation)
      end do
      call move_alloc(operation, larger(n + 1)%operation)
      call move_alloc(larger, self%nodes)
   end subroutine add

   !> Names with commas between them
   function split(text) result(names)
      !> `one,two`
      character(len=*), intent(in) :: text
      type(name_type), allocatable :: names(:)
      integer :: i, first, n
      allocate (names(1 + count([(text(i:i) == ",", i=1, len(text))])))
      first = 1
      n = 1
      do i = 1, len(text)
         if (text(i:i) /= ",") cycle
         names(n)%text = text(first:i - 1)
         first = i + 1
         n = n + 1
      end do
      names(n)%text = text(first:)
   end function split

   subroutine check_name(name, error)
      !> Name of a layer
      character(len=*), intent(in) :: name
      !> It cannot be a name in a file
      type(error_type), allocatable, intent(out) :: error
      logical :: good
      good = len(name) >= 1 .and. len(name) <= 64
      if (good) good = verify(name(1:1), letters//"_0123456789") == 0
      if (good) good = verify(name, letters//"_0123456789.-") == 0
      if (.not. good) then
         call fail(error, "model: layer name '"//name// &
            & "', expected 1 to 64 letters, digits, '_', '.', '-', not starting with '.' or '-'")
      else if (name == input_name) then
         call fail(error, "model: a layer is named input, which names the network's input")
      end if
   end subroutine check_name

end module cnn_model_description
