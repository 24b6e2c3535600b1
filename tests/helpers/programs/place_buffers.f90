! SPDX-License-Identifier: MIT
!> Reads buffers, a line of bytes, two first times and two last times each, and writes their offsets, and then the bytes of all together.
program place_buffers
   use, intrinsic :: iso_fortran_env, only : int64
   use cnn_model_memory_plan, only : buffer_type, place
   implicit none
   type(buffer_type), allocatable :: buffers(:)
   integer(int64) :: bytes
   integer :: i, n
   read (*, *) n
   allocate (buffers(n))
   do i = 1, n
      read (*, *) buffers(i)%bytes, buffers(i)%first, buffers(i)%last
   end do
   call place(buffers, bytes)
   write (*, '(i0)') buffers%offset, bytes
end program place_buffers
