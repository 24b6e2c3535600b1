! SPDX-License-Identifier: MIT
!> A network that PyTorch has trained, applied to a Fortran array. inference.py writes denoiser.h5 first.
program inference
   use cnn, only : dp, error_type, i8, network_type, sp
   implicit none
   type(network_type) :: net
   type(error_type), allocatable :: error
   ! (width, height, channels, images): the bytes of torch's (images, channels, height, width)
   real(sp) :: x(64, 48, 1, 2), y(64, 48, 1, 2)
   integer :: i

   x = reshape([(sin(0.01_sp*real(i, sp)), i=0, size(x) - 1)], shape(x))
   call net%load("denoiser.h5", error)
   if (.not. allocated(error)) call net%set_training(.false., error)
   if (.not. allocated(error)) call net%forward(x, y, error)
   if (allocated(error)) error stop error%message
   print "(a, f7.4, a, f7.4)", "mean ", sum(real(y, dp))/real(size(y, kind=i8), dp), ", corner ", y(64, 48, 1, 2)
end program inference
