! SPDX-License-Identifier: MIT
!> Number kinds, and the codes that name an element type at run time.
!>
!> A tensor carries its element type as a value (as in torch and cuDNN), so the model is written
!> once; only the innermost kernels know `sp` or `dp`.
module cnn_core_kinds
   use, intrinsic :: iso_c_binding, only : c_double, c_float
   use, intrinsic :: iso_fortran_env, only : int64
   implicit none
   private

   public :: bytes_of, dtype_from_name, dtype_name

   !> Kinds of float32 and float64, interoperable with C, HDF5, torch and CUDA
   integer, parameter, public :: sp = c_float
   integer, parameter, public :: dp = c_double
   !> Element counts and byte counts: a batch of micrographs passes 2**31 bytes
   integer, parameter, public :: i8 = int64

   integer, parameter, public :: dtype_none = 0
   integer, parameter, public :: dtype_float32 = 1
   integer, parameter, public :: dtype_float64 = 2
   !> Storage on a CUDA device only; no arithmetic here is done in them
   integer, parameter, public :: dtype_float16 = 3
   integer, parameter, public :: dtype_bfloat16 = 4
   !> Of the caller's arrays only, which become real numbers
   integer, parameter, public :: dtype_int32 = 5
   integer, parameter, public :: dtype_int64 = 6

   !> By the codes
   character(len=8), parameter :: names(0:6) = [character(len=8) :: "none", "float32", "float64", "float16", &
      & "bfloat16", "int32", "int64"]

contains

   !> Bytes of one element; 0 for `dtype_none`
   pure integer(i8) function bytes_of(dtype)
      !> `dtype_float32` and so on
      integer, intent(in) :: dtype
      select case (dtype)
       case (dtype_float32, dtype_int32)
         bytes_of = 4_i8
       case (dtype_float64, dtype_int64)
         bytes_of = 8_i8
       case (dtype_float16, dtype_bfloat16)
         bytes_of = 2_i8
       case default
         bytes_of = 0_i8
      end select
   end function bytes_of

   !> `dtype_float32` for "float32" and so on; `dtype_none` for any other name
   pure integer function dtype_from_name(name)
      !> Name of an element type, as in numpy and torch
      character(len=*), intent(in) :: name
      select case (name)
       case ("float32")
         dtype_from_name = dtype_float32
       case ("float64")
         dtype_from_name = dtype_float64
       case default
         dtype_from_name = dtype_none
      end select
   end function dtype_from_name

   !> Characters of the name
   pure integer function name_length(dtype)
      !> `dtype_float32` and so on
      integer, intent(in) :: dtype
      name_length = len_trim(names(merge(dtype, dtype_none, dtype >= 0 .and. dtype <= ubound(names, 1))))
   end function name_length

   !> The name used in messages and in exchange files, as in numpy and torch
   pure function dtype_name(dtype) result(name)
      !> `dtype_float32` and so on
      integer, intent(in) :: dtype
      !> Its length is an expression, see cnn_core_text
      character(len=name_length(dtype)) :: name
      name = names(merge(dtype, dtype_none, dtype >= 0 .and. dtype <= ubound(names, 1)))
   end function dtype_name

end module cnn_core_kinds
