! SPDX-License-Identifier: MIT
!> Integers of two kinds as input and target, beside the same numbers as real ones: what must be 0, and what is wrong in
!> words.
program whole_numbers
   use, intrinsic :: iso_fortran_env, only : int32, int64
   use cnn
   implicit none
   integer(int32) :: words(4, 6), classes(4, 5, 3)
   real(sp) :: y(4, 5, 3), y_(4, 5, 3), dy(4, 5, 3)
   real(dp) :: loss(6), wide(4, 5, 3), wide_(4, 5, 3)
   real(sp) :: gradient(8, 11), gradient_(8, 11)
   type(network_type) :: net, other, double
   type(error_type), allocatable :: error
   type(inputs_type) :: inputs
   real(sp) :: packed(5, 3)
   character(len=64) :: device
   integer :: i
   integer(int64), allocatable :: missing(:)
   call get_command_argument(1, device)
   words = reshape([(mod(7*i, 11), i=1, 24)], [4, 6])
   classes = 0
   do i = 1, 12
      classes(mod(i, 4) + 1, mod(3*i, 5) + 1, mod(i, 3) + 1) = 1
   end do
   dy = reshape([(real(mod(7*i, 13) - 6, sp), i=1, 60)], [4, 5, 3])
   call make(net, "float32")
   call make(double, "float64")
   other = net

   ! What has gaps, as every second column, is read, too
   call net%forward(words(:, ::2), y, error)
   call other%forward(real(words(:, ::2), sp), y_, error)
   call say("forward of int32", maxval(abs(y - y_)))
   call net%forward(int(words(:, ::2), int64), y, error)
   call say("forward of int64", maxval(abs(y - y_)))
   call double%forward(words(:, ::2), wide, error)
   call double%forward(real(words(:, ::2), dp), wide_, error)
   call say("forward of float64", real(maxval(abs(wide - wide_)), sp))

   call net%evaluate(words(:, ::2), classes, loss(1), error)
   call net%evaluate(words(:, ::2), real(classes, sp), loss(2), error)
   call net%evaluate(int(words(:, ::2), int64), int(classes, int64), loss(3), error)
   call net%evaluate(real(words(:, ::2), sp), int(classes, int64), loss(4), error)
   call net%compute_gradients(words(:, ::2), classes, loss(5), error)
   call net%step(words(:, ::2), int(classes, int32), sgd(lr=0.5_dp), loss(6), error)
   call other%step(real(words(:, ::2), sp), real(classes, sp), sgd(lr=0.5_dp), loss(2), error)
   call say("losses", real(maxval(abs(loss - loss(1))), sp))
   call net%get("table.weight", gradient, error)
   call other%get("table.weight", gradient_, error)
   call say("weights after a step", maxval(abs(gradient - gradient_)))

   call net%pull_back(words(:, ::2), dy, error)
   call net%get_gradient("table.weight", gradient, error)
   call other%pull_back(real(words(:, ::2), sp), dy, error)
   call other%get_gradient("table.weight", gradient_, error)
   call say("pulled back", maxval(abs(gradient - gradient_)))
   print "(a, l2)", "gradients there:", any(gradient > 0.0_sp)

   call net%forward([2**24, 2**24 + 1], y, error)
   print "(a)", error%message
   call double%forward([-2_int64**53 - 1_int64], wide, error)
   print "(a)", error%message
   ! On a device nobody waits for such a number
   if (device == "cpu") then
      call net%forward(words(:, ::2) + 5, y, error)
      print "(a)", error%message
   end if

   call inputs%add("word")
   call inputs%add("place", [2, 2])
   call inputs%pack("word", [3, 1, 2], packed, error)
   call inputs%pack("place", reshape([(int(i, int64), i=1, 12)], [2, 2, 3]), packed, error)
   call say("packed", maxval(abs(packed - reshape(real([3, 1, 2, 3, 4, 1, 5, 6, 7, 8, 2, 9, 10, 11, 12], sp), [5, 3]))))
   call inputs%pack("word", [3, 1, 2**24 + 1], packed, error)
   print "(a)", error%message
   ! gfortran warns of bounds that were never set
   allocate (missing(0))
   deallocate (missing)
   call inputs%pack("word", missing, packed, error)
   print "(a)", error%message
   call net%forward(missing, y, error)
   print "(a)", error%message
   call inputs%pack("word", [3, 1], packed, error)
   print "(a)", error%message
   deallocate (error)

contains

   !> A table of rows, and a layer behind it
   subroutine make(net, precision)
      !> Is built
      type(network_type), intent(inout) :: net
      !> Of its numbers
      character(len=*), intent(in) :: precision
      call net%add("table", embedding(11, 8))
      call net%add("logits", linear(8, 5))
      call net%add("by_class", layer("permute", "dims=0,2,1"))
      call net%build(error, loss="cross_entropy class_indices=1", precision=precision, keep_activations=keep_all, &
         & device=trim(device))
      if (allocated(error)) error stop error%message
   end subroutine make

   !> One line
   subroutine say(name, difference)
      !> Of the comparison
      character(len=*), intent(in) :: name
      !> That must be 0
      real(sp), intent(in) :: difference
      if (allocated(error)) error stop error%message
      print "(2a, es9.1)", name, ":", difference
   end subroutine say

end program whole_numbers
