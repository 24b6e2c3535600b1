! SPDX-License-Identifier: MIT
!> The caller's integers (words, classes) as the real numbers that networks compute with.
module cnn_library_whole_numbers
   use, intrinsic :: iso_c_binding, only : c_f_pointer, c_loc
   use, intrinsic :: iso_fortran_env, only : int32
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, dtype_int32, dtype_int64, dtype_name, i8, sp
   use cnn_core_text, only : to_text
   use cnn_library_arrays, only : array_type
   implicit none
   private

   public :: as_real, is_whole

contains

   !> Whether an element type is one of integers
   elemental logical function is_whole(dtype)
      !> Of cnn_core_kinds
      integer, intent(in) :: dtype
      is_whole = dtype == dtype_int32 .or. dtype == dtype_int64
   end function is_whole

   !> The same numbers as real ones; one that these cannot hold is an error, not another number
   subroutine as_real(name, array, dtype, converted, error)
      !> The array's, for messages
      character(len=*), intent(in) :: name
      !> Of integers, in host memory
      type(array_type), intent(in) :: array
      !> What they become: `dtype_float32` or `dtype_float64`
      integer, intent(in) :: dtype
      !> Has them
      type(array_type), target, intent(out) :: converted
      !> The first number that it cannot hold
      type(error_type), allocatable, intent(out) :: error
      integer(int32), pointer :: short(:)
      integer(i8), pointer :: long(:)
      integer(i8) :: n, first, most
      n = product(int(array%tensor%extent, i8))
      most = 2_i8**merge(digits(1.0_sp), digits(1.0_dp), dtype == dtype_float32)
      converted%rank = array%rank
      converted%tensor = array%tensor
      converted%tensor%dtype = dtype
      first = 0_i8
      if (array%tensor%dtype == dtype_int32) then
         call c_f_pointer(array%tensor%address, short, [n])
         if (dtype == dtype_float32) then
            first = findloc(short > most .or. short < -most, .true., 1, kind=i8)
            converted%packed_sp = real(short, sp)
         else
            converted%packed_dp = real(short, dp)
         end if
         if (first > 0_i8) call refuse(int(short(first), i8))
      else
         call c_f_pointer(array%tensor%address, long, [n])
         first = findloc(long > most .or. long < -most, .true., 1, kind=i8)
         if (dtype == dtype_float32) then
            converted%packed_sp = real(long, sp)
         else
            converted%packed_dp = real(long, dp)
         end if
         if (first > 0_i8) call refuse(long(first))
      end if
      if (allocated(converted%packed_sp)) converted%tensor%address = c_loc(converted%packed_sp)
      if (allocated(converted%packed_dp)) converted%tensor%address = c_loc(converted%packed_dp)

   contains

      subroutine refuse(number)
         !> That is too large
         integer(i8), intent(in) :: number
         call fail(error, name//": number "//to_text(first)//" is "//to_text(number)//", expected at most "// &
            & to_text(most)//" in a network of "//dtype_name(dtype))
      end subroutine refuse
   end subroutine as_real

end module cnn_library_whole_numbers
