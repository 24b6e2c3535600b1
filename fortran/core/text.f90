! SPDX-License-Identifier: MIT
!> Names, and numbers and shapes as text for messages.
!>
!> Lengths.  Of a function whose result has a deferred length, gfortran keeps the length in one place for all threads,
!>           which may have it from another by then; so the lengths of these results are expressions.
module cnn_core_text
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   public :: list_length, shape_list, to_text

   !> Who reads the messages of this thread's calls: Python, and programs that write files; Fortran; C
   integer, parameter, public :: for_files = 0, for_fortran = 1, for_c = 2
   integer, public :: reader = for_files
   !$omp threadprivate(reader)

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

   !> Characters of an integer
   pure integer function digits_of(value)
      !> The integer
      integer(i8), intent(in) :: value
      character(len=24) :: buffer
      write (buffer, "(i0)") value
      digits_of = len_trim(buffer)
   end function digits_of

   !> Characters of a list
   pure integer function list_length(values)
      !> Integers, or none
      integer, intent(in) :: values(:)
      integer :: i
      list_length = 2 + 2*max(size(values) - 1, 0)
      do i = 1, size(values)
         list_length = list_length + digits_of(int(values(i), i8))
      end do
   end function list_length

   pure function formatted(value) result(buffer)
      !> A number
      real(dp), intent(in) :: value
      !> Its text, with blanks behind it
      character(len=24) :: buffer
      integer :: last
      if (abs(value) <= 0.0_dp .or. (abs(value) >= 1.0e-3_dp .and. abs(value) < 1.0e6_dp)) then
         write (buffer, "(f0.6)") value
      else if (abs(value) >= 1.0e100_dp .or. abs(value) < 1.0e-99_dp) then
         write (buffer, "(es13.5e3)") value
      else
         write (buffer, "(es12.5)") value
      end if
      buffer = adjustl(buffer)
      if (index(buffer, "E") > 0 .or. index(buffer, ".") == 0) return
      last = verify(trim(buffer), "0", back=.true.)
      buffer(last + 1:) = merge("0", " ", buffer(last:last) == ".")
      ! Compilers differ in whether f0 writes the zero before the point
      if (buffer(1:1) == ".") buffer = "0"//buffer(:23)
      if (buffer(1:2) == "-.") buffer = "-0"//buffer(2:23)
   end function formatted

   pure function int_to_text(value) result(text)
      !> An integer
      integer, intent(in) :: value
      character(len=digits_of(int(value, i8))) :: text
      write (text, "(i0)") value
   end function int_to_text

   pure function long_to_text(value) result(text)
      !> An integer of 64 bits
      integer(i8), intent(in) :: value
      character(len=digits_of(value)) :: text
      write (text, "(i0)") value
   end function long_to_text

   pure function list_to_text(values) result(text)
      !> Integers, or none
      integer, intent(in) :: values(:)
      character(len=list_length(values)) :: text
      integer :: i, at
      text = "("
      at = 1
      do i = 1, size(values)
         if (i > 1) then
            text(at + 1:) = ", "
            at = at + 2
         end if
         text(at + 1:) = int_to_text(values(i))
         at = at + digits_of(int(values(i), i8))
      end do
      text(at + 1:) = ")"
   end function list_to_text

   !> A shape as its reader writes it: Fortran (w, h, c, n), others as numpy and torch (n, c, h, w)
   pure function shape_list(extents) result(text)
      !> In Fortran order
      integer, intent(in) :: extents(:)
      character(len=list_length(extents)) :: text
      if (reader == for_fortran) then
         text = list_to_text(extents)
      else
         text = list_to_text(extents(size(extents):1:-1))
      end if
   end function shape_list

   pure function real_to_text(value) result(text)
      !> The number
      real(dp), intent(in) :: value
      !> Without blanks, and without zeros at the end
      character(len=len_trim(formatted(value))) :: text
      text = formatted(value)
   end function real_to_text

end module cnn_core_text
