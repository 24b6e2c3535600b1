! SPDX-License-Identifier: MIT
!> Floating-point traps and flags of the caller, put aside while the library computes: float_traps.c says why.
!>
!> Threads.  Each thread has its own. Where the caller has traps, the threads that work for it are asked, too.
module cnn_core_float_traps
   use, intrinsic :: iso_c_binding, only : c_char, c_int
   !$ use omp_lib, only : omp_get_max_threads, omp_get_thread_num
   implicit none
   private

   type, bind(C) :: saved_type
      !> Of the C library, of unknown content
      character(kind=c_char) :: bytes(64) = achar(0)
   end type saved_type

   type, public :: float_traps_type
      private
      type(saved_type) :: own
      type(saved_type), allocatable :: others(:)
   contains
      procedure :: hold
      procedure :: restore
   end type float_traps_type

   interface
      function c_hold_traps(saved) result(found) bind(C, name="cnn_hold_traps")
         import :: c_int, saved_type
         implicit none
         !> Traps and flags
         type(saved_type), intent(out) :: saved
         integer(c_int) :: found
      end function c_hold_traps

      subroutine c_restore_traps(saved) bind(C, name="cnn_restore_traps")
         import :: saved_type
         implicit none
         !> As `c_hold_traps` gave them
         type(saved_type), intent(in) :: saved
      end subroutine c_restore_traps
   end interface

contains

   !> No traps, and no flags, until `restore`
   subroutine hold(self)
      class(float_traps_type), intent(inout) :: self
      integer(c_int) :: found
      integer :: thread
      found = c_hold_traps(self%own)
      thread = 1
      !$ thread = omp_get_max_threads()
      if (found == 0 .or. thread == 1) return
      allocate (self%others(thread))
      !$omp parallel private(thread, found)
      thread = 1
      !$ thread = omp_get_thread_num() + 1
      if (thread > 1) found = c_hold_traps(self%others(thread))
      !$omp end parallel
   end subroutine hold

   !> As they were
   subroutine restore(self)
      class(float_traps_type), intent(inout) :: self
      integer :: thread
      if (allocated(self%others)) then
         !$omp parallel private(thread)
         thread = 1
         !$ thread = omp_get_thread_num() + 1
         if (thread > 1) call c_restore_traps(self%others(thread))
         !$omp end parallel
         deallocate (self%others)
      end if
      call c_restore_traps(self%own)
   end subroutine restore

end module cnn_core_float_traps
