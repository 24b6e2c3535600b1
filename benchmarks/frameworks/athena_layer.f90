! SPDX-License-Identifier: MIT
!> A convolution layer of athena 1 with its ReLU, forward or backward, as `benchmarks.cpu.fortran` asks for it: see
!> neural_fortran_layer.f90 for arguments and files.
program athena_layer
   use, intrinsic :: iso_fortran_env, only : dp => real64, error_unit, i8 => int64
   use conv2d_layer, only : conv2d_layer_type
   implicit none
   type(conv2d_layer_type) :: layer
   character(len=4096) :: pass, case_file, result_file
   integer :: unit, status, n, c, h, w, k, r, repeats, j
   integer(i8) :: begin, end, ticks
   real, allocatable :: x(:, :, :, :), dy(:, :, :, :)

   call get_command_argument(1, pass)
   call get_command_argument(2, case_file)
   call get_command_argument(3, result_file, status=status)
   if (status /= 0 .or. all(pass /= ["forward ", "backward"])) then
      write (error_unit, "(a)") "usage: athena_layer forward|backward CASE RESULT"
      error stop 2
   end if
   open (newunit=unit, file=case_file, access="stream", form="unformatted", action="read", status="old")
   read (unit) n, c, h, w, k, r, repeats
   allocate (x(w, h, c, n), dy(w - r + 1, h - r + 1, k, n))
   layer = conv2d_layer_type(input_shape=[w, h, c], batch_size=n, num_filters=k, kernel_size=r, &
      & activation_function="relu", calc_input_gradients=.true.)
   read (unit) x, layer%weight, layer%bias, dy
   close (unit)
   call layer%forward(x)
   call system_clock(begin, ticks)
   do j = 1, repeats
      if (pass == "forward") then
         call layer%forward(x)
      else
         layer%dw = 0.0
         layer%db = 0.0
         call layer%backward(x, dy)
      end if
   end do
   call system_clock(end)
   write (*, "(es12.5)") real(end - begin, dp)/real(ticks, dp)/repeats
   open (newunit=unit, file=result_file, access="stream", form="unformatted", action="write", status="replace")
   if (pass == "forward") then
      write (unit) layer%output
   else
      write (unit) layer%di, sum(layer%dw, dim=5), sum(layer%db, dim=2)
   end if
   close (unit)
end program athena_layer
