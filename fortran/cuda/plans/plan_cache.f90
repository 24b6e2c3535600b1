! SPDX-License-Identifier: MIT
!> The file of choices that were measured, so that the next process need not measure again.
!>
!>     fortran-torch-bridge: plans of cuDNN that were measured, version 1
!>     1B2C...9F graph:07A1...3E 25,1,9,... cuDNN 91900 CUDA 13000 ... NVIDIA H200
!>
!> A line is a checksum of what follows, the choice, and all that it depends on: its key. The newest are last.
!>
!> Place.   CNN_PLAN_CACHE, a file (empty: nothing is kept); else cudnn-plans.txt in the folder fortran-torch-bridge of
!>          XDG_CACHE_HOME or of ~/.cache.
!> Trust.   A choice only names one of the plans that cuDNN offers anyway. A damaged file costs measurements, and
!>          nothing that goes wrong here is an error of a computation: lines that are not right are not seen, and gone
!>          when the file is written the next time.
!> Others.  The file is replaced in one piece, after it was read again. Of two processes that write at the same moment
!>          one may lose its line.
module cnn_cuda_plans_plan_cache
   use cnn_core_atomic_file, only : is_replaceable, make_folders, part_file_type
   use cnn_core_digest, only : digest, digest_length
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   implicit none
   private

   public :: cache_path, count_choices, find_choice, keep_choice

   character(len=*), parameter :: header = "fortran-torch-bridge: plans of cuDNN that were measured, version 1"
   character(len=*), parameter :: variable = "CNN_PLAN_CACHE", folder = "/fortran-torch-bridge/cudnn-plans.txt"
   character, parameter :: line_end = achar(10)

   !> The oldest go when there are more
   integer, parameter :: most_choices = 4096
   !> A line that is longer is none, and neither is a file that such lines would not fill
   integer, parameter :: longest_line = 500
   integer(i8), parameter :: longest_file = int(most_choices + 1, i8)*(longest_line + 1)

   !> The right lines of the file when it was last read; not allocated before that
   character(len=:), allocatable :: known

contains

   !> What was chosen for this key; empty where nobody knows
   function find_choice(key) result(choice)
      character(len=*), intent(in) :: key
      character(len=:), allocatable :: choice
      integer :: first, last, n

      choice = ""
      if (len(key) == 0) return
      if (.not. allocated(known)) call read_lines(cache_path(), known, n)
      call find_line(known, key, first, last)
      if (last > 0) choice = known(first + digest_length + 1:last - len(key) - 2)
   end function find_choice

   !> Keep a choice, a word, for the processes to come. Nothing is done for an empty choice or key
   subroutine keep_choice(key, choice)
      character(len=*), intent(in) :: key, choice
      character(len=:), allocatable :: path, lines, line
      integer :: first, last, n

      line = digest(choice//" "//key)//" "//choice//" "//key
      path = cache_path()
      if (len(key) == 0 .or. len(choice) == 0 .or. len(line) > longest_line .or. len(path) == 0) return
      ! Others may have written meanwhile
      call read_lines(path, lines, n)
      call find_line(lines, key, first, last)
      if (last == 0 .and. n == most_choices) then
         first = 1
         last = index(lines, line_end)
      end if
      known = lines(:first - 1)//lines(last + 1:)//line//line_end
      call write_text(path, header//line_end//known)
   end subroutine keep_choice

   !> How many there are on file now, of all devices and versions
   integer function count_choices()
      character(len=:), allocatable :: lines
      call read_lines(cache_path(), lines, count_choices)
   end function count_choices

   !> Where the file is, or will be; empty where there is to be none. `why` nothing can be kept, empty where it can
   function cache_path(why) result(path)
      character(len=:), allocatable, intent(out), optional :: why
      character(len=:), allocatable :: path, reason
      logical :: is_set

      reason = variable//" is empty"
      call read_variable(variable, path, is_set)
      if (.not. is_set) then
         reason = "neither XDG_CACHE_HOME nor HOME names a folder"
         call read_variable("XDG_CACHE_HOME", path, is_set)
         ! By the XDG Base Directory Specification one that is not absolute is as good as none
         if (index(path, "/") /= 1) then
            call read_variable("HOME", path, is_set)
            if (index(path, "/") /= 1) path = ""
            if (len(path) > 0) path = path//"/.cache"
         end if
         if (len(path) > 0) path = path//folder
      end if
      if (.not. present(why)) return
      why = reason
      if (len(path) == 0) return
      why = ""
      if (.not. is_replaceable(path)) why = path//" is no file"
   end function cache_path

   subroutine read_variable(name, value, is_set)
      character(len=*), intent(in) :: name
      character(len=:), allocatable, intent(out) :: value
      logical, intent(out) :: is_set
      integer :: length, status
      call get_environment_variable(name, length=length, status=status)
      is_set = status == 0
      if (.not. is_set) length = 0
      allocate (character(len=length) :: value)
      if (length > 0) call get_environment_variable(name, value(:))
      ! Fortran's file names have no blanks at the end
      value = trim(value)
   end subroutine read_variable

   !> Where the newest line about a key begins, and where its end of line is; 1 and 0 where there is none
   pure subroutine find_line(lines, key, first, last)
      character(len=*), intent(in) :: lines, key
      integer, intent(out) :: first, last
      integer :: blank
      blank = index(lines, " "//key//line_end, back=.true.)
      do while (blank > 0)
         first = index(lines(:blank), line_end, back=.true.) + 1
         last = blank + len(key) + 1
         ! Else it is the end of a longer key
         if (index(lines(first + digest_length + 1:blank - 1), " ") == 0) return
         blank = index(lines(:first - 1), " "//key//line_end, back=.true.)
      end do
      first = 1
      last = 0
   end subroutine find_line

   !> The right lines of the file, the newest of them, and their number; none where there is no such file
   subroutine read_lines(path, lines, n)
      character(len=*), intent(in) :: path
      character(len=:), allocatable, intent(out) :: lines
      integer, intent(out) :: n
      character(len=:), allocatable :: text
      integer :: first, last, free

      n = 0
      call read_text(path, text)
      if (index(text, header//line_end) /= 1) text = ""
      lines = repeat(" ", len(text) + 1)
      free = len(lines)
      last = len(text)
      do while (last > len(header) .and. n < most_choices)
         first = index(text(:last), line_end, back=.true.) + 1
         if (is_right(text(first:last))) then
            n = n + 1
            lines(free - (last - first + 1):free) = text(first:last)//line_end
            free = free - (last - first + 2)
         end if
         last = first - 2
      end do
      lines = lines(free + 1:)
   end subroutine read_lines

   !> The whole file; empty where it cannot be one of ours
   subroutine read_text(path, text)
      character(len=*), intent(in) :: path
      character(len=:), allocatable, intent(out) :: text
      integer(i8) :: bytes
      integer :: unit, status

      bytes = 0
      if (len(path) > 0) inquire (file=path, size=bytes)
      if (bytes < 0 .or. bytes > longest_file) bytes = 0
      allocate (character(len=bytes) :: text)
      if (bytes == 0) return
      open (newunit=unit, file=path, access="stream", form="unformatted", status="old", action="read", iostat=status)
      if (status == 0) then
         read (unit, iostat=status) text
         if (status /= 0) text = ""
         close (unit, iostat=status)
      end if
      if (status /= 0) text = ""
   end subroutine read_text

   !> Checksum, choice, key
   pure logical function is_right(line)
      character(len=*), intent(in) :: line
      is_right = .false.
      if (len(line) <= digest_length + 1 .or. len(line) > longest_line) return
      is_right = line(:digest_length + 1) == digest(line(digest_length + 2:))//" "
   end function is_right

   !> In one piece, or not at all
   subroutine write_text(path, text)
      character(len=*), intent(in) :: path, text
      type(part_file_type) :: part
      type(error_type), allocatable :: ignored
      integer(i8) :: bytes
      integer :: unit, status, closed

      call make_folders(path)
      call part%begin(path, ignored)
      if (allocated(ignored)) return
      open (newunit=unit, file=part%name, access="stream", form="unformatted", status="new", action="write", &
         & iostat=status)
      if (status == 0) then
         call part%hold()
         write (unit, iostat=status) text
         close (unit, iostat=closed)
         inquire (file=part%name, size=bytes)
         if (status == 0 .and. closed == 0 .and. bytes == len(text)) call part%commit(ignored)
      end if
      call part%discard()
   end subroutine write_text

end module cnn_cuda_plans_plan_cache
