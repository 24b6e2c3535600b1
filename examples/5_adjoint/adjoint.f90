! SPDX-License-Identifier: MIT
!> A network inside a solver: heat flows in steps, and a network adds a source that depends on the temperature. The
!> gradient of what comes out with respect to what goes in, by the adjoint of the solver and of the network.
program adjoint
   use cnn, only : conv2d, dp, error_type, layer, network_type
   implicit none
   integer, parameter :: side = 32, steps = 10
   real(dp), parameter :: flow = 0.1_dp, small = 1.0e-6_dp
   type(network_type) :: source
   type(error_type), allocatable :: error
   ! The temperature before each step, and at the end
   real(dp) :: t(side, side, 1, 1, 0:steps), gradient(side, side, 1, 1), direction(side, side, 1, 1), along, difference

   call source%add("a", conv2d(1, 8, kernel_size=3, padding=1))
   call source%add("b", layer("tanh"))
   call source%add("c", conv2d(8, 1, kernel_size=3, padding=1))
   call source%build(error, precision="float64")
   if (allocated(error)) error stop error%message

   call random_number(t(:, :, :, :, 0))
   call random_number(direction)
   call run(t)
   call run_back(t, gradient)
   along = sum(gradient*direction)

   ! The same by a difference of two runs
   t(:, :, :, :, 0) = t(:, :, :, :, 0) + small*direction
   call run(t)
   difference = energy(t(:, :, :, :, steps))
   t(:, :, :, :, 0) = t(:, :, :, :, 0) - 2*small*direction
   call run(t)
   difference = (difference - energy(t(:, :, :, :, steps)))/(2*small)
   print "(a, es12.5, a, es12.5, a, es8.1)", "adjoint ", along, ", difference ", difference, ", relative error ", &
      & abs(along/difference - 1)

contains

   !> What is wanted of the last temperature
   pure real(dp) function energy(t)
      !> Temperature
      real(dp), intent(in) :: t(:, :, :, :)
      energy = sum(t**2)/2
   end function energy

   !> All steps
   subroutine run(t)
      !> Temperature before each step, from the first on
      real(dp), intent(inout) :: t(:, :, :, :, 0:)
      real(dp) :: added(side, side, 1, 1)
      integer :: k
      do k = 0, steps - 1
         call source%forward(t(:, :, :, :, k), added, error)
         if (allocated(error)) error stop error%message
         t(:, :, :, :, k + 1) = t(:, :, :, :, k) + flow*laplace(t(:, :, :, :, k)) + 0.01_dp*added
      end do
   end subroutine run

   !> The gradient of the energy with respect to the first temperature
   subroutine run_back(t, gradient)
      !> Temperature before each step
      real(dp), intent(in) :: t(:, :, :, :, 0:)
      !> From the last step to the first
      real(dp), intent(out) :: gradient(:, :, :, :)
      real(dp) :: back(side, side, 1, 1)
      integer :: k
      gradient = t(:, :, :, :, steps)
      do k = steps - 1, 0, -1
         call source%pull_back(t(:, :, :, :, k), 0.01_dp*gradient, back, error)
         if (allocated(error)) error stop error%message
         gradient = gradient + flow*laplace(gradient) + back
      end do
   end subroutine run_back

   !> Differences to the four neighbours, around the border; it is its own adjoint
   pure function laplace(t) result(d)
      !> Any field
      real(dp), intent(in) :: t(:, :, :, :)
      real(dp) :: d(size(t, 1), size(t, 2), size(t, 3), size(t, 4))
      d = cshift(t, 1, 1) + cshift(t, -1, 1) + cshift(t, 1, 2) + cshift(t, -1, 2) - 4*t
   end function laplace
end program adjoint
