! SPDX-License-Identifier: MIT
!> What the programs share: words of the command line, and one way to end.
module cnn_app_main_program
   use, intrinsic :: iso_c_binding, only : c_int
   use, intrinsic :: iso_fortran_env, only : error_unit
   use cnn_core_error, only : error_type
   use cnn_core_version, only : version
   use cnn_devices, only : close_cuda_devices
   implicit none
   private

   public :: answered, argument, end_program

   interface
      !> C <stdlib.h>; `stop 2` would print a line of its own
      subroutine c_exit(status) bind(C, name="exit")
         import :: c_int
         implicit none
         !> Exit status: 0 done, 2 bad input or usage
         integer(c_int), value :: status
      end subroutine c_exit
   end interface

contains

   !> An argument of the command line; empty when there is none
   function argument(i) result(text)
      !> Position, from 1
      integer, intent(in) :: i
      character(len=:), allocatable :: text
      integer :: length
      call get_command_argument(i, length=length)
      allocate (character(len=length) :: text)
      call get_command_argument(i, text(:))
   end function argument

   !> Print the usage or the version, where an argument asks for it; false where none does
   function answered(name, usage) result(asked)
      !> Name of the program
      character(len=*), intent(in) :: name
      !> What --help prints
      character(len=*), intent(in) :: usage
      logical :: asked
      integer :: i
      asked = .false.
      do i = 1, command_argument_count()
         select case (argument(i))
          case ("--help", "-h")
            write (*, "(a)") usage
          case ("--version")
            write (*, "(a)") name//" "//version
          case default
            cycle
         end select
         asked = .true.
         return
      end do
   end function answered

   !> Close the devices; say what went wrong, and then end with status 2
   subroutine end_program(name, error)
      !> Name of the program
      character(len=*), intent(in) :: name
      !> What went wrong, where something did
      type(error_type), allocatable, intent(in) :: error
      type(error_type), allocatable :: ignored
      ! The result is written: what a device does not take back goes with the process
      call close_cuda_devices(ignored)
      if (.not. allocated(error)) return
      write (error_unit, "(a)") name//": "//error%message
      call c_exit(2_c_int)
   end subroutine end_program

end module cnn_app_main_program
