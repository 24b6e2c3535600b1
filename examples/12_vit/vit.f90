! SPDX-License-Identifier: MIT
!> A Vision Transformer, which vit.py has written, learns to tell patterns apart: vit [STEPS]
program vit
   use cnn, only : adam_type, adamw, dp, error_type, i8, network_type, sp
   implicit none
   !> Pixels of an edge, classes, images of a batch and of the test
   integer, parameter :: edge = 16, classes = 4, batch = 32, unseen = 400
   type(network_type) :: net
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   real(sp) :: x(edge, edge, 1, batch), target(classes, batch)
   character(len=16) :: argument
   real(dp) :: loss
   integer :: i, step, steps
   steps = 200
   call get_command_argument(1, argument)
   if (argument /= "") read (argument, *) steps
   optimizer = adamw(lr=2.0e-3_dp, weight_decay=0.01_dp)
   call net%load("vit.h5", error)
   do step = 0, steps - 1
      if (allocated(error)) error stop error%message
      target = 0.0_sp
      do i = 1, batch
         call draw(batch*step + i - 1, x(:, :, 1, i))
         target(1 + mod(batch*step + i - 1, classes), i) = 1.0_sp
      end do
      call net%step(x, target, optimizer, loss, error)
      if (mod(step, 20) == 0 .or. step == steps - 1) print "(a, i4, a, f8.6)", "step ", step, "  loss ", loss
   end do
   if (.not. allocated(error)) call net%set_training(.false., error)
   if (allocated(error)) error stop error%message
   call classify(1000000)

contains

   !> A number from 0 to 2**31 - 2 that looks random, made of another
   elemental function mixed(number) result(found)
      !> At least 0
      integer(i8), intent(in) :: number
      integer(i8) :: found
      integer :: i
      found = number
      do i = 1, 3
         found = mod(found*found + 12345_i8, 2147483647_i8)
      end do
   end function mixed

   !> Stripes of three directions, or rings, with noise
   pure subroutine draw(number, image)
      !> Its number, from 0, from which the class follows
      integer, intent(in) :: number
      !> Pixels
      real(sp), intent(out) :: image(:, :)
      integer :: i, p(0:3), place, x, y
      integer(i8) :: noise
      p = int(mixed([(4_i8*number + i, i=0, 3)]))
      do y = 0, edge - 1
         do x = 0, edge - 1
            select case (mod(number, classes))
            case (0)
               place = x
            case (1)
               place = y
            case (2)
               place = x + y
            case default
               place = int(sqrt(real((x - mod(p(1), edge))**2 + (y - mod(p(2), edge))**2, dp)))
            end select
            noise = mixed(int(edge*edge, i8)*number + edge*y + x)
            image(x + 1, y + 1) = real(mod((place + mod(p(0), 6))/(2 + mod(p(3), 2)), 2) &
               + (noise/2147483647.0_dp*2.0_dp - 1.0_dp), sp)
         end do
      end do
   end subroutine draw

   !> The accuracy on images that it has not seen
   subroutine classify(first)
      !> The number of the first
      integer, intent(in) :: first
      real(sp), allocatable :: images(:, :, :, :), logits(:, :)
      integer :: i, right
      allocate (images(edge, edge, 1, unseen), logits(classes, unseen))
      do i = 1, unseen
         call draw(first + i - 1, images(:, :, 1, i))
      end do
      call net%forward(images, logits, error)
      if (allocated(error)) error stop error%message
      right = count([(maxloc(logits(:, i), 1) == 1 + mod(first + i - 1, classes), i=1, unseen)])
      print "(a, i0, a, i0, a)", "right on ", right, " of ", unseen, " images that it has not seen"
   end subroutine classify
end program vit
