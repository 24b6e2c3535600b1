! SPDX-License-Identifier: MIT
!> Errors are values.
!>
!> Every fallible procedure ends its argument list with
!> `type(error_type), allocatable, intent(out) :: error`; an allocated `error` is a failure.
!>
!>     call net%forward(x, error)
!>     if (allocated(error)) return
!>
!> Where something has to be given back after a failure too, the work is a procedure of its own that returns so, and its
!> caller gives back. What is then left between a call and the clean-up is one line: `if (.not. allocated(error)) call`.
!>
!> A message names the object, what was found and what was expected. Only a main program stops.
module cnn_core_error
   implicit none
   private

   public :: fail, fail_not_finite, fail_to_converge

   !> What comes out of a file may be long
   integer, parameter :: longest = 1000

   !> Why something could not be done, in one sentence for the user
   type, public :: error_type
      character(len=:), allocatable :: message
      !> Whether a training has diverged, which the caller may want to handle apart from all else
      logical :: diverged = .false.
      !> Whether an argument of the caller holds NaN or infinity
      logical :: not_finite = .false.
   end type error_type

contains

   !> Make `error` a failure that says `message`, in one line: a text that comes out of a file may hold anything
   subroutine fail(error, message)
      !> Allocated from now on
      type(error_type), allocatable, intent(out) :: error
      !> One sentence: the object, what was found, what was expected; cut after 1000 characters
      character(len=*), intent(in) :: message
      allocate (error)
      error%message = printable(message(:min(len(message), longest)))
   end subroutine fail

   !> Make `error` the failure of a training that diverges
   subroutine fail_to_converge(error, message)
      !> The failure
      type(error_type), allocatable, intent(out) :: error
      !> Which step, what was found, and what has become of the weights
      character(len=*), intent(in) :: message
      call fail(error, message)
      error%diverged = .true.
   end subroutine fail_to_converge

   !> Make `error` the refusal of an argument that holds NaN or infinity
   subroutine fail_not_finite(error, name)
      !> The failure
      type(error_type), allocatable, intent(out) :: error
      !> What the caller calls the argument
      character(len=*), intent(in) :: name
      call fail(error, name//": holds NaN or infinity, expected finite values")
      error%not_finite = .true.
   end subroutine fail_not_finite

   !> With ? for what a terminal would act on
   pure function printable(text) result(safe)
      !> Text with any bytes
      character(len=*), intent(in) :: text
      character(len=len(text)) :: safe
      integer :: i
      safe = text
      do i = 1, len(text)
         if (iachar(text(i:i)) < 32 .or. iachar(text(i:i)) == 127) safe(i:i) = "?"
      end do
   end function printable

end module cnn_core_error
