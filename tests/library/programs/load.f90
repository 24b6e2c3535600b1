! SPDX-License-Identifier: MIT
!> A network from the file that the argument names: prints what is wrong with it.
program load
   use cnn
   implicit none
   type(network_type) :: net
   type(error_type), allocatable :: error
   character(len=256) :: path
   call get_command_argument(1, path)
   call net%load(trim(path), error)
   if (allocated(error)) then
      print "(a)", error%message
   else
      print "(a)", "good"
   end if
end program load
