! SPDX-License-Identifier: MIT
!> A network of several inputs: built, pulled back, and saved; one from a file that PyTorch's names came with, saved again.
program several
   use cnn
   implicit none
   integer, parameter :: n = 2
   type(inputs_type) :: inputs
   type(network_type) :: net
   type(error_type), allocatable :: error
   character(len=256) :: path
   real(dp) :: x(5, 4, 2, n), v(3, n), t(2*n), both(44, n), y(5, 4, 3, n), d(44, n), dt(n), dx(5, 4, 2, n), small(3, n)
   integer :: i

   x = reshape([(real(mod(7*i, 23) - 11, dp)/8, i=1, size(x))], shape(x))
   v = reshape([(real(mod(5*i, 19) - 9, dp)/8, i=1, size(v))], shape(v))
   t = [0.5_dp, -3.0_dp, 0.25_dp, -3.0_dp]
   call inputs%add("x", [5, 4, 2])
   call inputs%add("t")
   call inputs%add("v", [3_i8])
   call net%add_inputs(inputs)
   call net%add("conv", conv2d(2, 3, kernel_size=3, padding=1), inputs="x")
   call net%add("of_v", linear(3, 3), inputs="v")
   call net%add("row", layer("reshape", "shape=1"), inputs="t")
   call net%add("of_t", linear(1, 3))
   call net%add("sum", layer("add"), inputs="of_v,of_t")
   call net%add("places", layer("reshape", "shape=3,1,1"))
   call net%add("y", layer("multiply"), inputs="conv,places")
   call net%build(error, precision="float64")
   call check()
   both = 0.0_dp
   call inputs%pack("x", x, both, error)
   call check()
   ! With gaps
   call inputs%pack("t", t(::2), both, error)
   call check()
   call inputs%pack("v", v, both, error)
   call check()
   call net%forward(both, y, error)
   call check()
   call write_numbers("y.bin", reshape(y, [size(y)]))
   call net%pull_back(both, y, d, error)
   call check()
   call inputs%unpack("t", d, dt, error)
   call check()
   call inputs%unpack("x", d, dx, error)
   call check()
   t = 7.0_dp
   call inputs%unpack("t", d, t(::2), error)
   call check()
   if (any(abs(t(::2) - dt) > 0) .or. any(abs(t(2::2) - 7) > 0)) print "(a)", "another gradient with gaps"
   call write_numbers("dx.bin", [reshape(dx, [size(dx)]), dt])
   call net%save("built.h5", sgd(0.1_dp), error)
   call check()

   call inputs%pack("z", x, both, error)
   call refused()
   call inputs%pack("v", x, both, error)
   call refused()
   call inputs%pack("v", small(:2, :), both, error)
   call refused()
   call inputs%unpack("v", both(:43, :), v, error)
   call refused()
   call inputs%pack("t", v(1, :1), both, error)
   call refused()

   call single_precision()
   call wrong_inputs()
   print "(4a, *(1x, i0))", "none: '", inputs%name(0), inputs%name(4), "'", inputs%extents(0), inputs%extents(4)
   call get_command_argument(1, path)
   call net%load(trim(path), error)
   call check()
   call net%get_inputs(inputs, error)
   call check()
   do i = 1, inputs%count()
      print "(a, *(1x, i0))", inputs%name(i), inputs%extents(i)
   end do
   print "(i0)", inputs%numbers()
   call net%save("again.h5", sgd(0.1_dp), error)
   call check()
   call get_command_argument(2, path)
   call net%load(trim(path), error)
   call check()
   call net%get_inputs(inputs, error)
   call refused()

contains

   !> The same numbers, into an array with gaps and out of it
   subroutine single_precision()
      real(sp) :: wide(2*44, n), x_(5, 4, 2, n), t_(n), v_(3, n)
      type(error_type), allocatable :: first, second, third
      wide = 9.0_sp
      call inputs%pack("x", real(x, sp), wide(::2, :), first)
      call inputs%pack("t", real(both(41, :), sp), wide(::2, :), second)
      call inputs%pack("v", real(v, sp), wide(::2, :), third)
      if (allocated(first) .or. allocated(second) .or. allocated(third)) print "(a)", "not packed"
      if (any(abs(wide(::2, :) - real(both, sp)) > 0) .or. any(abs(wide(2::2, :) - 9) > 0)) print "(a)", "other numbers"
      call inputs%unpack("x", wide(::2, :), x_, first)
      call inputs%unpack("t", wide(::2, :), t_, second)
      call inputs%unpack("v", wide(::2, :), v_, third)
      if (allocated(first) .or. allocated(second) .or. allocated(third)) print "(a)", "not unpacked"
      if (any(abs(x_ - real(x, sp)) > 0) .or. any(abs(v_ - real(v, sp)) > 0) .or. any(abs(t_ - real(both(41, :), sp)) > 0)) &
         & print "(a)", "others come back"
   end subroutine single_precision

   subroutine wrong_inputs()
      type(inputs_type) :: none, other
      type(network_type) :: empty, twice, of_none
      call of_none%add_inputs(none)
      call of_none%build(error)
      call refused()
      call other%add("z", [3])
      call twice%add_inputs(other)
      call twice%add_inputs(inputs)
      call twice%build(error)
      call refused()
      call other%add("zero", [2, 0])
      call empty%add_inputs(other)
      call empty%build(error)
      call refused()
   end subroutine wrong_inputs

   subroutine check()
      if (allocated(error)) print "(a)", error%message
   end subroutine check

   subroutine refused()
      if (allocated(error)) then
         print "(a)", error%message
      else
         print "(a)", "no error"
      end if
   end subroutine refused

   subroutine write_numbers(name, numbers)
      character(len=*), intent(in) :: name
      real(dp), intent(in) :: numbers(:)
      integer :: unit
      open (newunit=unit, file=name, access="stream", form="unformatted", status="replace", action="write")
      write (unit) numbers
      close (unit)
   end subroutine write_numbers

end program several
