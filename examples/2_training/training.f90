! SPDX-License-Identifier: MIT
!> A denoiser is trained on arrays of this program, without a file of data and without Python. Killed at any moment and
!> started again, it goes on from its checkpoint to the same bits: a batch follows from the number of its step alone.
program training
   use cnn, only : adam, adam_type, conv2d, dp, error_type, keep_needed, layer, network_type, sp
   implicit none
   integer, parameter :: side = 64, images = 4, steps = 300
   type(network_type) :: net
   type(adam_type) :: optimizer
   type(error_type), allocatable :: error
   real(sp) :: clean(side, side, 1, images), noisy(side, side, 1, images)
   real(dp) :: loss, unseen
   logical :: is_there
   integer :: step

   inquire (file="trained.h5", exist=is_there)
   if (is_there) then
      call net%load("trained.h5", error, keep_activations=keep_needed)
   else
      call net%add("conv1", conv2d(1, 16, kernel_size=3, padding=1))
      call net%add("relu1", layer("relu"))
      call net%add("conv2", conv2d(16, 16, kernel_size=3, padding=1))
      call net%add("relu2", layer("relu"))
      call net%add("conv3", conv2d(16, 1, kernel_size=3, padding=1))
      call net%build(error, keep_activations=keep_needed)
   end if
   if (allocated(error)) error stop error%message

   do step = int(net%steps()) + 1, steps
      ! A schedule: the rate falls as half a cosine
      optimizer = adam(lr=3.0e-3_dp*(1 + cos(acos(-1.0_dp)*step/steps))/2)
      call make_batch(step, clean, noisy)
      call net%step(noisy, clean, optimizer, loss, error)
      if (allocated(error)) error stop error%message
      if (mod(step, 100) /= 0) cycle
      ! How it does on images of which no step is made, and a checkpoint, which is whole or the one before
      call make_batch(0, clean, noisy)
      call net%evaluate(noisy, clean, unseen, error)
      if (.not. allocated(error)) call net%save("trained.h5", optimizer, error)
      if (allocated(error)) error stop error%message
      print "(a, i0, 2(a, f7.5))", "step ", step, ", loss ", loss, ", of unseen images ", unseen
   end do

contains

   !> In place of a program's own data: waves, and the same with noise
   subroutine make_batch(number, clean, noisy)
      !> Of the step
      integer, intent(in) :: number
      !> What the output should be
      real(sp), intent(out) :: clean(:, :, :, :)
      !> Input
      real(sp), intent(out) :: noisy(:, :, :, :)
      integer :: i, j, n, seeds
      do n = 1, size(clean, 4)
         do j = 1, size(clean, 2)
            clean(:, j, 1, n) = [(sin(0.2_sp*real(i + 7*number, sp))*cos(0.15_sp*real(j*n, sp)), i=1, size(clean, 1))]
         end do
      end do
      call random_seed(size=seeds)
      call random_seed(put=[(12345*(number + 1) + 678*i, i=1, seeds)])
      call random_number(noisy)
      noisy = clean + noisy - 0.5_sp
   end subroutine make_batch
end program training
