! SPDX-License-Identifier: MIT
!> Copies past the caches: see streaming_store.c.
module cnn_core_streaming
   use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
   implicit none
   private

   public :: copy_nontemporal, wait_for_copies

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

end module cnn_core_streaming
