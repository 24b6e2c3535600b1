! SPDX-License-Identifier: MIT
!> Numbers and shapes as text, for messages.
module cnn_text
   use cnn_kinds, only : i8
   implicit none
   private

   public :: to_text

   !> An integer, or a list of integers as `(a, b, c)`
   interface to_text
      module procedure int_to_text
      module procedure long_to_text
      module procedure list_to_text
   end interface to_text

contains

   pure function int_to_text(value) result(text)
      integer, intent(in) :: value
      character(len=:), allocatable :: text
      text = long_to_text(int(value, i8))
   end function int_to_text

   pure function long_to_text(value) result(text)
      integer(i8), intent(in) :: value
      character(len=:), allocatable :: text
      character(len=24) :: buffer
      write (buffer, "(i0)") value
      text = trim(buffer)
   end function long_to_text

   pure function list_to_text(values) result(text)
      integer, intent(in) :: values(:)
      character(len=:), allocatable :: text
      integer :: i
      text = "("
      do i = 1, size(values)
         if (i > 1) text = text//", "
         text = text//to_text(values(i))
      end do
      text = text//")"
   end function list_to_text

end module cnn_text
