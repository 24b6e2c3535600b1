! SPDX-License-Identifier: MIT
!> The processes of `mpirun`. An error of MPI itself ends all of them, as MPI does where nothing else is said.
module cnn_app_mpi_ranks
   use, intrinsic :: iso_c_binding, only : c_f_pointer, c_int
   use, intrinsic :: iso_fortran_env, only : error_unit
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_float32, sp
   use cnn_core_ranks, only : ranks_type
   use cnn_core_tensor, only : tensor_type
   use mpi_f08, only : MPI_Abort, MPI_Allreduce, MPI_Bcast, MPI_Comm_rank, MPI_Comm_size, MPI_COMM_WORLD, &
      & MPI_Datatype, MPI_DOUBLE_PRECISION, MPI_Finalize, MPI_Gatherv, MPI_IN_PLACE, MPI_Init_thread, MPI_REAL, &
      & MPI_Recv, MPI_Send, MPI_STATUS_IGNORE, MPI_SUM, MPI_THREAD_FUNNELED, MPI_Type_commit, MPI_Type_contiguous, &
      & MPI_Type_free
   implicit none
   private

   type, extends(ranks_type), public :: mpi_ranks_type
   contains
      procedure :: start
      procedure :: add_up
      procedure :: add_in_order
      procedure :: gather
      procedure :: end_all
      procedure :: finish
   end type mpi_ranks_type

   interface
      !> POSIX
      function c_sleep(seconds) result(left) bind(C, name="sleep")
         import :: c_int
         implicit none
         !> How long
         integer(c_int), value :: seconds
         integer(c_int) :: left
      end function c_sleep
   end interface

contains

   !> Which process this is. OpenMP's threads compute, the first of them alone speaks with other processes
   subroutine start(self)
      class(mpi_ranks_type), intent(inout) :: self
      integer :: provided
      call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
      call MPI_Comm_rank(MPI_COMM_WORLD, self%rank)
      call MPI_Comm_size(MPI_COMM_WORLD, self%count)
   end subroutine start

   subroutine add_up(self, tensor)
      class(mpi_ranks_type), intent(in) :: self
      !> Becomes the sum, *host*
      type(tensor_type), target, intent(in) :: tensor
      real(sp), pointer, contiguous :: numbers(:)
      associate (unused => self)
      end associate
      call memory_of(tensor, numbers)
      call MPI_Allreduce(MPI_IN_PLACE, numbers, int(tensor%count()), type_of(tensor), MPI_SUM, MPI_COMM_WORLD)
   end subroutine add_up

   !> The sum goes from rank to rank, and from the last to all
   subroutine add_in_order(self, columns, total)
      class(mpi_ranks_type), intent(in) :: self
      !> One for each image of this rank, *host*
      type(tensor_type), target, intent(in) :: columns
      !> 0 on entry; the sum over the columns of all ranks, *host*
      type(tensor_type), target, intent(in) :: total
      real(sp), pointer, contiguous :: numbers(:)
      call memory_of(total, numbers)
      if (self%rank > 0) call MPI_Recv(numbers, int(total%count()), type_of(total), self%rank - 1, 0, MPI_COMM_WORLD, &
         & MPI_STATUS_IGNORE)
      call self%add_columns(columns, total)
      if (self%rank < self%count - 1) call MPI_Send(numbers, int(total%count()), type_of(total), self%rank + 1, 0, &
         & MPI_COMM_WORLD)
      call MPI_Bcast(numbers, int(total%count()), type_of(total), self%count - 1, MPI_COMM_WORLD)
   end subroutine add_in_order

   subroutine gather(self, own, images, whole)
      class(mpi_ranks_type), intent(in) :: self
      !> Of this rank's images, *host*
      type(tensor_type), intent(in) :: own
      !> Of the batch
      integer, intent(in) :: images
      !> Of all images on rank 0, is overwritten, *host*; not read on others
      type(tensor_type), intent(in) :: whole
      type(MPI_Datatype) :: image
      real(sp), pointer, contiguous :: from(:), to(:)
      integer :: counts(0:self%count - 1), starts(0:self%count - 1), i
      do i = 0, self%count - 1
         call self%part(images, i, starts(i), counts(i))
      end do
      ! Images are counted, so that their elements may be more than 2**31
      call MPI_Type_contiguous(int(own%count()/counts(self%rank)), type_of(own), image)
      call MPI_Type_commit(image)
      call memory_of(own, from)
      to => from
      if (self%rank == 0) call memory_of(whole, to)
      call MPI_Gatherv(from, counts(self%rank), image, to, counts, starts, image, 0, MPI_COMM_WORLD)
      call MPI_Type_free(image)
   end subroutine gather

   !> Say what is wrong, and end all processes. Where all have found the same, the first of them says it
   subroutine end_all(self, name, error)
      class(mpi_ranks_type), intent(in) :: self
      !> Of the program
      character(len=*), intent(in) :: name
      !> What is wrong
      type(error_type), intent(in) :: error
      integer(c_int) :: ignored
      ignored = c_sleep(int(min(self%rank, 3), c_int))
      write (error_unit, "(a, i0, a)") name//": rank ", self%rank, ": "//error%message
      flush (error_unit)
      call MPI_Abort(MPI_COMM_WORLD, 2)
   end subroutine end_all

   subroutine finish(self)
      class(mpi_ranks_type), intent(in) :: self
      associate (unused => self)
      end associate
      call MPI_Finalize()
   end subroutine finish

   type(MPI_Datatype) function type_of(tensor)
      !> Of float32 or float64
      type(tensor_type), intent(in) :: tensor
      type_of = MPI_DOUBLE_PRECISION
      if (tensor%dtype == dtype_float32) type_of = MPI_REAL
   end function type_of

   !> The memory of a tensor, whatever its type, as MPI takes it
   subroutine memory_of(tensor, numbers)
      !> In host memory
      type(tensor_type), intent(in) :: tensor
      !> Its bytes, four in each
      real(sp), pointer, contiguous, intent(out) :: numbers(:)
      call c_f_pointer(tensor%address, numbers, [tensor%bytes()/4])
   end subroutine memory_of

end module cnn_app_mpi_ranks
