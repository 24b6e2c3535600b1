! SPDX-License-Identifier: MIT
!> A network with a loss and its settings: saved, a step, saved and loaded again. Arguments: the loss, its reduction.
program losses
   use cnn
   implicit none
   type(network_type) :: net, again
   type(error_type), allocatable :: error
   real(dp) :: x(5, 3, 1, 2), target(5, 3, 4, 2), loss
   character(len=128) :: text, reduction
   integer :: i, j, n
   call get_command_argument(1, text)
   call get_command_argument(2, reduction)
   x = reshape([(real(mod(7*i, 23) - 11, dp)/8, i=1, size(x))], shape(x))
   ! One class of each pixel: what every loss takes for a target
   target = 0
   do n = 1, size(target, 4)
      do j = 1, size(target, 2)
         do i = 1, size(target, 1)
            target(i, j, 1 + mod(i + 2*j + n, 4), n) = 1
         end do
      end do
   end do
   call net%add("conv", conv2d(1, 4, kernel_size=1))
   call net%add("share", layer("sigmoid"))
   call net%build(error, loss=trim(text), reduction=trim(reduction), precision="float64", seed=5_i8)
   call stop_at(error)
   call net%save("before.h5", sgd(lr=0.125_dp), error)
   call stop_at(error)
   call net%step(x, target, sgd(lr=0.125_dp), loss, error)
   call stop_at(error)
   print "(es24.16)", loss
   call net%save("after.h5", sgd(lr=0.125_dp), error)
   call stop_at(error)
   call again%load("after.h5", error)
   call stop_at(error)
   call again%evaluate(x, target, loss, error)
   call stop_at(error)
   print "(es24.16)", loss

contains

   subroutine stop_at(error)
      !> Ends the program where it is there
      type(error_type), allocatable, intent(in) :: error
      if (.not. allocated(error)) return
      print "(a)", error%message
      error stop 1
   end subroutine stop_at
end program losses
