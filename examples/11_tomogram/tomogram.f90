! SPDX-License-Identifier: MIT
!> A 3-D U-Net, which tomogram.py has written, learns to remove noise from a tomogram: tomogram [STEPS]
program tomogram
   use cnn, only : adam, adam_type, dp, error_type, i8, network_type, sp
   implicit none
   !> Voxels of an edge of a tomogram and of its parts, parts of a batch, spheres and filaments of a tomogram
   integer, parameter :: edge = 48, part = 16, batch = 4, structures = 24
   type(network_type) :: net
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   real(sp), allocatable :: halves(:, :, :, :), x(:, :, :, :, :), target(:, :, :, :, :)
   character(len=16) :: argument
   real(dp) :: loss
   integer :: step, steps
   steps = 200
   call get_command_argument(1, argument)
   if (argument /= "") read (argument, *) steps
   allocate (halves(edge, edge, edge, 2), x(part, part, part, 1, batch), target(part, part, part, 1, batch))
   call read_half(0, 0, halves(:, :, :, 1))
   call read_half(0, 1, halves(:, :, :, 2))
   optimizer = adam(lr=2.0e-3_dp)
   call net%load("tomogram.h5", error)
   do step = 0, steps - 1
      if (allocated(error)) error stop error%message
      call read_batch(step, x, target)
      call net%step(x, target, optimizer, loss, error)
      if (mod(step, 20) == 0 .or. step == steps - 1) print "(a, i4, a, f8.6)", "step ", step, "  loss ", loss
   end do
   if (.not. allocated(error)) call net%set_training(.false., error)
   if (allocated(error)) error stop error%message
   call denoise(1)

contains

   !> A number from 0 to 2**31 - 2 that looks random, made of another
   elemental function mixed(number) result(found)
      !> At least 0
      integer(i8), intent(in) :: number
      integer(i8) :: found
      integer :: i
      found = number
      do i = 1, 3
         found = mod(found*found + 12345_i8, 2147483647_i8)
      end do
   end function mixed

   !> A tomogram without noise: 1 in spheres and filaments, and 0 around them
   pure subroutine draw(number, volume)
      !> Its number, from 0
      integer, intent(in) :: number
      !> Voxels
      real(sp), intent(out) :: volume(:, :, :)
      integer :: d(3), i, j, p(7), u(3), x, y, z
      logical :: inside
      volume = 0.0_sp
      do i = 0, structures - 1
         p = int(mixed([(7_i8*(structures*number + i) + j, j=0, 6)]))
         u = mod(p(4:6), [7, 7, 3]) + [-3, -3, 1]
         do z = 1, edge
            do y = 1, edge
               do x = 1, edge
                  d = [x, y, z] - 1 - mod(p(:3), edge)
                  if (mod(i, 2) == 0) then
                     inside = sum(d*d) <= (3 + mod(p(7), 3))**2
                  else
                     inside = sum((cshift(d, 1)*cshift(u, 2) - cshift(d, 2)*cshift(u, 1))**2) <= 4*sum(u*u)
                  end if
                  if (inside) volume(x, y, z) = 1.0_sp
               end do
            end do
         end do
      end do
   end subroutine draw

   !> A tomogram with the noise of one half of its projections
   pure subroutine read_half(number, which, volume)
      !> Its number, from 0
      integer, intent(in) :: number
      !> 0 or 1
      integer, intent(in) :: which
      !> Voxels
      real(sp), intent(out) :: volume(:, :, :)
      integer(i8) :: first
      integer :: i, x, y, z
      first = (2_i8*number + which)*edge**3
      call draw(number, volume)
      do i = 0, edge**3 - 1
         x = 1 + mod(i, edge)
         y = 1 + mod(i/edge, edge)
         z = 1 + i/edge**2
         volume(x, y, z) = real(volume(x, y, z) + (mixed(first + i)/2147483647.0_dp*1.6_dp - 0.8_dp), sp)
      end do
   end subroutine read_half

   !> Parts of both halves, at places that follow from the number of the step
   subroutine read_batch(step, x, target)
      !> Its number, from 0
      integer, intent(in) :: step
      !> Of the first half
      real(sp), intent(out) :: x(:, :, :, :, :)
      !> Of the second
      real(sp), intent(out) :: target(:, :, :, :, :)
      integer :: b(3), e(3), i, j
      do i = 1, batch
         b = 1 + int(mod(mixed([(3_i8*(batch*step + i - 1) + j, j=0, 2)]), int(edge - part + 1, i8)))
         e = b + part - 1
         x(:, :, :, 1, i) = halves(b(1):e(1), b(2):e(2), b(3):e(3), 1)
         target(:, :, :, 1, i) = halves(b(1):e(1), b(2):e(2), b(3):e(3), 2)
      end do
   end subroutine read_batch

   !> Remove the noise of a whole tomogram, which the network has not seen
   subroutine denoise(number)
      !> Its number
      integer, intent(in) :: number
      real(sp), allocatable :: clean(:, :, :), found(:, :, :, :, :), noisy(:, :, :, :, :)
      allocate (clean(edge, edge, edge), found(edge, edge, edge, 1, 1), noisy(edge, edge, edge, 1, 1))
      call draw(number, clean)
      call read_half(number, 0, noisy(:, :, :, 1, 1))
      call net%forward(noisy, found, error)
      if (allocated(error)) error stop error%message
      print "(2(a, f6.4), a)", "mean squared error of another tomogram: ", error_of(noisy(:, :, :, 1, 1), clean), &
         " before, ", error_of(found(:, :, :, 1, 1), clean), " after"
   end subroutine denoise

   !> The mean squared difference
   pure function error_of(found, clean) result(mean)
      !> Voxels with noise
      real(sp), intent(in) :: found(:, :, :)
      !> Those without
      real(sp), intent(in) :: clean(:, :, :)
      real(dp) :: mean
      mean = sum((real(found, dp) - clean)**2)/size(found)
   end function error_of
end program tomogram
