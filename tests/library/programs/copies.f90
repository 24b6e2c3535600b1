! SPDX-License-Identifier: MIT
!> Networks are values: a copy learns by itself, arrays of networks, networks that go out of scope, a network built
!> twice; and networks in several threads. Prints what must be 0, and sizes that must not be.
program copies
   use, intrinsic :: iso_fortran_env, only : output_unit
   use cnn
   implicit none
   integer, parameter :: runs = 8
   real(dp) :: losses(runs)
   integer :: i
   call learn_apart()
   call learn_everything()
   !$omp parallel do
   do i = 1, runs
      call learn(losses(i))
   end do
   !$omp end parallel do
   write (output_unit, "(a, es9.2)") "threads ", maxval(losses) - minval(losses)

contains

   subroutine make(net, error)
      !> Is built
      type(network_type), intent(inout) :: net
      !> None
      type(error_type), allocatable, intent(out) :: error
      call net%add("a", conv2d(1, 8, kernel_size=3, padding=1))
      call net%add("b", layer("silu"))
      call net%add("c", conv2d(8, 1, kernel_size=3, padding=1))
      call net%build(error, seed=5_i8)
   end subroutine make

   subroutine fill(x)
      !> Numbers that are not alike
      real(sp), intent(out) :: x(:, :, :, :)
      integer :: i
      x = reshape([(sin(0.1_sp*real(i, sp)), i=1, size(x))], shape(x))
   end subroutine fill

   subroutine learn_apart()
      type(network_type) :: net, copy, none
      type(network_type), allocatable :: others(:)
      type(error_type), allocatable :: error
      real(sp) :: x(16, 12, 1, 2), w(3, 3, 1, 8), before(3, 3, 1, 8)
      real(dp) :: loss, loss_copy
      integer :: k
      call fill(x)
      call make(net, error)
      do k = 1, 3
         call net%step(x, 0.5_sp*x, adam(), loss, error)
      end do
      call net%freeze("c.bias", error)
      copy = net
      call copy%get("a.weight", before, error)
      call net%step(x, 0.5_sp*x, adam(), loss, error)
      call copy%get("a.weight", w, error)
      print "(a, es9.2)", "untouched ", maxval(abs(w - before))
      call copy%step(x, 0.5_sp*x, adam(), loss_copy, error)
      print "(a, es9.2, a, i0)", "copy ", abs(loss - loss_copy), " steps ", copy%steps() - net%steps()
      call net%get("a.weight", before, error)
      call copy%get("a.weight", w, error)
      print "(a, es9.2)", "weights ", maxval(abs(w - before))
      copy = none
      call copy%step(x, x, adam(), loss, error)
      print "(a)", error%message
      call net%build(error, seed=5_i8)
      call make(copy, error)
      call net%step(x, x, adam(), loss, error)
      call copy%step(x, x, adam(), loss_copy, error)
      print "(a, es9.2)", "built twice ", abs(loss - loss_copy)
      if (allocated(error)) print "(a)", error%message
      allocate (others(1), source=[net])
      call others(1)%step(x, x, adam(), loss, error)
      call net%step(x, x, adam(), loss_copy, error)
      print "(a, es9.2)", "of its own ", abs(loss - loss_copy)
   end subroutine learn_apart

   !> Branches, state, masks, an array of networks, and no input that is contiguous
   subroutine learn_everything()
      type(network_type) :: nets(2), resumed
      type(error_type), allocatable :: error
      type(name_type), allocatable :: names(:)
      real(sp) :: x(16, 16, 2, 6), t(3, 3), y(3, 3), mean(8)
      real(dp) :: loss, first, loss_copy, resumed_loss
      integer :: k
      call fill(x)
      t = 0.0_sp
      first = 0.0_dp
      do k = 1, 3
         t(k, k) = 1.0_sp
      end do
      associate (net => nets(1))
         call net%add("c1", conv2d(2, 8, kernel_size=3, padding=1, groups=2, bias=.false.))
         call net%add("n1", batch_norm2d(8, momentum=0.2_dp))
         call net%add("r1", layer("leaky_relu", "negative_slope=0.2"))
         call net%add("p1", max_pool2d(2))
         call net%add("u", conv_transpose2d(8, 8, kernel_size=2, stride=2))
         call net%add("cat", layer("concat"), inputs="u,r1")
         call net%add("d", layer("dropout", "p=0.25"))
         call net%add("a", avg_pool2d(4))
         call net%add("f", layer("flatten"))
         call net%add("l", linear(256, 3))
         call net%build(error, loss="cross_entropy", keep_activations=keep_needed, initialization="he")
         do k = 1, 40
            call net%step(x(:, :, :, ::2), t, adamw(lr=0.003_dp), loss, error)
            if (k == 1) first = loss
         end do
      end associate
      print "(a, l1)", "learns ", loss < 0.7_dp*first
      call nets(1)%save("dropout.h5", adamw(lr=0.003_dp), error)
      nets(2) = nets(1)
      call resumed%load("dropout.h5", error, keep_activations=keep_needed)
      call resumed%step(x(:, :, :, ::2), t, adamw(lr=0.003_dp), resumed_loss, error)
      call nets(1)%step(x(:, :, :, ::2), t, adamw(lr=0.003_dp), loss, error)
      print "(a, es9.2)", "resumed ", abs(loss - resumed_loss)
      call nets(2)%step(x(:, :, :, ::2), t, adamw(lr=0.003_dp), loss_copy, error)
      print "(a, es9.2)", "masks ", abs(loss - loss_copy)
      call nets(1)%set_training(.false., error)
      nets(2) = nets(1)
      call nets(1)%forward(x(:, :, :, ::2), y, error)
      call nets(2)%forward(x(:, :, :, ::2), t, error)
      print "(a, es9.2)", "evaluation ", maxval(abs(t - y))
      call nets(1)%get("n1.running_mean", mean, error)
      print "(a, l1)", "state ", any(abs(mean) > 0.0_sp)
      call nets(1)%names(names, error)
      print "(*(a, :, 1x))", (names(k)%text, k=1, size(names))
      if (allocated(error)) print "(a)", error%message
   end subroutine learn_everything

   subroutine learn(loss)
      !> After some steps
      real(dp), intent(out) :: loss
      type(network_type) :: net, copy
      type(error_type), allocatable :: error
      real(sp) :: x(32, 32, 1, 2)
      integer :: k
      call fill(x)
      call make(net, error)
      do k = 1, 10
         call net%step(x, 0.5_sp*x, adam(lr=0.01_dp), loss, error)
         copy = net
         net = copy
      end do
      if (allocated(error)) loss = huge(loss)
   end subroutine learn
end program copies
