! SPDX-License-Identifier: MIT
!> Integers and logicals of whatever kind a program's default is: some are compiled with -fdefault-integer-8.
module cnn_library_any_kind
   use, intrinsic :: ieee_arithmetic, only : ieee_quiet_nan, ieee_value
   use, intrinsic :: iso_fortran_env, only : int32, int64
   use cnn_core_kinds, only : dp
   implicit none
   private

   public :: integer_of, integers_of, is_integer, is_true, long_of, number_of

   !> Kinds of logicals, as long as those integers
   integer, parameter :: short = kind(.true.), long = int64

contains

   !> The number; NaN, which no hyperparameter may be, of what is no integer
   pure real(dp) function number_of(value)
      !> An integer
      class(*), intent(in) :: value
      select type (value)
       type is (integer(int32))
         number_of = real(value, dp)
       type is (integer(int64))
         number_of = real(value, dp)
       class default
         number_of = ieee_value(0.0_dp, ieee_quiet_nan)
      end select
   end function number_of

   !> An integer of this library's kind; -1, which is refused where it is taken, of what is none, or does not fit
   pure integer function integer_of(value)
      !> An integer
      class(*), intent(in) :: value
      real(dp) :: number
      number = number_of(value)
      integer_of = -1
      if (abs(number) <= real(huge(1), dp)) integer_of = nint(number)
   end function integer_of

   !> Whether it is an integer
   pure logical function is_integer(value)
      !> Of any type
      class(*), intent(in) :: value
      select type (value)
       type is (integer(int32))
         is_integer = .true.
       type is (integer(int64))
         is_integer = .true.
       class default
         is_integer = .false.
      end select
   end function is_integer

   !> The number, every one of its bits; 0 of what is no integer
   pure integer(int64) function long_of(value)
      !> An integer
      class(*), intent(in) :: value
      long_of = 0_int64
      select type (value)
       type is (integer(int32))
         long_of = int(value, int64)
       type is (integer(int64))
         long_of = value
      end select
   end function long_of

   !> As `integer_of`, of a list
   pure function integers_of(values) result(found)
      !> Integers
      class(*), intent(in) :: values(:)
      integer :: found(size(values))
      select type (values)
       type is (integer(int32))
         found = int(values)
       type is (integer(int64))
         found = int(min(values, int(huge(1), int64)))
       class default
         found = -1
      end select
   end function integers_of

   !> The truth; what is no logical is not true
   pure logical function is_true(value)
      !> A logical
      class(*), intent(in) :: value
      is_true = .false.
      select type (value)
       type is (logical(short))
         is_true = logical(value)
       type is (logical(long))
         is_true = logical(value)
      end select
   end function is_true

end module cnn_library_any_kind
