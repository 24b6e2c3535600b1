! SPDX-License-Identifier: MIT
!> A denoiser is trained by several processes: each computes gradients on its part of a batch, one MPI_Allreduce adds
!> them up, and all take the same step. Compiled with mpifort; mpirun -n 4 mpi
program data_parallel
   use mpi_f08, only : MPI_Abort, MPI_Allreduce, MPI_Comm_rank, MPI_Comm_size, MPI_COMM_WORLD, &
      & MPI_DOUBLE_PRECISION, MPI_Finalize, MPI_IN_PLACE, MPI_Init, MPI_REAL, MPI_SUM
   use cnn, only : adam, conv2d, dp, error_type, i8, keep_needed, layer, network_type, sp
   implicit none
   integer, parameter :: side = 48, images = 8, steps = 200
   type(network_type) :: net
   type(error_type), allocatable :: error
   real(sp) :: clean(side, side, 1, images), noisy(side, side, 1, images)
   real(sp), allocatable :: gradients(:)
   real(dp) :: loss, share
   integer :: rank, ranks, first, last, step

   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   ! This rank's images, and their share of the mean
   first = images*rank/ranks + 1
   last = images*(rank + 1)/ranks
   share = real(last - first + 1, dp)/images

   call net%add("conv1", conv2d(1, 8, kernel_size=3, padding=1))
   call net%add("relu1", layer("relu"))
   call net%add("conv2", conv2d(8, 1, kernel_size=3, padding=1))
   ! The same seed: the same first parameters everywhere, and the same updates keep them so
   call net%build(error, keep_activations=keep_needed, seed=1_i8)
   call stop_all_at(error)
   allocate (gradients(net%parameter_count()))
   do step = 1, steps
      call make_batch(step, clean, noisy)
      call net%compute_gradients(noisy(:, :, :, first:last), clean(:, :, :, first:last), loss, error)
      call stop_all_at(error)
      call net%get_gradients(gradients, error)
      call stop_all_at(error)
      gradients = real(share, sp)*gradients
      loss = share*loss
      call MPI_Allreduce(MPI_IN_PLACE, gradients, size(gradients), MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
      call MPI_Allreduce(MPI_IN_PLACE, loss, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
      call net%set_gradients(gradients, error)
      if (.not. allocated(error)) call net%update(adam(lr=3.0e-3_dp), error)
      call stop_all_at(error)
      if (rank == 0 .and. (step == 1 .or. mod(step, 50) == 0)) print "(a, i0, a, f7.5)", "step ", step, ", loss ", loss
   end do
   call MPI_Finalize()

contains

   !> A batch follows from the number of its step, so that all ranks have the same
   pure subroutine make_batch(step, clean, noisy)
      !> Its number
      integer, intent(in) :: step
      !> What the output should be
      real(sp), intent(out) :: clean(:, :, :, :)
      !> Input
      real(sp), intent(out) :: noisy(:, :, :, :)
      real(sp) :: noise
      integer :: i, j, n
      do n = 1, size(clean, 4)
         do j = 1, size(clean, 2)
            do i = 1, size(clean, 1)
               clean(i, j, 1, n) = sin(0.2_sp*real(i + 5*n, sp))*cos(0.15_sp*real(j + step, sp))
               noise = 4.0e3_sp*sin(12.9898_sp*real(i, sp) + 78.233_sp*real(j, sp) + 3.7_sp*real(8*step + n, sp))
               noisy(i, j, 1, n) = clean(i, j, 1, n) + noise - floor(noise) - 0.5_sp
            end do
         end do
      end do
   end subroutine make_batch

   !> Where a rank has an error, all ranks end
   subroutine stop_all_at(error)
      !> Not allocated where all is well
      type(error_type), allocatable, intent(in) :: error
      if (.not. allocated(error)) return
      print "(a)", error%message
      call MPI_Abort(MPI_COMM_WORLD, 1)
   end subroutine stop_all_at
end program data_parallel
