! SPDX-License-Identifier: MIT
!> Integers and logicals of any kind of 8 to 64 bits: a program may be compiled with -fdefault-integer-8, or have C's.
module cnn_library_any_kind
   use, intrinsic :: ieee_arithmetic, only : ieee_quiet_nan, ieee_value
   use, intrinsic :: iso_fortran_env, only : int8, int16, int32, int64, logical_kinds
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   implicit none
   private

   public :: check_seed, flag_of, integer_of, integers_of, long_of, number_of, read_logical, read_truth

   !> Kinds of logicals, by their bits
   integer, parameter :: truth8 = logical_kinds(1), truth16 = logical_kinds(2), truth32 = logical_kinds(3), &
      & truth64 = logical_kinds(4)

contains

   !> The number, every one of its bits; 0 of what is no integer
   pure integer(int64) function long_of(value)
      !> An integer
      class(*), intent(in) :: value
      logical :: is_integer
      call read_integer(value, long_of, is_integer)
   end function long_of

   !> The number; NaN, which no hyperparameter may be, of what is no integer
   pure real(dp) function number_of(value)
      !> An integer
      class(*), intent(in) :: value
      integer(int64) :: number
      logical :: is_integer
      call read_integer(value, number, is_integer)
      number_of = real(number, dp)
      if (.not. is_integer) number_of = ieee_value(0.0_dp, ieee_quiet_nan)
   end function number_of

   !> An integer of this library's kind; -1, which is refused where it is taken, of what is none, or does not fit
   pure integer function integer_of(value)
      !> An integer
      class(*), intent(in) :: value
      integer(int64) :: number
      logical :: is_integer
      call read_integer(value, number, is_integer)
      integer_of = -1
      if (is_integer .and. number >= -int(huge(1), int64) .and. number <= int(huge(1), int64)) integer_of = int(number)
   end function integer_of

   !> As `integer_of`, of a list
   pure function integers_of(values) result(found)
      !> Integers
      class(*), intent(in) :: values(:)
      integer :: found(size(values))
      integer :: i
      do i = 1, size(values)
         found(i) = integer_of(values(i))
      end do
   end function integers_of

   !> 1 where it is true, 0 where it is not; NaN, which no hyperparameter may be, of what is no logical
   pure real(dp) function flag_of(value)
      !> A logical
      class(*), intent(in) :: value
      logical :: truth, is_logical
      call read_logical(value, truth, is_logical)
      flag_of = merge(1.0_dp, 0.0_dp, truth)
      if (.not. is_logical) flag_of = ieee_value(0.0_dp, ieee_quiet_nan)
   end function flag_of

   !> An argument of a call that is a truth
   subroutine read_truth(name, value, truth, error)
      !> The argument's
      character(len=*), intent(in) :: name
      !> A logical
      class(*), intent(in) :: value
      !> Its value; false of what is none
      logical, intent(out) :: truth
      !> It is no logical
      type(error_type), allocatable, intent(out) :: error
      logical :: is_logical
      call read_logical(value, truth, is_logical)
      if (.not. is_logical) call fail(error, name//": expected a logical")
   end subroutine read_truth

   !> -1, which other arguments refuse, may be a seed, so that what is none is looked for
   subroutine check_seed(seed, error)
      !> As of `build`
      class(*), intent(in), optional :: seed
      !> It is no integer
      type(error_type), allocatable, intent(out) :: error
      integer(int64) :: number
      logical :: is_integer
      if (.not. present(seed)) return
      call read_integer(seed, number, is_integer)
      if (.not. is_integer) call fail(error, "seed: expected an integer")
   end subroutine check_seed

   pure subroutine read_integer(value, number, is_integer)
      !> Of any type
      class(*), intent(in) :: value
      !> The integer; 0 of what is none
      integer(int64), intent(out) :: number
      !> Whether it is one
      logical, intent(out) :: is_integer
      is_integer = .true.
      select type (value)
       type is (integer(int8))
         number = int(value, int64)
       type is (integer(int16))
         number = int(value, int64)
       type is (integer(int32))
         number = int(value, int64)
       type is (integer(int64))
         number = value
       class default
         number = 0_int64
         is_integer = .false.
      end select
   end subroutine read_integer

   pure subroutine read_logical(value, truth, is_logical)
      !> Of any type
      class(*), intent(in) :: value
      !> The logical; false of what is none
      logical, intent(out) :: truth
      !> Whether it is one
      logical, intent(out) :: is_logical
      is_logical = .true.
      select type (value)
       type is (logical(truth8))
         truth = logical(value)
       type is (logical(truth16))
         truth = logical(value)
       type is (logical(truth32))
         truth = logical(value)
       type is (logical(truth64))
         truth = logical(value)
       class default
         truth = .false.
         is_logical = .false.
      end select
   end subroutine read_logical

end module cnn_library_any_kind
