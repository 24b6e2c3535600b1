! SPDX-License-Identifier: MIT
!> Copies past the caches: see streaming_store.c.
module cnn_core_streaming
   use, intrinsic :: iso_c_binding, only : c_intptr_t, c_ptr, c_size_t
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   implicit none
   private

   public :: copy_nontemporal, passes_caches, wait_for_copies

   !> Bytes from which on results are written so: more than the first two levels of caches hold
   integer(i8), parameter :: large_bytes = 8388608_i8

   interface
      subroutine copy_nontemporal(to, from, bytes) bind(C, name="cnn_copy_nontemporal")
         import :: c_ptr, c_size_t
         implicit none
         !> Memory that is written, by non-temporal stores where whole cache lines are
         type(c_ptr), value :: to
         !> Memory that is read; does not overlap `to`
         type(c_ptr), value :: from
         !> Number of bytes
         integer(c_size_t), value :: bytes
      end subroutine copy_nontemporal
      subroutine wait_for_copies() bind(C, name="cnn_wait_for_copies")
         implicit none
      end subroutine wait_for_copies
   end interface

contains

   !> Whether so many bytes of a tensor are to be written past the caches, as far as they are whole lines
   pure logical function passes_caches(tensor, bytes)
      !> Whose memory is written; it has to begin with a line
      type(tensor_type), intent(in) :: tensor
      !> That are written
      integer(i8), intent(in) :: bytes
      integer(c_intptr_t), parameter :: line = 64_c_intptr_t
      passes_caches = bytes >= large_bytes .and. mod(transfer(tensor%address, 0_c_intptr_t), line) == 0
   end function passes_caches

end module cnn_core_streaming
