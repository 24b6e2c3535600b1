! SPDX-License-Identifier: MIT
!> Every operation, loss and optimizer at large and small numbers, in a program that ends at floating-point traps: it is to
!> be compiled with -ffpe-trap. Prints what failed, how many were computed, and that traps and flags are as before.
program traps
   use, intrinsic :: ieee_exceptions, only : ieee_all, ieee_get_flag, ieee_get_halting_mode, ieee_set_flag, ieee_usual
   use cnn
   implicit none
   !> An operation with its settings, on the network's input, which several inputs are parts of
   type :: case_type
      character(len=256) :: kind, settings
      type(inputs_type) :: inputs
      !> Of the output: for one image, and how many
      integer :: numbers, images
      !> Of the input
      integer :: count
      !> Whether it is wanted so
      logical :: positive
   end type case_type
   character(len=*), parameter :: losses(*) = [character(len=24) :: "mse", "l1", "smooth_l1", "huber", "bce", &
      & "bce_with_logits", "cross_entropy"]
   real(dp), parameter :: sizes(*) = [0.0_dp, 1.0e-30_dp, 0.5_dp, 20.0_dp, 100.0_dp, 1000.0_dp, 1.0e18_dp, 1.0e30_dp]
   logical :: flags(size(ieee_all)), halting(size(ieee_usual))
   type(case_type), allocatable :: cases(:)
   integer :: computed, i, k
   computed = 0
   call read_cases(cases)
   call ieee_set_flag(ieee_all, .false.)
   do k = 1, size(sizes)
      do i = 1, size(cases)
         call compute(cases(i), sizes(k), "float32")
         call compute(cases(i), sizes(k), "float64")
      end do
      do i = 1, size(losses)
         call learn(trim(losses(i)), sizes(k))
      end do
   end do
   print "(i0, a)", computed, " computed"
   call ieee_get_halting_mode(ieee_usual, halting)
   call ieee_get_flag(ieee_usual, flags(:size(ieee_usual)))
   print "(a, 2(1x, l1))", "as before", all(halting), .not. any(flags(:size(ieee_usual)))

contains

   !> Those of the file cases.txt: of each a line for the operation, one of numbers, and one for each input
   subroutine read_cases(cases)
      !> All of them
      type(case_type), allocatable, intent(out) :: cases(:)
      integer :: extents(8), unit, total, inputs, rank, i, j, positive
      open (newunit=unit, file="cases.txt", status="old", action="read")
      read (unit, *) total
      allocate (cases(total))
      do i = 1, total
         read (unit, "(a)") cases(i)%kind
         read (unit, "(a)") cases(i)%settings
         read (unit, *) inputs, cases(i)%count, cases(i)%numbers, cases(i)%images, positive
         cases(i)%positive = positive == 1
         do j = 1, inputs
            read (unit, *) rank, extents(:rank)
            call cases(i)%inputs%add("x"//achar(iachar("0") + j), extents(:rank))
         end do
      end do
      close (unit)
   end subroutine read_cases

   subroutine compute(case, largest, precision)
      !> Operation with its settings
      type(case_type), intent(in) :: case
      !> Of the input's numbers
      real(dp), intent(in) :: largest
      !> float32 or float64
      character(len=*), intent(in) :: precision
      type(network_type) :: net
      type(error_type), allocatable :: error
      character(len=:), allocatable :: taken
      real(dp) :: x(case%inputs%numbers(), case%count), y(case%numbers, case%images)
      integer :: i
      call fill(x, largest, case%positive)
      call net%add_inputs(case%inputs)
      taken = case%inputs%name(1)
      do i = 2, case%inputs%count()
         taken = taken//","//case%inputs%name(i)
      end do
      call net%add("a", layer(trim(case%kind), trim(case%settings)), inputs=taken)
      call net%add("rows", layer("flatten"))
      call net%build(error, precision=precision)
      if (allocated(error)) then
         print "(a)", trim(case%kind)//" "//trim(case%settings)//": "//error%message
         return
      end if
      if (precision == "float32") then
         call compute_single(net, real(x, sp), y, error)
      else
         call net%forward(x, y, error)
         y = 1.0_dp
         if (.not. allocated(error)) call net%pull_back(x, y, x, error)
      end if
      if (allocated(error)) print "(a)", trim(case%kind)//" "//trim(case%settings)//": "//error%message
      computed = computed + 1
   end subroutine compute

   subroutine compute_single(net, x, like, error)
      !> Of float32
      type(network_type), intent(inout) :: net
      !> Input
      real(sp), intent(in) :: x(:, :)
      !> Of the output's shape
      real(dp), intent(in) :: like(:, :)
      !> None
      type(error_type), allocatable, intent(out) :: error
      real(sp) :: y(size(like, 1), size(like, 2)), dx(size(x, 1), size(x, 2))
      call net%forward(x, y, error)
      y = 1.0_sp
      if (.not. allocated(error)) call net%pull_back(x, y, dx, error)
   end subroutine compute_single

   subroutine fill(x, largest, positive)
      !> Numbers of both signs, and 0
      real(dp), intent(out) :: x(:, :)
      !> Their size
      real(dp), intent(in) :: largest
      !> Whether they are, which some operations want
      logical, intent(in) :: positive
      integer :: i
      x = reshape([(largest*real(mod(7*i, 23) - 11, dp)/11, i=1, size(x))], shape(x))
      if (positive) x = abs(x) + 1.0_dp
   end subroutine fill

   subroutine learn(loss_name, largest)
      !> Its name
      character(len=*), intent(in) :: loss_name
      !> Of the input's numbers
      real(dp), intent(in) :: largest
      type(network_type) :: net
      type(error_type), allocatable :: error
      real(dp) :: x(37, 9, 2, 2), target(37, 9, 2, 2), rows(37*9*2, 2), loss
      call fill(rows, largest, .false.)
      x = reshape(rows, shape(x))
      target = 0.0_dp
      target(:, :, 1, :) = 1.0_dp
      call net%add("a", conv2d(2, 2, kernel_size=1))
      if (loss_name == "bce") call net%add("b", layer("sigmoid"))
      call net%build(error, loss=loss_name)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), adam(lr=0.1_dp), loss, error)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), adamw(lr=0.1_dp), loss, error)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), sgd(lr=0.1_dp, momentum=0.5_dp), loss, &
         & error)
      if (allocated(error)) then
         if (.not. error%diverged) print "(a)", loss_name//": "//error%message
      end if
      computed = computed + 1
   end subroutine learn
end program traps
