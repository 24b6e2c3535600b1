! SPDX-License-Identifier: MIT
!> A small GPT of bytes, which gpt.py has written, learns a text, and goes on with it: gpt TEXT [STEPS]
program gpt
   use cnn, only : adam_type, adamw, dp, error_type, i8, network_type, sp
   implicit none
   !> Bytes that it sees, that there are, and sequences of a batch
   integer, parameter :: length = 64, bytes = 256, batch = 8
   type(network_type) :: net
   type(error_type), allocatable :: error
   type(adam_type) :: optimizer
   integer, allocatable :: text(:), x(:, :)
   real(sp), allocatable :: target(:, :, :)
   character(len=1024) :: path
   character(len=16) :: argument
   real(dp) :: loss
   integer :: step, steps
   call get_command_argument(1, path)
   if (path == "") error stop "usage: gpt TEXT [STEPS]"
   call read_text(trim(path), text)
   if (size(text) < length + 2) error stop "the text is too short"
   steps = 200
   call get_command_argument(2, argument)
   if (argument /= "") read (argument, *) steps
   allocate (x(length, batch), target(length, bytes, batch))
   optimizer = adamw(lr=1.0e-3_dp, weight_decay=0.01_dp)
   call net%load("gpt.h5", error)
   do step = 0, steps - 1
      if (allocated(error)) error stop error%message
      call read_batch(step, x, target)
      call net%step(x, target, optimizer, loss, error)
      if (mod(step, 20) == 0 .or. step == steps - 1) print "(a, i4, a, f8.6)", "step ", step, "  loss ", loss
   end do
   if (.not. allocated(error)) call net%set_training(.false., error)
   if (allocated(error)) error stop error%message
   call go_on(text(:length))

contains

   !> The bytes of a file
   subroutine read_text(path, text)
      !> That there is
      character(len=*), intent(in) :: path
      !> From 0 to 255
      integer, allocatable, intent(out) :: text(:)
      character(len=:), allocatable :: held
      integer(i8) :: size_of
      integer :: i, unit
      open (newunit=unit, file=path, access="stream", form="unformatted", status="old", action="read")
      inquire (unit=unit, size=size_of)
      allocate (character(len=size_of) :: held)
      read (unit) held
      close (unit)
      text = [(ichar(held(i:i)), i=1, len(held))]
   end subroutine read_text

   !> Parts of the text that follow from the number of the step, and the bytes behind each of theirs
   subroutine read_batch(step, x, target)
      !> Its number, from 0
      integer, intent(in) :: step
      !> Bytes
      integer, intent(out) :: x(:, :)
      !> 1 for the byte that follows, 0 for all others
      real(sp), intent(out) :: target(:, :, :)
      integer :: begin, i, j
      target = 0.0_sp
      do i = 1, batch
         begin = int(mod(7919_i8*(int(step, i8)*batch + i - 1) + 12345_i8, int(size(text) - length - 1, i8)))
         x(:, i) = text(begin + 1:begin + length)
         do j = 1, length
            target(j, text(begin + j + 1) + 1, i) = 1.0_sp
         end do
      end do
   end subroutine read_batch

   !> Print the bytes that are the most likely ones behind others
   subroutine go_on(begin)
      !> As many as it sees
      integer, intent(in) :: begin(:)
      real(sp) :: logits(length, bytes, 1)
      integer :: i, next, seen(length, 1)
      seen(:, 1) = begin
      do i = 1, 40
         call net%forward(seen, logits, error)
         if (allocated(error)) error stop error%message
         next = maxloc(logits(length, :, 1), 1) - 1
         write (*, "(a)", advance="no") char(next)
         seen(:, 1) = [seen(2:, 1), next]
      end do
      print "(a)", ""
   end subroutine go_on
end program gpt
