! SPDX-License-Identifier: MIT
!> A training that is interrupted and goes on as if nothing had happened, to the bit. A batch follows from the number of
!> its step alone, so that the data need no state.
program checkpoint
   use cnn, only : adamw, adam_type, conv2d, dp, error_type, i8, layer, network_type, sp
   implicit none
   type(network_type) :: net, resumed
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   real(dp) :: loss, loss_resumed
   optimizer = adamw(lr=1.0e-3_dp)
   call net%add("conv1", conv2d(1, 8, kernel_size=5, padding=2))
   call net%add("silu1", layer("silu"))
   call net%add("conv2", conv2d(8, 1, kernel_size=5, padding=2))
   call net%build(error, seed=7_i8, initialization="he")
   if (.not. allocated(error)) call train(net, 20_i8, loss, error)
   if (.not. allocated(error)) call net%save("checkpoint.h5", optimizer, error)
   ! One goes on, the other begins with the file
   if (.not. allocated(error)) call train(net, 40_i8, loss, error)
   if (.not. allocated(error)) call resumed%load("checkpoint.h5", error)
   if (.not. allocated(error)) call train(resumed, 40_i8, loss_resumed, error)
   if (allocated(error)) error stop error%message
   print "(a, i0, a, f8.6, a, l1)", "step ", resumed%steps(), ", loss ", loss_resumed, ", the same to the bit: ", &
      & abs(loss - loss_resumed) <= 0.0_dp

contains

   !> Up to a number of steps
   subroutine train(net, steps, loss, error)
      !> The network
      type(network_type), intent(inout) :: net
      !> Counted from its first step, that of another run perhaps
      integer(i8), intent(in) :: steps
      !> Of the last step
      real(dp), intent(out) :: loss
      !> Of a step
      type(error_type), allocatable, intent(out) :: error
      real(sp) :: x(32, 32, 1, 2), target(32, 32, 1, 2)
      loss = 0.0_dp
      do while (net%steps() < steps)
         call read_batch(net%steps(), x, target)
         call net%step(x, target, optimizer, loss, error)
         if (allocated(error)) return
      end do
   end subroutine train

   !> In place of a file
   pure subroutine read_batch(step, x, target)
      !> Its number
      integer(i8), intent(in) :: step
      !> Input
      real(sp), intent(out) :: x(:, :, :, :)
      !> What the output should be
      real(sp), intent(out) :: target(:, :, :, :)
      integer :: i
      x = reshape([(sin(0.37_sp*real(i, sp)*real(step + 1, sp)), i=1, size(x))], shape(x))
      target = abs(x)
   end subroutine read_batch
end program checkpoint
