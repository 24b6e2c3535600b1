! SPDX-License-Identifier: MIT
!> Names, and numbers and shapes as text for messages.
module cnn_core_text
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   public :: to_text

   !> A name; only a type makes an array of names of different lengths
   type, public :: name_type
      character(len=:), allocatable :: text
   end type name_type

   !> An integer, a list of integers as `(a, b, c)`, or a real number with six digits, as `0.5`, `1.00000E-05`, `NaN`
   interface to_text
      module procedure int_to_text
      module procedure long_to_text
      module procedure list_to_text
      module procedure real_to_text
   end interface to_text

contains

   pure function int_to_text(value) result(text)
      !> An integer
      integer, intent(in) :: value
      character(len=:), allocatable :: text
      text = long_to_text(int(value, i8))
   end function int_to_text

   pure function long_to_text(value) result(text)
      !> An integer of 64 bits
      integer(i8), intent(in) :: value
      character(len=:), allocatable :: text
      character(len=24) :: buffer
      write (buffer, "(i0)") value
      text = trim(buffer)
   end function long_to_text

   pure function list_to_text(values) result(text)
      !> Integers, or none
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

   pure function real_to_text(value) result(text)
      !> The number
      real(dp), intent(in) :: value
      !> Without blanks, and without zeros at the end
      character(len=:), allocatable :: text
      character(len=24) :: buffer
      if (abs(value) <= 0.0_dp .or. (abs(value) >= 1.0e-3_dp .and. abs(value) < 1.0e6_dp)) then
         write (buffer, "(f0.6)") value
      else
         write (buffer, "(es12.5)") value
      end if
      text = trim(adjustl(buffer))
      if (index(text, "E") > 0 .or. index(text, ".") == 0) return
      text = text(:verify(text, "0", back=.true.))
      if (text(len(text):) == ".") text = text//"0"
      ! Compilers differ in whether f0 writes the zero before the point
      if (text(1:1) == ".") text = "0"//text
      if (index(text, "-.") == 1) text = "-0"//text(2:)
   end function real_to_text

end module cnn_core_text
