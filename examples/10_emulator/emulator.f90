! SPDX-License-Identifier: MIT
!> An LSTM, which emulator.py has written, learns an oscillator, and goes on with it: emulator [STEPS]
program emulator
   use cnn, only : adam, adam_type, dp, error_type, network_type, sp
   implicit none
   !> Times that it sees, and oscillators of a batch
   integer, parameter :: times = 60, batch = 32
   type(network_type) :: net
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   real(sp) :: x(2, times, batch), target(2, times, batch)
   character(len=16) :: argument
   real(dp) :: loss
   integer :: step, steps
   steps = 200
   call get_command_argument(1, argument)
   if (argument /= "") read (argument, *) steps
   optimizer = adam(lr=3.0e-3_dp)
   call net%load("emulator.h5", error)
   do step = 0, steps - 1
      if (allocated(error)) error stop error%message
      call read_batch(step, x, target)
      call net%step(x, target, optimizer, loss, error)
      if (mod(step, 20) == 0 .or. step == steps - 1) print "(a, i4, a, f8.6)", "step ", step, "  loss ", loss
   end do
   if (.not. allocated(error)) call net%set_training(.false., error)
   if (allocated(error)) error stop error%message
   call go_on(30)

contains

   !> Van der Pol's oscillator, by Runge and Kutta's method with a step of 0.1
   pure subroutine oscillate(begin, path)
      !> Place and velocity
      real(dp), intent(in) :: begin(2)
      !> From there on
      real(dp), intent(out) :: path(:, :)
      real(dp), parameter :: h = 0.1_dp
      real(dp) :: a(2), b(2), c(2), d(2)
      integer :: i
      path(:, 1) = begin
      do i = 2, size(path, 2)
         associate (y => path(:, i - 1))
            a = slope(y)
            b = slope(y + 0.5_dp*h*a)
            c = slope(y + 0.5_dp*h*b)
            d = slope(y + h*c)
            path(:, i) = y + h/6.0_dp*(a + 2.0_dp*b + 2.0_dp*c + d)
         end associate
      end do
   end subroutine oscillate

   !> How place and velocity change
   pure function slope(y) result(dy)
      !> Both
      real(dp), intent(in) :: y(2)
      real(dp) :: dy(2)
      dy = [y(2), (1.0_dp - y(1)*y(1))*y(2) - y(1)]
   end function slope

   !> Oscillators that begin elsewhere in every step, and the same a time later
   subroutine read_batch(step, x, target)
      !> Its number, from 0
      integer, intent(in) :: step
      !> Places and velocities
      real(sp), intent(out) :: x(:, :, :)
      !> The same a time later
      real(sp), intent(out) :: target(:, :, :)
      real(dp) :: path(2, times + 1)
      integer :: i, number
      do i = 1, batch
         number = step*batch + i - 1
         call oscillate([mod(7919*number, 1000), mod(mod(104729, 997)*number, 997)]/250.0_dp - 2.0_dp, path)
         x(:, :, i) = real(path(:, :times), sp)
         target(:, :, i) = real(path(:, 2:), sp)
      end do
   end subroutine read_batch

   !> The emulator on its own numbers, beside the oscillator
   subroutine go_on(count)
      !> Times
      integer, intent(in) :: count
      real(dp) :: path(2, times + count)
      real(sp) :: seen(2, times, 1), next(2, times, 1)
      integer :: i
      call oscillate([1.0_dp, 0.5_dp], path)
      seen(:, :, 1) = real(path(:, :times), sp)
      print "(a)", "time  oscillator  emulator"
      do i = 1, count
         call net%forward(seen, next, error)
         if (allocated(error)) error stop error%message
         seen(:, :, 1) = reshape([seen(:, 2:, 1), next(:, times, 1)], [2, times])
         if (mod(i, 5) == 0) print "(i4, 2f11.4)", i, path(1, times + i), next(1, times, 1)
      end do
   end subroutine go_on
end program emulator
