! SPDX-License-Identifier: MIT
!> Keeps OpenBLAS to one thread while our own OpenMP threads call it.
!>
!> Source.  OpenBLAS `cblas.h`: openblas_get_num_threads, openblas_set_num_threads.
module cnn_cpu_kernels_blas_threads
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   public :: blas_single_thread, blas_restore_threads

   interface
      function openblas_get_num_threads() result(threads) bind(C, name="openblas_get_num_threads")
         import :: c_int
         implicit none
         integer(c_int) :: threads
      end function openblas_get_num_threads
      subroutine openblas_set_num_threads(threads) bind(C, name="openblas_set_num_threads")
         import :: c_int
         implicit none
         !> Number of threads from now on
         integer(c_int), value :: threads
      end subroutine openblas_set_num_threads
   end interface

contains

   !> One thread from now on; the caller's number, to be given back to `blas_restore_threads`
   integer function blas_single_thread() result(before)
      before = int(openblas_get_num_threads())
      if (before /= 1) call openblas_set_num_threads(1_c_int)
   end function blas_single_thread

   subroutine blas_restore_threads(before)
      !> Number of threads that `blas_single_thread` returned
      integer, intent(in) :: before
      if (before /= 1) call openblas_set_num_threads(int(before, c_int))
   end subroutine blas_restore_threads

end module cnn_cpu_kernels_blas_threads
