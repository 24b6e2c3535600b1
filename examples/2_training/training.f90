! SPDX-License-Identifier: MIT
!> A denoiser is trained on arrays of this program, without a file and without Python.
program training
   use cnn, only : adam, adam_type, conv2d, dp, error_type, keep_needed, layer, network_type, sp
   implicit none
   integer, parameter :: side = 64, images = 4, steps = 300
   type(network_type) :: net
   type(adam_type) :: optimizer
   type(error_type), allocatable :: error
   real(sp) :: clean(side, side, 1, images), noisy(side, side, 1, images), noise(side, side, 1, images)
   real(dp) :: loss
   integer :: i, j, step

   clean(:, :, 1, 1) = reshape([((sin(0.2_sp*real(i, sp))*cos(0.15_sp*real(j, sp)), i=1, side), j=1, side)], &
      & [side, side])
   clean(:, :, 1, 2:) = spread(transpose(clean(:, :, 1, 1)), 3, images - 1)

   call net%add("conv1", conv2d(1, 16, kernel_size=3, padding=1))
   call net%add("relu1", layer("relu"))
   call net%add("conv2", conv2d(16, 16, kernel_size=3, padding=1))
   call net%add("relu2", layer("relu"))
   call net%add("conv3", conv2d(16, 1, kernel_size=3, padding=1))
   call net%build(error, keep_activations=keep_needed)
   if (allocated(error)) error stop error%message

   optimizer = adam(lr=3.0e-3_dp)
   do step = 1, steps
      call random_number(noise)
      noisy = clean + noise - 0.5_sp
      ! A schedule: the rate falls to a tenth
      if (step > 2*steps/3) optimizer%lr = 3.0e-4_dp
      call net%step(noisy, clean, optimizer, loss, error)
      if (allocated(error)) error stop error%message
      if (step == 1 .or. mod(step, 100) == 0) print "(a, i0, a, f7.5)", "step ", step, ", loss ", loss
   end do
   call net%save("trained.h5", optimizer, error)
   if (allocated(error)) error stop error%message
end program training
