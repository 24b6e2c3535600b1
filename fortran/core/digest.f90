! SPDX-License-Identifier: MIT
!> A short name for a long text, the same in every process: no protection against forgery.
!>
!> Source.  FNV-1a of 64 bits, Fowler, Noll, Vo: http://www.isthe.com/chongo/tech/comp/fnv
module cnn_core_digest
   use cnn_core_kinds, only : i8
   implicit none
   private

   public :: digest

   integer, parameter, public :: digest_length = 16

contains

   !> 16 hexadecimal digits. Fortran's integers must not overflow: the 64 bits are two halves of 32
   pure function digest(text) result(hex)
      !> Text of any length; each character counts as one byte
      character(len=*), intent(in) :: text
      character(len=digest_length) :: hex
      integer(i8), parameter :: ones = 2_i8**32 - 1
      integer(i8) :: high, low
      integer :: i

      high = int(z"CBF29CE4", i8)
      low = int(z"84222325", i8)
      do i = 1, len(text)
         low = ieor(low, int(iand(ichar(text(i:i)), 255), i8))
         ! Times 2**40 + 435, modulo 2**64: no intermediate number has more than 42 bits
         high = high*435 + ishft(low, 8)
         low = low*435
         high = iand(high + ishft(low, -32), ones)
         low = iand(low, ones)
      end do
      write (hex, "(2z8.8)") high, low
   end function digest

end module cnn_core_digest
