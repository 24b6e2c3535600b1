! SPDX-License-Identifier: MIT
!> A step in parts, with gradients as one vector, beside whole steps: what must be 0, and what is wrong in words.
!> Argument: the device.
program gradients
   use, intrinsic :: ieee_arithmetic, only : ieee_quiet_nan, ieee_value
   use cnn
   implicit none
   type(network_type) :: net, other
   type(error_type), allocatable :: error
   real(sp) :: x(16, 12, 1, 6), target(16, 12, 1, 6), w(3, 3, 1, 4), b(4)
   real(sp), allocatable :: vector(:), part(:), before(:)
   real(dp) :: loss, loss_other, wide(4)
   character(len=32) :: device
   integer :: i, k
   call get_command_argument(1, device)
   x = reshape([(sin(0.1_sp*real(i, sp)), i=1, size(x))], shape(x))
   target = 0.5_sp*cos(x)

   call net%update(sgd(lr=0.1_dp), error)
   call say("not built")
   call net%add("conv1", conv2d(1, 4, kernel_size=3, padding=1))
   call net%add("act", layer("silu"))
   call net%add("drop", layer("dropout", "p=0.25"))
   call net%add("conv2", conv2d(4, 1, kernel_size=3, padding=1))
   call net%build(error, device=trim(device), keep_activations=keep_needed, seed=3_i8)
   call stop_at()
   allocate (vector(net%parameter_count()), part(net%parameter_count()), before(net%parameter_count()))
   print "(a, i0)", "numbers ", size(vector)
   call net%update(sgd(lr=0.1_dp), error)
   call say("no gradients")
   call net%set_gradients(vector(:5), error)
   call say("another shape")
   call net%get_gradients(wide, error)
   call say("another kind")

   ! The same steps, in parts and whole: the masks of a dropout, too
   other = net
   do k = 1, 3
      call net%compute_gradients(x, target, loss, error)
      call stop_at()
      call net%get_gradients(vector, error)
      call stop_at()
      before = vector
      vector = 0.0_sp
      call net%set_gradients(vector, error)
      call net%get_gradients(part, error)
      if (k == 1) print "(a, es9.2)", "set ", maxval(abs(part))
      call net%set_gradients(before, error)
      call net%update(adam(lr=0.01_dp), error)
      call stop_at()
      call other%step(x, target, adam(lr=0.01_dp), loss_other, error)
      call stop_at()
   end do
   print "(a, es9.2, a, i0)", "loss ", abs(loss - loss_other), " steps ", net%steps() - other%steps()
   call other%get_gradient("conv1.weight", w, error)
   call other%get_gradient("conv1.bias", b, error)
   print "(a, 2es9.2)", "order ", maxval(abs(reshape(w, [36]) - before(:36))), maxval(abs(b - before(37:40)))
   call net%get("conv1.weight", w, error)
   vector(:36) = reshape(w, [36])
   call other%get("conv1.weight", w, error)
   print "(a, es9.2)", "weights ", maxval(abs(reshape(w, [36]) - vector(:36)))
   call net%update(adam(), error)
   call say("used up")

   ! The mean over all images is that over their parts, each by its size
   call net%set_training(.false., error)
   call net%compute_gradients(x, target, loss, error)
   call net%get_gradients(before, error)
   call net%compute_gradients(x(:, :, :, :2), target(:, :, :, :2), loss_other, error)
   call net%get_gradients(part, error)
   vector = part*2.0_sp/6.0_sp
   loss = loss - loss_other*2.0_dp/6.0_dp
   call net%compute_gradients(x(:, :, :, 3:), target(:, :, :, 3:), loss_other, error)
   call net%get_gradients(part, error)
   call stop_at()
   vector = vector + part*4.0_sp/6.0_sp
   loss = loss - loss_other*4.0_dp/6.0_dp
   print "(a, 2l2)", "parts ", abs(loss) < 1.0e-6_dp, maxval(abs(vector - before)) < 1.0e-6_sp*maxval(abs(before))
   target(2, 2, 1, 1) = ieee_value(1.0_sp, ieee_quiet_nan)
   call net%compute_gradients(x, target, loss, error)
   if (allocated(error)) print "(a, l2)", "diverged", error%diverged
   call say("not a number")
   call net%update(adam(), error)
   call say("none")
   deallocate (vector, part, before)

contains

   subroutine say(what)
      !> What was tried
      character(len=*), intent(in) :: what
      if (.not. allocated(error)) error stop "no error"
      print "(a)", what//": "//error%message
      deallocate (error)
   end subroutine say

   subroutine stop_at()
      if (.not. allocated(error)) return
      print "(a)", error%message
      error stop 1
   end subroutine stop_at
end program gradients
