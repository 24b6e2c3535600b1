! SPDX-License-Identifier: MIT
!> Integers and logicals of 8, 16, 32 and 64 bits mean the same, in every argument that takes them.
program kinds
   use, intrinsic :: iso_fortran_env, only : int8, int16, int32, int64, logical_kinds
   use cnn
   implicit none
   integer, parameter :: truth8 = logical_kinds(1), truth16 = logical_kinds(2), truth32 = logical_kinds(3), &
      & truth64 = logical_kinds(4)
   type(network_type) :: net(4)
   type(error_type), allocatable :: error
   real(sp) :: x(6, 5, 2, 3), target(6, 5, 2, 3), y(6, 5, 2, 3, 4), w(3, 3, 1, 4, 4)
   real(dp) :: loss
   call random_number(x)
   target = 0.5_sp
   y = 0.0_sp

   call net(1)%add("conv", conv2d(2_int8, 4_int8, 3_int8, 1_int8, 1_int8, 1_int8, 2_int8, .false._truth8))
   call net(1)%add("norm", batch_norm2d(4_int8))
   call net(1)%add("pool", max_pool2d(1_int8, 1_int8))
   call net(1)%add("last", conv2d(4_int8, 2_int8, 1_int8))
   call net(1)%build(error, seed=5_int8, keep_activations=int(keep_all, int8))
   call learn(1, sgd(lr=0.1_dp, momentum=0.9_dp, nesterov=.true._truth8))
   call net(1)%freeze("conv.weight", error, .true._truth8)
   call compute(1)
   call net(1)%set_training(.false._truth8, error)
   call compute(1)

   call net(2)%add("conv", conv2d(2_int16, 4_int16, 3_int16, 1_int16, 1_int16, 1_int16, 2_int16, .false._truth16))
   call net(2)%add("norm", batch_norm2d(4_int16))
   call net(2)%add("pool", max_pool2d(1_int16, 1_int16))
   call net(2)%add("last", conv2d(4_int16, 2_int16, 1_int16))
   call net(2)%build(error, seed=5_int16, keep_activations=int(keep_all, int16))
   call learn(2, sgd(lr=0.1_dp, momentum=0.9_dp, nesterov=.true._truth16))
   call net(2)%freeze("conv.weight", error, .true._truth16)
   call compute(2)
   call net(2)%set_training(.false._truth16, error)
   call compute(2)

   call net(3)%add("conv", conv2d(2_int32, 4_int32, 3_int32, 1_int32, 1_int32, 1_int32, 2_int32, .false._truth32))
   call net(3)%add("norm", batch_norm2d(4_int32))
   call net(3)%add("pool", max_pool2d(1_int32, 1_int32))
   call net(3)%add("last", conv2d(4_int32, 2_int32, 1_int32))
   call net(3)%build(error, seed=5_int32, keep_activations=int(keep_all, int32))
   call learn(3, sgd(lr=0.1_dp, momentum=0.9_dp, nesterov=.true._truth32))
   call net(3)%freeze("conv.weight", error, .true._truth32)
   call compute(3)
   call net(3)%set_training(.false._truth32, error)
   call compute(3)

   call net(4)%add("conv", conv2d(2_int64, 4_int64, 3_int64, 1_int64, 1_int64, 1_int64, 2_int64, .false._truth64))
   call net(4)%add("norm", batch_norm2d(4_int64))
   call net(4)%add("pool", max_pool2d(1_int64, 1_int64))
   call net(4)%add("last", conv2d(4_int64, 2_int64, 1_int64))
   call net(4)%build(error, seed=5_int64, keep_activations=int(keep_all, int64))
   call learn(4, sgd(lr=0.1_dp, momentum=0.9_dp, nesterov=.true._truth64))
   call net(4)%freeze("conv.weight", error, .true._truth64)
   call compute(4)
   call net(4)%set_training(.false._truth64, error)
   call compute(4)

   print "(a, l2)", "outputs", all(abs(y - spread(y(:, :, :, :, 1), 5, 4)) <= 0.0_sp)
   print "(a, l2)", "weights", all(abs(w - spread(w(:, :, :, :, 1), 5, 4)) <= 0.0_sp)

contains

   !> Two steps, so that the momentum counts
   subroutine learn(number, optimizer)
      !> Of the network
      integer, intent(in) :: number
      !> With Nesterov's momentum
      class(optimizer_type), intent(in) :: optimizer
      integer :: step
      call check()
      do step = 1, 2
         call net(number)%step(x, target, optimizer, loss, error)
         call check()
      end do
      call net(number)%get("conv.weight", w(:, :, :, :, number), error)
      call check()
   end subroutine learn

   !> Other outputs than in the mode before, and a step that leaves the frozen weight as it is
   subroutine compute(number)
      !> Of the network
      integer, intent(in) :: number
      real(sp) :: before(6, 5, 2, 3), kept(3, 3, 1, 4)
      call check()
      before = y(:, :, :, :, number)
      call net(number)%forward(x, y(:, :, :, :, number), error)
      call check()
      if (all(abs(before - y(:, :, :, :, number)) <= 0.0_sp)) error stop "both modes compute the same"
      call net(number)%step(x, target, sgd(lr=0.1_dp, weight_decay=0.5_dp), loss, error)
      call check()
      call net(number)%get("conv.weight", kept, error)
      call check()
      if (any(abs(kept - w(:, :, :, :, number)) > 0.0_sp)) error stop "the frozen weight has changed"
   end subroutine compute

   subroutine check()
      if (allocated(error)) error stop error%message
   end subroutine check
end program kinds
