! SPDX-License-Identifier: MIT
!> One network that several threads use at the same time. Prints what must be 0 or true, and what is refused.
program shared
   use cnn
   implicit none
   type(network_type) :: net, alone
   type(error_type), allocatable :: error
   real(sp) :: x(24, 24, 1, 4, 64), y(24, 24, 1, 4, 64), expected(24, 24, 1, 4, 64), inner(24, 24, 8, 4), w(3, 3, 1, 8), &
      & trained(3, 3, 1, 8)
   real(dp) :: loss(64), right(64)
   integer :: i
   call fill(x)
   y = 0.0_sp
   call make(net)
   alone = net
   do i = 1, 64
      call alone%evaluate(x(:, :, :, :, i), x(:, :, :, :, 1), right(i), error)
      call alone%forward(x(:, :, :, :, i), expected(:, :, :, :, i), error)
   end do
   !$omp parallel do schedule(dynamic)
   do i = 1, 64
      call forward(i)
   end do
   !$omp end parallel do
   print "(a, es9.2)", "forward ", maxval(abs(y - expected))
   !$omp parallel do schedule(dynamic)
   do i = 1, 64
      call evaluate(i)
   end do
   !$omp end parallel do
   print "(a, es9.2)", "evaluate ", maxval(abs(loss - right))
   call compute_at_once()
   call net%get_output("a", inner, error)
   call say("outputs")
   call net%forward(x(:, :, :, :, 1), y(:, :, :, :, 1), error)
   call net%get_output("a", inner, error)
   call say("alone")
   call learn()

contains

   subroutine make(net)
      !> Is built; nothing that it keeps or draws
      type(network_type), intent(inout) :: net
      type(error_type), allocatable :: error
      call net%add("a", conv2d(1, 8, kernel_size=3, padding=1))
      call net%add("b", layer("silu"))
      call net%add("c", conv2d(8, 1, kernel_size=3, padding=1))
      call net%build(error, seed=5_i8)
      if (allocated(error)) error stop error%message
   end subroutine make

   subroutine fill(x)
      !> Numbers that are not alike
      real(sp), intent(out) :: x(:, :, :, :, :)
      integer :: i
      x = reshape([(sin(0.1_sp*real(i, sp)), i=1, size(x))], shape(x))
   end subroutine fill

   subroutine say(what)
      !> What was tried
      character(len=*), intent(in) :: what
      if (allocated(error)) then
         print "(a)", what//": "//error%message
      else
         print "(a)", what//": no error"
      end if
   end subroutine say

   !> Until two threads have met
   subroutine compute_at_once()
      type(error_type), allocatable :: error
      logical :: met
      integer :: k
      met = .false.
      do while (.not. met)
         !$omp parallel do schedule(dynamic)
         do k = 1, 64
            call forward(k)
         end do
         !$omp end parallel do
         call net%get_output("a", inner, error)
         met = allocated(error)
      end do
   end subroutine compute_at_once

   !> Steps that were not refused are all there; until one was
   subroutine learn()
      type(error_type), allocatable :: error
      character(len=:), allocatable :: refusal
      real(dp) :: loss
      integer :: k, done, round
      done = 0
      refusal = ""
      do round = 1, 1000
         !$omp parallel do schedule(dynamic) reduction(+:done)
         do k = 1, 16
            done = done + step(refusal)
         end do
         !$omp end parallel do
         if (len(refusal) > 0) exit
      end do
      print "(a, l1)", "steps ", net%steps() == done
      do k = 1, done
         call alone%step(x(:, :, :, :, 1), x(:, :, :, :, 2), sgd(lr=0.001_dp), loss, error)
      end do
      call net%get("a.weight", w, error)
      call alone%get("a.weight", trained, error)
      print "(a, es9.2)", "weights ", maxval(abs(w - trained))
      print "(a)", "refused: "//refusal
   end subroutine learn

   !> One of the threads'
   subroutine forward(i)
      !> Which input
      integer, intent(in) :: i
      type(error_type), allocatable :: error
      call net%forward(x(:, :, :, :, i), y(:, :, :, :, i), error)
      if (allocated(error)) y(:, :, :, :, i) = huge(y)
   end subroutine forward

   !> One of the threads'
   subroutine evaluate(i)
      !> Which input
      integer, intent(in) :: i
      type(error_type), allocatable :: error
      call net%evaluate(x(:, :, :, :, i), x(:, :, :, :, 1), loss(i), error)
      if (allocated(error)) loss(i) = huge(loss)
   end subroutine evaluate

   !> One of the threads': 1 where it was taken
   integer function step(refusal)
      !> Why it was not
      character(len=:), allocatable, intent(inout) :: refusal
      type(error_type), allocatable :: error
      real(dp) :: loss
      call net%step(x(:, :, :, :, 1), x(:, :, :, :, 2), sgd(lr=0.001_dp), loss, error)
      step = merge(0, 1, allocated(error))
      if (step == 1) return
      !$omp critical
      refusal = error%message
      !$omp end critical
   end function step

end program shared
