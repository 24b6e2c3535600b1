! SPDX-License-Identifier: MIT
!> A convolution layer of neural-fortran with its ReLU, forward or backward, as `benchmarks.cpu.fortran` asks for it.
!>
!> `neural_fortran_layer PASS CASE RESULT` reads CASE, repeats PASS ("forward" or "backward") on each image of the
!> batch, prints the seconds that one repeat takes, and writes RESULT: y, or dx, dw and db, summed over the images.
!>
!> CASE, unformatted stream: the integers n, c, h, w, k, r (filters of r x r), repeats, then float32 in C order: the
!> input (n, c, h, w), filters (k, c, r, r), biases (k), and the gradient of the output. There is no padding.
program neural_fortran_layer
   use, intrinsic :: iso_fortran_env, only : dp => real64, error_unit, i8 => int64
   use nf_activation, only : relu
   use nf_conv2d_layer, only : conv2d_layer
   implicit none
   type(conv2d_layer), allocatable :: layers(:)
   character(len=4096) :: pass, case_file, result_file
   integer :: unit, status, n, c, h, w, k, r, repeats, i, j
   integer(i8) :: begin, end, ticks
   real, allocatable :: x(:, :, :, :), filters(:, :, :, :), bias(:), dy(:, :, :, :)

   call get_command_argument(1, pass)
   call get_command_argument(2, case_file)
   call get_command_argument(3, result_file, status=status)
   if (status /= 0 .or. all(pass /= ["forward ", "backward"])) then
      write (error_unit, "(a)") "usage: neural_fortran_layer forward|backward CASE RESULT"
      error stop 2
   end if
   open (newunit=unit, file=case_file, access="stream", form="unformatted", action="read", status="old")
   read (unit) n, c, h, w, k, r, repeats
   allocate (x(c, w, h, n), filters(c, r, r, k), bias(k), dy(k, w - r + 1, h - r + 1, n), layers(n))
   call read_images(unit, x)
   call read_images(unit, filters)
   read (unit) bias
   call read_images(unit, dy)
   close (unit)
   do i = 1, n
      layers(i) = conv2d_layer(k, r, relu(), [1, 1])
      call layers(i)%init([c, w, h])
      ! Its filters are (filter, channel, column, row)
      do j = 1, k
         layers(i)%kernel(j, :, :, :) = filters(:, :, :, j)
      end do
      layers(i)%biases = bias
      call layers(i)%forward(x(:, :, :, i))
   end do
   call system_clock(begin, ticks)
   do j = 1, repeats
      do i = 1, n
         if (pass == "forward") then
            call layers(i)%forward(x(:, :, :, i))
         else
            layers(i)%dw = 0.0
            layers(i)%db = 0.0
            call layers(i)%backward(x(:, :, :, i), dy(:, :, :, i))
         end if
      end do
   end do
   call system_clock(end)
   write (*, "(es12.5)") real(end - begin, dp)/real(ticks, dp)/repeats
   open (newunit=unit, file=result_file, access="stream", form="unformatted", action="write", status="replace")
   if (pass == "forward") then
      do i = 1, n
         call write_image(unit, layers(i)%output)
      end do
   else
      do i = 1, n
         call write_image(unit, layers(i)%gradient)
      end do
      do i = 2, n
         layers(1)%dw = layers(1)%dw + layers(i)%dw
         layers(1)%db = layers(1)%db + layers(i)%db
      end do
      do j = 1, k
         call write_image(unit, layers(1)%dw(j, :, :, :))
      end do
      write (unit) layers(1)%db
   end if
   close (unit)

contains

   !> (column, row, channel) of a file to (channel, column, row), image by image
   subroutine read_images(unit, images)
      integer, intent(in) :: unit
      real, intent(out) :: images(:, :, :, :)
      real :: plane(size(images, 2), size(images, 3))
      integer :: image, channel
      do image = 1, size(images, 4)
         do channel = 1, size(images, 1)
            read (unit) plane
            images(channel, :, :, image) = plane
         end do
      end do
   end subroutine read_images

   !> The other way round
   subroutine write_image(unit, image)
      integer, intent(in) :: unit
      real, intent(in) :: image(:, :, :)
      integer :: channel
      do channel = 1, size(image, 1)
         write (unit) image(channel, :, :)
      end do
   end subroutine write_image

end program neural_fortran_layer
