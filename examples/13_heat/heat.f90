! SPDX-License-Identifier: MIT
!> A Fourier neural operator, which heat.py has written, learns the heat equation: heat [STEPS]
program heat
   use cnn, only : adam, adam_type, dp, error_type, i8, network_type, sp
   implicit none
   !> Pixels of a side, fields of a batch, and waves of a field
   integer, parameter :: side = 32, batch = 16, waves = 8
   real(dp), parameter :: turn = 8.0_dp*atan(1.0_dp)
   type(network_type) :: net
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   real(sp) :: x(side, side, 2, batch), target(side, side, 1, batch)
   character(len=16) :: argument
   real(dp) :: loss
   integer :: step, steps
   steps = 200
   call get_command_argument(1, argument)
   if (argument /= "") read (argument, *) steps
   optimizer = adam(lr=3.0e-3_dp)
   call net%load("heat.h5", error)
   do step = 0, steps - 1
      if (allocated(error)) error stop error%message
      call read_batch(step, x, target)
      call net%step(x, target, optimizer, loss, error)
      if (mod(step, 20) == 0 .or. step == steps - 1) print "(a, i4, a, f8.6)", "step ", step, "  loss ", loss
   end do
   if (allocated(error)) error stop error%message
   call try_new(steps)

contains

   !> Fields that follow from the number of the step
   subroutine read_batch(step, x, target)
      !> From 0
      integer, intent(in) :: step
      !> Temperature and diffusivity
      real(sp), intent(out) :: x(:, :, :, :)
      !> Temperature a time later
      real(sp), intent(out) :: target(:, :, :, :)
      real(dp) :: after(side, side), before(side, side), diffusivity
      integer :: i
      do i = 1, batch
         call make_field(step*batch + i - 1, before, diffusivity, after)
         x(:, :, 1, i) = real(before, sp)
         x(:, :, 2, i) = real(10.0_dp*diffusivity, sp)
         target(:, :, 1, i) = real(after, sp)
      end do
   end subroutine read_batch

   !> A sum of waves on a torus, and what is left of it
   pure subroutine make_field(number, before, diffusivity, after)
      !> Of the field, from 0
      integer, intent(in) :: number
      !> Temperature
      real(dp), intent(out) :: before(:, :)
      !> Of all of the field
      real(dp), intent(out) :: diffusivity
      !> Temperature a time later
      real(dp), intent(out) :: after(:, :)
      real(dp) :: height, phase, shape(side, side)
      integer :: across, down, i, j, wave
      integer(i8) :: draw
      diffusivity = real(1 + mod(7919_i8*number, 100_i8), dp)/1000.0_dp
      before = 0.0_dp
      after = 0.0_dp
      do wave = 0, waves - 1
         draw = int(number, i8)*waves + wave
         across = int(mod(mod(draw*104729_i8, 997_i8), 5_i8))
         down = int(mod(mod(draw*1299709_i8, 991_i8), 9_i8)) - 4
         height = real(mod(draw*15485863_i8, 983_i8), dp)/983.0_dp - 0.5_dp
         phase = turn*(real(mod(draw*32452843_i8, 977_i8), dp)/977.0_dp)
         do j = 1, side
            do i = 1, side
               shape(i, j) = height*cos(turn*(across*(i - 1) + down*(j - 1))/side + phase)
            end do
         end do
         before = before + shape
         after = after + shape*exp(-diffusivity*(across**2 + down**2))
      end do
   end subroutine make_field

   !> Fields that it has not seen: how far it is from the equation, beside a field that stays as it was
   subroutine try_new(step)
      !> Whose fields were not learned
      integer, intent(in) :: step
      real(sp) :: found(side, side, 1, batch)
      call read_batch(step, x, target)
      call net%set_training(.false., error)
      if (.not. allocated(error)) call net%forward(x, found, error)
      if (allocated(error)) error stop error%message
      print "(a, f7.4, a, f7.4)", "error of new fields ", norm2(found - target)/norm2(target), ", of no change ", &
         & norm2(x(:, :, 1, :) - target(:, :, 1, :))/norm2(target)
   end subroutine try_new
end program heat
