! SPDX-License-Identifier: MIT
!> Find out in a child process whether the HDF5 library survives a fixture.
!>
!> A few damaged bytes in the structure of a file crash the library or lead it in a circle; neither can be caught
!> where it happens. Only the program does this, before it has threads of its own: a library does not fork.
!>
!> Source.  POSIX fork, alarm, waitpid, _exit, close.
module cnn_app_readable
   use, intrinsic :: iso_c_binding, only : c_int
   use, intrinsic :: iso_fortran_env, only : int64
   use cnn_core_error, only : error_type, fail
   use cnn_io_run_steps, only : read_all
   implicit none
   private

   public :: check_readable

   !> How long the child may be silent in any case, and how many bytes it must read in a second of more
   integer(int64), parameter :: seconds = 15, bytes_per_second = 2_int64**24

   interface
      function c_fork() result(child) bind(C, name="fork")
         import :: c_int
         implicit none
         integer(c_int) :: child
      end function c_fork

      !> The signal that comes then ends a process that does not expect it
      function c_alarm(after) result(before) bind(C, name="alarm")
         import :: c_int
         implicit none
         !> Seconds; 0 cancels the alarm
         integer(c_int), value :: after
         integer(c_int) :: before
      end function c_alarm

      function c_waitpid(child, status, options) result(found) bind(C, name="waitpid")
         import :: c_int
         implicit none
         !> Process id, as `c_fork` gave it
         integer(c_int), value :: child
         !> 0: wait until it has ended
         integer(c_int), value :: options
         !> How it ended: the signal in the low seven bits, 0 where it left by itself
         integer(c_int), intent(out) :: status
         integer(c_int) :: found
      end function c_waitpid

      function c_close(file) result(status) bind(C, name="close")
         import :: c_int
         implicit none
         !> Descriptor; 2 is standard error
         integer(c_int), value :: file
         integer(c_int) :: status
      end function c_close

      subroutine c_exit_at_once(status) bind(C, name="_exit")
         import :: c_int
         implicit none
         !> Exit status of the process
         integer(c_int), value :: status
      end subroutine c_exit_at_once
   end interface

contains

   subroutine check_readable(path, error)
      !> The fixture
      character(len=*), intent(in) :: path
      !> The library crashed on it, or did not come to an end
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: child, status, ignored
      child = c_fork()
      if (child < 0) return
      if (child == 0) then
         ! The run-time library would print where it crashed
         ignored = c_close(2_c_int)
         call renew_alarm(0_int64)
         call read_all(path, renew_alarm)
         call c_exit_at_once(0_c_int)
      end if
      ! The low seven bits are the signal that ended it
      if (c_waitpid(child, status, 0_c_int) /= child) return
      if (iand(status, 127_c_int) /= 0) call fail(error, path//": damaged, the HDF5 library crashed on it or did not &
         &come to an end")
   end subroutine check_readable

   !> The child has come to another object
   subroutine renew_alarm(bytes)
      !> That it will read at once
      integer(int64), intent(in) :: bytes
      integer(c_int) :: ignored
      ignored = c_alarm(int(min(seconds + max(bytes, 0_int64)/bytes_per_second, 100000_int64), c_int))
   end subroutine renew_alarm

end module cnn_app_readable
