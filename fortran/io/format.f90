! SPDX-License-Identifier: MIT
!> Names of an exchange file that its reader and its writer share; docs/exchange-file.md describes all.
module cnn_io_format
   use cnn_core_text, only : to_text
   implicit none
   private

   public :: momenta_path, optimizer_path, weights_path

   character(len=*), parameter, public :: format_name = "cnn-exchange"
   !> That is written
   integer, parameter, public :: format_version = 2
   !> Where the state of operations before the first step begins
   character(len=*), parameter, public :: initial_state = "/state/"

contains

   pure function weights_path(step, layer) result(path)
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Name of the group
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)//"/weights/"//layer
   end function weights_path

   !> What the optimizer remembers before a step
   pure function optimizer_path(step, layer) result(path)
      !> Number of the step, from 0
      integer, intent(in) :: step
      !> Name of the layer
      character(len=*), intent(in) :: layer
      !> Name of the group
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)//"/optimizer/"//layer
   end function optimizer_path

   !> The same in files of version 1, which have momenta alone
   pure function momenta_path(step, layer) result(path)
      !> Number of the step in the file
      integer, intent(in) :: step
      !> The layer's name
      character(len=*), intent(in) :: layer
      !> Of its group
      character(len=:), allocatable :: path
      path = "/steps/"//to_text(step)//"/momenta/"//layer
   end function momenta_path

end module cnn_io_format
