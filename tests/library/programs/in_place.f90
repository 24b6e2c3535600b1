! SPDX-License-Identifier: MIT
!> Arrays are read and written where they are, however they come to a call; those with gaps are copied, and copied back.
!> Prints how many kB each way needs that others do not, and "good".
program in_place
   use cnn
   implicit none
   type(network_type) :: net, other
   type(error_type), allocatable :: error
   real(sp), allocatable :: x(:, :, :, :), y(:, :, :, :), wide(:, :, :, :), missing(:, :, :, :), weight(:, :, :, :)
   integer :: before
   allocate (x(2048, 2048, 1, 4), y(32, 32, 1, 4), wide(64, 32, 1, 4))
   wide = -1
   call random_number(x)
   call net%add("pool", layer("avg_pool2d", "kernel_size=64,64 stride=64,64"))
   call net%build(error)
   call check(error)
   call net%forward(x, y, error)
   call check(error)
   before = peak()
   call shaped(net, x, wide(:32, :, :, :))
   print "(a, i0)", "assumed shape ", peak() - before
   if (any(abs(wide(:32, :, :, :) - y) > 0)) error stop "another result in an argument of assumed shape"
   if (any(abs(wide(33:, :, :, :) + 1) > 0)) error stop "numbers between those of an array with gaps have changed"

   ! Every second row, into every second one
   wide = -1
   call net%forward(x(:, ::2, :, :), wide(2::2, :16, :, :), error)
   call check(error)
   call net%forward(x(:, ::2, :, :) + 0.0_sp, y(:, :16, :, :), error)
   call check(error)
   if (any(abs(wide(2::2, :16, :, :) - y(:, :16, :, :)) > 0)) error stop "another result of an array with gaps"
   if (any(abs(wide(1::2, :, :, :) + 1) > 0)) error stop "numbers in gaps have changed"

   allocate (missing(2, 2, 1, 1))
   deallocate (missing)
   call net%forward(missing, y, error)
   if (.not. allocated(error)) error stop "an array that is not allocated was taken"
   print "(a)", error%message

   ! A seed of any kind of integer
   allocate (weight(3, 3, 1, 4))
   call other%add("a", conv2d(1, 4, kernel_size=3))
   call other%build(error, seed=7)
   call check(error)
   call other%get("a.weight", weight, error)
   call check(error)
   call other%build(error, seed=7_i8)
   call check(error)
   y = 0
   call other%get("a.weight", y(:3, :3, :, :), error)
   call check(error)
   if (any(abs(y(:3, :3, 1, :) - weight(:, :, 1, :)) > 0)) error stop "another network of the same seed"
   call other%build(error, seed=7.0)
   if (.not. allocated(error)) error stop "a seed that is no integer was taken"
   print "(a)", error%message
   print "(a)", "good"

contains

   subroutine shaped(net, x, y)
      type(network_type), intent(inout) :: net
      real(sp), intent(in) :: x(:, :, :, :)
      real(sp), intent(inout) :: y(:, :, :, :)
      type(error_type), allocatable :: error
      call net%forward(x, y, error)
      call check(error)
   end subroutine shaped

   subroutine check(error)
      type(error_type), allocatable, intent(in) :: error
      if (allocated(error)) error stop error%message
   end subroutine check

   !> Memory that this process has had, at most, in kB
   integer function peak()
      character(len=80) :: line
      integer :: unit, status
      peak = -1
      open (newunit=unit, file="/proc/self/status", action="read")
      do
         read (unit, "(a)", iostat=status) line
         if (status /= 0) exit
         if (line(:6) == "VmHWM:") read (line(7:), *) peak
      end do
      close (unit)
   end function peak

end program in_place
