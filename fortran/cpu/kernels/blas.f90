! SPDX-License-Identifier: MIT
!> Matrix product of the BLAS.
!>
!> Not one generic name: callers hand over array elements (sequence association), which generic
!> resolution does not allow. A kernel renames the one it needs: `use cnn_cpu_kernels_blas, only : gemm => sgemm`.
!>
!> Source.  BLAS level 3, `sgemm` and `dgemm`: C = alpha*op(A)*op(B) + beta*C.
module cnn_cpu_kernels_blas
   use cnn_core_kinds, only : dp, sp
   implicit none
   private

   public :: sgemm, dgemm

   interface
      subroutine sgemm(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
         import :: sp
         implicit none
         character(len=1), intent(in) :: transa, transb
         integer, intent(in) :: m, n, k, lda, ldb, ldc
         real(sp), intent(in) :: alpha, beta
         real(sp), intent(in) :: a(lda, *), b(ldb, *)
         real(sp), intent(inout) :: c(ldc, *)
      end subroutine sgemm
      subroutine dgemm(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
         import :: dp
         implicit none
         character(len=1), intent(in) :: transa, transb
         integer, intent(in) :: m, n, k, lda, ldb, ldc
         real(dp), intent(in) :: alpha, beta
         real(dp), intent(in) :: a(lda, *), b(ldb, *)
         real(dp), intent(inout) :: c(ldc, *)
      end subroutine dgemm
   end interface

end module cnn_cpu_kernels_blas
