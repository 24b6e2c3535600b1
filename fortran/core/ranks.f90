! SPDX-License-Identifier: MIT
!> The processes of a training: each computes on its part of every batch, and what they find is added up.
!>
!> This type is a process that is alone; an extension of it speaks with the others (cnn_app_mpi_ranks), so that nothing
!> but a program knows of MPI. All ranks make the same calls in the same order.
!>
!> Tensors are `target` where their memory may be a local variable's: gfortran takes an address in an argument that is
!> `intent(in)` for one through which nothing changes.
module cnn_core_ranks
   use cnn_core_kinds, only : dp, dtype_float32, i8, sp
   use cnn_core_tensor, only : as_vector, tensor_type
   implicit none
   private

   type, public :: ranks_type
      !> Which of them this is, from 0, and how many there are
      integer :: rank = 0, count = 1
      !> Whether gradients are added up image by image in the order of the batch, so that the bits do not depend on how
      !> many ranks there are
      logical :: by_image = .false.
   contains
      procedure, non_overridable :: part
      procedure, non_overridable :: add_columns
      procedure :: add_up => nothing_to_add
      procedure :: add_in_order => add_own_columns
      procedure :: gather => nothing_to_gather
   end type ranks_type

contains

   !> The images of a batch that a rank takes: those of all ranks follow each other, and make up the batch
   pure subroutine part(self, images, rank, first, own)
      class(ranks_type), intent(in) :: self
      !> Of the batch
      integer, intent(in) :: images
      !> Whose part
      integer, intent(in) :: rank
      !> Images before its own
      integer, intent(out) :: first
      !> Its own; none where there are more ranks than images
      integer, intent(out) :: own
      first = int(int(images, i8)*rank/self%count)
      own = int(int(images, i8)*(rank + 1)/self%count) - first
   end subroutine part

   !> total + column 1 + column 2 + ..., in this order
   subroutine add_columns(self, columns, total)
      class(ranks_type), intent(in) :: self
      !> One for each image, one after the other, *host*
      type(tensor_type), intent(in) :: columns
      !> Of the shape of a column, is added to, *host*
      type(tensor_type), intent(in) :: total
      real(sp), pointer, contiguous :: all_sp(:), sum_sp(:)
      real(dp), pointer, contiguous :: all_dp(:), sum_dp(:)
      integer(i8) :: start, n
      associate (unused => self)
      end associate
      n = total%count()
      do start = 0_i8, columns%count() - n, n
         if (total%dtype == dtype_float32) then
            call as_vector(columns, all_sp)
            call as_vector(total, sum_sp)
            sum_sp = sum_sp + all_sp(start + 1:start + n)
         else
            call as_vector(columns, all_dp)
            call as_vector(total, sum_dp)
            sum_dp = sum_dp + all_dp(start + 1:start + n)
         end if
      end do
   end subroutine add_columns

   !> What the ranks have found becomes its sum, the same on each
   subroutine nothing_to_add(self, tensor)
      class(ranks_type), intent(in) :: self
      !> Of the same shape on all, is overwritten, *host*
      type(tensor_type), target, intent(in) :: tensor
      associate (unused => self, also_unused => tensor)
      end associate
   end subroutine nothing_to_add

   !> 0 + columns of rank 0 + those of rank 1 + ..., the same on each
   subroutine add_own_columns(self, columns, total)
      class(ranks_type), intent(in) :: self
      !> One for each image of this rank, *host*
      type(tensor_type), target, intent(in) :: columns
      !> Of the shape of a column; 0 on entry, *host*
      type(tensor_type), target, intent(in) :: total
      call self%add_columns(columns, total)
   end subroutine add_own_columns

   !> What the ranks have of their images, one after the other, on rank 0
   subroutine nothing_to_gather(self, own, images, whole)
      class(ranks_type), intent(in) :: self
      !> Of this rank's images, *host*
      type(tensor_type), intent(in) :: own
      !> Of the batch
      integer, intent(in) :: images
      !> Of all images on rank 0, is overwritten, *host*; not read on others
      type(tensor_type), intent(in) :: whole
      associate (unused => self, also_unused => own, unused_too => images, as_well => whole)
      end associate
   end subroutine nothing_to_gather

end module cnn_core_ranks
