! SPDX-License-Identifier: MIT
!> Steps of a network, saved before and after, and what it computes: for a comparison with bridge.Network, to the bit.
!> Argument: the device.
program beside_python
   use cnn
   implicit none
   type(network_type) :: net, again
   type(error_type), allocatable :: error
   real(sp) :: x(10, 8, 1, 3), target(10, 8, 1, 3), y(10, 8, 1, 3), dx(10, 8, 1, 3), w(3, 3, 1, 4), a(10, 8, 4, 3)
   real(dp) :: loss
   character(len=32) :: device
   integer :: i
   call get_command_argument(1, device)
   x = reshape([(real(mod(7*i, 23) - 11, sp)/8, i=1, size(x))], shape(x))
   target = reshape([(real(mod(5*i, 19) - 9, sp)/8, i=1, size(x))], shape(x))
   call net%add("conv1", conv2d(1, 4, kernel_size=3, padding=1))
   call net%add("act", layer("silu"))
   call net%add("conv2", conv2d(4, 1, kernel_size=3, padding=1))
   call net%add("sum", layer("add"), inputs="conv2,input")
   call net%build(error, device=trim(device), seed=11_i8)
   call stop_at(error)
   call net%save("before.h5", sgd(lr=0.125_dp, momentum=0.5_dp), error)
   call stop_at(error)
   do i = 1, 3
      call net%step(x, target, sgd(lr=0.125_dp, momentum=0.5_dp), loss, error)
      call stop_at(error)
      print "(a, es24.16)", "loss ", loss
   end do
   call net%get_gradient("conv1.weight", w, error)
   call stop_at(error)
   call write_numbers("gradient.bin", reshape(w, [size(w)]))
   call net%save("after.h5", sgd(lr=0.125_dp, momentum=0.5_dp), error)
   call stop_at(error)
   call again%load("after.h5", error, device=trim(device))
   call stop_at(error)
   call again%pull_back(x, target, dx, error)
   call stop_at(error)
   call again%forward(x, y, error)
   call stop_at(error)
   call again%get_output("act", a, error)
   call stop_at(error)
   call write_numbers("y.bin", reshape(y, [size(y)]))
   call write_numbers("dx.bin", reshape(dx, [size(dx)]))
   call write_numbers("act.bin", reshape(a, [size(a)]))
   call again%evaluate(x, target, loss, error)
   call stop_at(error)
   print "(a, es24.16)", "loss ", loss

contains

   subroutine stop_at(error)
      !> Ends the program where it is there
      type(error_type), allocatable, intent(in) :: error
      if (.not. allocated(error)) return
      print "(a)", error%message
      error stop 1
   end subroutine stop_at

   subroutine write_numbers(path, numbers)
      !> Of the file
      character(len=*), intent(in) :: path
      !> In the order of memory
      real(sp), intent(in) :: numbers(:)
      integer :: unit
      open (newunit=unit, file=path, access="stream", form="unformatted", status="replace", action="write")
      write (unit) numbers
      close (unit)
   end subroutine write_numbers
end program beside_python
