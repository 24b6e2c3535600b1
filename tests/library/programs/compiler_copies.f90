! SPDX-License-Identifier: MIT
!> Copies that the compiler makes on its own, bit by bit: a network answers as what it was copied from, or says why not.
program compiler_copies
   use cnn
   implicit none
   type :: model_type
      type(network_type) :: net
      integer :: id = 0
   end type model_type
   type :: own_type
      type(network_type), allocatable :: net
   end type own_type
   real(sp) :: x(8, 8, 1, 1)
   call fill(x)
   call assign_elements()
   call assign_types()
   call copy_in_threads()
   call refuse()
   call return_memory()

contains

   subroutine fill(x)
      !> Numbers that are not alike
      real(sp), intent(out) :: x(:, :, :, :)
      integer :: i
      x = reshape([(sin(0.3_sp*real(i, sp)), i=1, size(x))], shape(x))
   end subroutine fill

   subroutine make(net, seed, channels)
      !> Is built
      type(network_type), intent(inout) :: net
      !> Of its parameters
      integer, intent(in) :: seed
      !> Within it
      integer, intent(in), optional :: channels
      type(error_type), allocatable :: error
      integer :: inside
      inside = 2
      if (present(channels)) inside = channels
      call net%add("a", conv2d(1, inside, kernel_size=3))
      call net%add("b", conv2d(inside, 1, kernel_size=3))
      call net%build(error, seed=int(seed, i8))
      if (allocated(error)) error stop error%message
   end subroutine make

   function made(seed, channels) result(net)
      !> Of its parameters
      integer, intent(in) :: seed
      !> Within it
      integer, intent(in), optional :: channels
      type(network_type) :: net
      call make(net, seed, channels)
   end function made

   function made_model(seed) result(model)
      !> Of its parameters
      integer, intent(in) :: seed
      type(model_type) :: model
      model%id = seed
      call make(model%net, seed)
   end function made_model

   !> What the network of this seed has for the first number
   real(sp) function expected(seed)
      !> Of its parameters
      integer, intent(in) :: seed
      type(network_type) :: net
      call make(net, seed)
      expected = answer(net)
   end function expected

   real(sp) function answer(net)
      !> That is built
      type(network_type), intent(inout) :: net
      type(error_type), allocatable :: error
      real(sp) :: y(4, 4, 1, 1)
      y = 0.0_sp
      call net%forward(x, y, error)
      if (allocated(error)) error stop error%message
      answer = y(1, 1, 1, 1)
   end function answer

   subroutine say(what, nets, seeds)
      !> What was tried
      character(len=*), intent(in) :: what
      !> What has come of it
      type(network_type), intent(in) :: nets(:)
      !> Which they should be
      integer, intent(in) :: seeds(:)
      type(network_type) :: net
      real(sp) :: difference
      logical :: good
      integer :: i
      good = size(nets) == size(seeds)
      do i = 1, size(nets)
         net = nets(i)
         difference = answer(net)
         difference = difference - expected(seeds(i))
         good = good .and. abs(difference) <= 0.0_sp
      end do
      print "(a, 1x, l1)", what, good
   end subroutine say

   subroutine assign_elements()
      type(network_type) :: f(3), none
      integer :: i
      do i = 1, 3
         call make(f(i), i)
      end do
      f(1) = f(1)
      call say("itself", f, [1, 2, 3])
      f(2) = (f(2))
      call say("in brackets", f, [1, 2, 3])
      f = f(3:1:-1)
      call say("reversed", f, [3, 2, 1])
      f = cshift(f, 1)
      call say("shifted", f, [2, 1, 3])
      f = f([3, 1, 2])
      call say("by a list", f, [3, 2, 1])
      f(2) = none
      f(:2) = f(2:1:-1)
      call make(f(1), 7)
      call say("empty", f, [7, 3, 1])
      f(1) = made(8)
      f(2) = made(9)
      call say("result", f, [8, 9, 1])
   end subroutine assign_elements

   subroutine assign_types()
      type(model_type) :: a, b, models(2), more(2)
      type(own_type) :: own, other
      type(network_type), allocatable :: nets(:)
      type(error_type), allocatable :: error
      real(sp) :: right, first, second
      real(dp) :: loss
      call make(a%net, 1)
      b = a
      call say("component", [b%net], [1])
      call b%net%step(x, x(:4, :4, :, :), sgd(lr=0.5_dp), loss, error)
      right = expected(1)
      first = answer(a%net)
      second = answer(b%net)
      print "(a, 1x, l1)", "learns apart", abs(first - right) <= 0.0_sp .and. abs(second - right) > 0.0_sp
      a = made_model(2)
      b = made_model(3)
      models = [a, b]
      call say("result with a component", [a%net, b%net], [2, 3])
      allocate (own%net)
      call make(own%net, 4)
      other = own
      call say("allocated", [other%net, own%net], [4, 4])
      allocate (nets, source=[a%net, b%net, own%net])
      call say("constructor", nets, [2, 3, 4])
      more = models(2:1:-1)
      call say("array of types", [more(1)%net, more(2)%net, models(1)%net], [3, 2, 2])
   end subroutine assign_types

   subroutine copy_in_threads()
      type(network_type) :: net
      real(sp) :: answers(8)
      real(sp) :: right
      integer :: i
      call make(net, 5)
      right = expected(5)
      !$omp parallel do firstprivate(net)
      do i = 1, 8
         answers(i) = answer(net)
      end do
      !$omp end parallel do
      print "(a, 1x, l1)", "each thread", all(abs(answers - right) <= 0.0_sp)
   end subroutine copy_in_threads

   subroutine refuse()
      type(own_type), allocatable :: own
      type(own_type) :: other
      type(error_type), allocatable :: error
      real(sp) :: y(4, 4, 1, 1)
      real(dp) :: loss
      allocate (own)
      allocate (own%net)
      call make(own%net, 6)
      other = own
      call own%net%step(x, y, sgd(lr=0.5_dp), loss, error)
      call other%net%forward(x, y, error)
      print "(a)", "changed: "//error%message
      other = own
      deallocate (own)
      call other%net%forward(x, y, error)
      print "(a)", "gone: "//error%message
   end subroutine refuse

   !> Of networks of 0.6 MB each
   subroutine return_memory()
      type(network_type) :: net
      type(model_type) :: model
      integer :: i, before
      before = 0
      do i = 1, 200
         net = made(i, 8192)
         model%net = made(i, 8192)
         if (i == 20) before = megabytes()
      end do
      print "(a, 1x, l1)", "memory", megabytes() - before < 50
   end subroutine return_memory

   integer function megabytes()
      character(len=80) :: line
      integer :: unit, status
      megabytes = 0
      open (newunit=unit, file="/proc/self/status", iostat=status)
      do while (status == 0)
         read (unit, "(a)", iostat=status) line
         if (status == 0 .and. line(:6) == "VmRSS:") read (line(7:), *) megabytes
      end do
      close (unit)
      megabytes = megabytes/1000
   end function megabytes

end program compiler_copies
