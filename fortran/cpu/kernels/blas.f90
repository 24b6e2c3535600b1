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
         !> "N" for a as it is, "T" for its transpose
         character(len=1), intent(in) :: transa
         !> "N" for b as it is, "T" for its transpose
         character(len=1), intent(in) :: transb
         !> Rows of op(a) and c
         integer, intent(in) :: m
         !> Columns of op(b) and c
         integer, intent(in) :: n
         !> Columns of op(a), rows of op(b)
         integer, intent(in) :: k
         !> Leading dimension of a
         integer, intent(in) :: lda
         !> Leading dimension of b
         integer, intent(in) :: ldb
         !> Leading dimension of c
         integer, intent(in) :: ldc
         !> Factor of the product
         real(sp), intent(in) :: alpha
         !> Factor of c as it was; 0 where c is only written
         real(sp), intent(in) :: beta
         !> First matrix
         real(sp), intent(in) :: a(lda, *)
         !> Second matrix
         real(sp), intent(in) :: b(ldb, *)
         !> Result
         real(sp), intent(inout) :: c(ldc, *)
      end subroutine sgemm
      subroutine dgemm(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
         import :: dp
         implicit none
         !> "N" for a as it is, "T" for its transpose
         character(len=1), intent(in) :: transa
         !> "N" for b as it is, "T" for its transpose
         character(len=1), intent(in) :: transb
         !> Rows of op(a) and c
         integer, intent(in) :: m
         !> Columns of op(b) and c
         integer, intent(in) :: n
         !> Columns of op(a), rows of op(b)
         integer, intent(in) :: k
         !> Leading dimension of a
         integer, intent(in) :: lda
         !> Leading dimension of b
         integer, intent(in) :: ldb
         !> Leading dimension of c
         integer, intent(in) :: ldc
         !> Factor of the product
         real(dp), intent(in) :: alpha
         !> Factor of c as it was; 0 where c is only written
         real(dp), intent(in) :: beta
         !> First matrix
         real(dp), intent(in) :: a(lda, *)
         !> Second matrix
         real(dp), intent(in) :: b(ldb, *)
         !> Result
         real(dp), intent(inout) :: c(ldc, *)
      end subroutine dgemm
   end interface

end module cnn_cpu_kernels_blas
