! SPDX-License-Identifier: MIT
!> Which instruction set the CPU kernels use: the best that the processor has, or the one that `CNN_CPU_LEVEL` names.
!>
!> `baseline` runs on every processor that the library was built for; on x86-64 there are `avx2` (with FMA) and
!> `avx512`, too, compiled from the same source. `CNN_CPU_CAP` names the highest that this processor is said to have, so
!> that tests see what happens on one that has no more.
module cnn_cpu_instruction_sets
   use, intrinsic :: iso_c_binding, only : c_int
   use cnn_core_error, only : error_type, fail
   use cnn_cpu_kernels_levels, only : is_compiled
   implicit none
   private

   public :: choose_level, level_name

   !> Its number
   integer, parameter, public :: avx2 = 2
   character(len=8), parameter :: names(3) = [character(len=8) :: "baseline", "avx2", "avx512"]
   character(len=*), parameter :: variable = "CNN_CPU_LEVEL", cap_variable = "CNN_CPU_CAP"

   interface
      !> features.c
      function cpu_features() result(level) bind(C, name="cnn_cpu_features")
         import :: c_int
         implicit none
         integer(c_int) :: level
      end function cpu_features
   end interface

contains

   !> The level of the environment variable, or the best
   subroutine choose_level(level, error, best)
      !> Number of the instruction set, from 1
      integer, intent(out) :: level
      !> Says that the environment asks for an instruction set that is not there
      type(error_type), allocatable, intent(out) :: error
      !> The highest level that this processor has, or is said to have, and this library
      integer, intent(out), optional :: best
      integer :: cap, highest

      call read_level(cap_variable, size(names), cap, error)
      if (allocated(error)) return
      highest = findloc(is_compiled(:min(int(cpu_features()), cap)), .true., dim=1, back=.true.)
      if (present(best)) best = highest
      call read_level(variable, highest, level, error)
      if (allocated(error)) return
      if (level > highest) then
         call fail(error, variable//" is """//level_name(level)//""", but the best that this processor and this "// &
            & "build have is "//level_name(highest))
      else if (.not. is_compiled(level)) then
         call fail(error, variable//" is """//level_name(level)//""", which this build leaves out: it has the "// &
            & "instruction set of the machine alone, and the option levels=all brings all")
      end if
   end subroutine choose_level

   !> The level that an environment variable names
   subroutine read_level(name, otherwise, level, error)
      !> Of the variable
      character(len=*), intent(in) :: name
      !> The level where the variable is not set, or empty
      integer, intent(in) :: otherwise
      !> Number of the instruction set, from 1
      integer, intent(out) :: level
      !> Says that no instruction set is called so
      type(error_type), allocatable, intent(out) :: error
      character(len=32) :: wanted
      integer :: stat

      call get_environment_variable(name, wanted, status=stat)
      level = otherwise
      if (stat > 0 .or. len_trim(wanted) == 0) return
      level = findloc(names == wanted, .true., dim=1)
      if (level == 0) call fail(error, name//" is """//trim(wanted)//""", expected baseline, avx2 or avx512")
   end subroutine read_level

   pure function level_name(level) result(name)
      !> Number of the instruction set, from 1
      integer, intent(in) :: level
      character(len=:), allocatable :: name
      name = trim(names(level))
   end function level_name

end module cnn_cpu_instruction_sets
