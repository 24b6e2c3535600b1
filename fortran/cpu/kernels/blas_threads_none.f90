! SPDX-License-Identifier: MIT
!> The same face as `blas_threads_openblas.f90` for a BLAS whose threads we do not steer.
module cnn_cpu_kernels_blas_threads
   implicit none
   private

   public :: blas_single_thread, blas_restore_threads

contains

   integer function blas_single_thread() result(before)
      before = 1
   end function blas_single_thread

   subroutine blas_restore_threads(before)
      !> Number of threads that `blas_single_thread` returned
      integer, intent(in) :: before
      ! Nothing was changed, so there is nothing to restore; the comparison uses the argument
      if (before /= 1) return
   end subroutine blas_restore_threads

end module cnn_cpu_kernels_blas_threads
