! SPDX-License-Identifier: MIT
!> Errors are values.
!>
!> Every fallible procedure ends its argument list with
!> `type(error_type), allocatable, intent(out) :: error`; an allocated `error` is a failure.
!>
!>     call net%forward(x, error)
!>     if (allocated(error)) return
!>
!> A message names the object, what was found and what was expected. Only a main program stops.
module cnn_error
   implicit none
   private

   public :: fail

   !> Why something could not be done, in one sentence for the user
   type, public :: error_type
      character(len=:), allocatable :: message
   end type error_type

contains

   !> Make `error` a failure that says `message`
   subroutine fail(error, message)
      type(error_type), allocatable, intent(out) :: error
      character(len=*), intent(in) :: message
      allocate (error)
      error%message = message
   end subroutine fail

end module cnn_error
