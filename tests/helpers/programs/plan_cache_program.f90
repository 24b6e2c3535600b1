! SPDX-License-Identifier: MIT
!> The file of measured choices, without a device, for tests/cuda/test_plan_cache_file.py.
!>
!> Reads lines: `find KEY`, `keep CHOICE KEY`, `many FIRST LAST` (that many choices, with numbers as keys), `digest TEXT`,
!> `count`, `path`, `why`. Each but `keep` and `many` is answered by a line.
program plan_cache_program
   use, intrinsic :: iso_fortran_env, only : input_unit
   use cnn_core_digest, only : digest
   use cnn_core_text, only : to_text
   use cnn_cuda_plans_plan_cache, only : cache_path, count_choices, find_choice, keep_choice
   implicit none

   character(len=2000) :: line
   character(len=:), allocatable :: rest, why
   integer :: status, blank, first, last, i

   do
      read (input_unit, "(a)", iostat=status) line
      if (status /= 0) exit
      blank = index(line//" ", " ")
      rest = trim(line(blank + 1:))
      select case (line(:blank - 1))
       case ("find")
         print "(a)", find_choice(rest)
       case ("keep")
         blank = index(rest, " ")
         call keep_choice(rest(blank + 1:), rest(:blank - 1))
       case ("many")
         read (rest, *, iostat=status) first, last
         if (status /= 0) exit
         do i = first, last
            call keep_choice("key "//to_text(i), "choice:"//to_text(i))
         end do
       case ("digest")
         print "(a)", digest(rest)
       case ("count")
         print "(i0)", count_choices()
       case ("path")
         print "(a)", cache_path()
       case ("why")
         rest = cache_path(why)
         print "(a)", why
       case default
         print "(a)", "what?"
      end select
   end do

end program plan_cache_program
