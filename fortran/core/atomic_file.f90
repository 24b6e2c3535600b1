! SPDX-License-Identifier: MIT
!> Files that are either the old one or the new one, whatever happens in between.
!>
!>     call part%begin(path, error)      the place is looked at, and a name beside it is reserved
!>     ...                               make a file of the name part%name
!>     call part%hold()                  say that its writer lives
!>     ...                               write and close it
!>     call part%commit(error)           or part%discard()
!>
!> The data is forced to the disk, and one rename puts it in place. A process killed at any point leaves `path` as it
!> was; a signal that ends the process removes the part first, and what a process left that had no time for that, the
!> next writer of the same file removes.
!>
!> Source.  part_file.c; POSIX remove(3), getpid(2), mkdir(2).
module cnn_core_atomic_file
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_null_char
   use cnn_core_error, only : error_type, fail
   implicit none
   private

   public :: check_place, may_read, same_file

   !> As in part_file.c
   integer, parameter :: longest_path = 4096
   integer(c_int), parameter :: no_folder = 1, is_folder = 2, not_regular = 3, protected_file = 4, no_permission = 5
   integer(c_int), parameter :: unwatched = -1, taken = -2
   integer(c_int), parameter :: not_on_disk = 1, not_renamed = 2

   !> A file that is being written
   type, public :: part_file_type
      !> Where it is until it is complete; not allocated before `begin`, nor after the end
      character(len=:), allocatable :: name
      !> As the user calls the file, and without symbolic links
      character(len=:), allocatable, private :: path, goal
      !> Of part_file.c
      integer(c_int), private :: watch = unwatched
   contains
      procedure :: begin
      procedure :: hold
      procedure :: refusal
      procedure :: commit
      procedure :: discard
   end type part_file_type

   interface
      function c_target(path, found) result(leads_somewhere) bind(C, name="cnn_target")
         import :: c_char, c_int, longest_path
         implicit none
         !> A file name
         character(kind=c_char), intent(in) :: path(*)
         !> The file that it leads to, ended by NUL
         character(kind=c_char), intent(inout) :: found(longest_path)
         integer(c_int) :: leads_somewhere
      end function c_target
      function c_place(goal) result(what) bind(C, name="cnn_place")
         import :: c_char, c_int
         implicit none
         !> A file name
         character(kind=c_char), intent(in) :: goal(*)
         integer(c_int) :: what
      end function c_place
      function c_same_file(a, b) result(same) bind(C, name="cnn_same_file")
         import :: c_char, c_int
         implicit none
         !> A file name, ended by NUL
         character(kind=c_char), intent(in) :: a(*)
         !> Another file name, ended by NUL
         character(kind=c_char), intent(in) :: b(*)
         integer(c_int) :: same
      end function c_same_file
      function c_may_read(path) result(may) bind(C, name="cnn_may_read")
         import :: c_char, c_int
         implicit none
         !> A file name
         character(kind=c_char), intent(in) :: path(*)
         integer(c_int) :: may
      end function c_may_read
      function c_watch(name) result(watch) bind(C, name="cnn_part_watch")
         import :: c_char, c_int
         implicit none
         !> Name of the part
         character(kind=c_char), intent(in) :: name(*)
         integer(c_int) :: watch
      end function c_watch
      subroutine c_hold(watch) bind(C, name="cnn_part_hold")
         import :: c_int
         implicit none
         !> What `c_watch` gave
         integer(c_int), value :: watch
      end subroutine c_hold
      subroutine c_forget(watch) bind(C, name="cnn_part_forget")
         import :: c_int
         implicit none
         !> What `c_watch` gave
         integer(c_int), value :: watch
      end subroutine c_forget
      subroutine c_sweep(goal) bind(C, name="cnn_part_sweep")
         import :: c_char
         implicit none
         !> The file whose abandoned parts go
         character(kind=c_char), intent(in) :: goal(*)
      end subroutine c_sweep
      function c_commit(name, goal) result(outcome) bind(C, name="cnn_part_commit")
         import :: c_char, c_int
         implicit none
         !> The part, ended by NUL
         character(kind=c_char), intent(in) :: name(*)
         !> The file that it replaces
         character(kind=c_char), intent(in) :: goal(*)
         integer(c_int) :: outcome
      end function c_commit
      function c_remove(path) result(status) bind(C, name="remove")
         import :: c_char, c_int
         implicit none
         !> A file name
         character(kind=c_char), intent(in) :: path(*)
         integer(c_int) :: status
      end function c_remove
      subroutine c_part_name(goal, name) bind(C, name="cnn_part_name")
         import :: c_char, longest_path
         implicit none
         !> The file that it replaces, ended by NUL
         character(kind=c_char), intent(in) :: goal(*)
         !> Of the part, ended by NUL
         character(kind=c_char), intent(inout) :: name(longest_path)
      end subroutine c_part_name
      subroutine c_refusal(name, reason) bind(C, name="cnn_part_refusal")
         import :: c_char
         implicit none
         !> Name of the part
         character(kind=c_char), intent(in) :: name(*)
         !> Why it cannot be made, ended by NUL
         character(kind=c_char), intent(inout) :: reason(256)
      end subroutine c_refusal
   end interface

contains

   !> Look at the place of a file before any work; nothing is made
   subroutine check_place(path, error)
      !> Where a file is to be made or replaced
      character(len=*), intent(in) :: path
      !> What keeps it from that
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: goal
      if (len(path) == 0) then
         call fail(error, "the name of the file is empty, expected one")
         return
      end if
      goal = target_of(path)
      if (len(goal) == 0) then
         call fail(error, path//": a symbolic link that leads nowhere")
         return
      end if
      select case (c_place(goal//c_null_char))
       case (no_folder)
         call fail(error, path//": the file cannot be created, there is no such folder")
       case (is_folder)
         call fail(error, path//": a folder, expected the name of a file")
       case (not_regular)
         call fail(error, path//": not a regular file, expected one, or a new name")
       case (protected_file)
         call fail(error, path//": the file is write-protected")
       case (no_permission)
         call fail(error, path//": the file cannot be created, its folder may not be written to")
       case default
         return
      end select
   end subroutine check_place

   !> Do two names lead to one file, through symbolic or hard links too? A name without a file leads nowhere.
   logical function same_file(a, b)
      !> A file name
      character(len=*), intent(in) :: a
      !> Another file name
      character(len=*), intent(in) :: b
      same_file = c_same_file(a//c_null_char, b//c_null_char) /= 0
   end function same_file

   !> May this user read a file?
   logical function may_read(path)
      !> A file name
      character(len=*), intent(in) :: path
      may_read = c_may_read(path//c_null_char) /= 0
   end function may_read

   !> Reserve a name beside `path` (same file system, so that the rename is atomic), unique to this process
   subroutine begin(self, path, error)
      class(part_file_type), intent(inout) :: self
      !> The file that it will replace
      character(len=*), intent(in) :: path
      !> What is wrong with the place
      type(error_type), allocatable, intent(out) :: error
      character(kind=c_char, len=longest_path) :: found
      character(len=:), allocatable :: name
      logical :: exists
      call check_place(path, error)
      if (allocated(error)) return
      self%path = path
      self%goal = target_of(path)
      call c_part_name(self%goal//c_null_char, found)
      name = found(:index(found, c_null_char) - 1)
      call c_sweep(self%goal//c_null_char)
      self%watch = c_watch(name//c_null_char)
      exists = .false.
      if (self%watch /= taken) inquire (file=name, exist=exists)
      if (exists) call c_forget(self%watch)
      if (exists .or. self%watch == taken) then
         call fail(error, path//": another thread or process is writing it")
      else
         self%name = name
      end if
   end subroutine begin

   !> Say that the writer lives, once there is a file
   subroutine hold(self)
      class(part_file_type), intent(in) :: self
      call c_hold(self%watch)
   end subroutine hold

   !> Why the file could not be made, where the system says so
   subroutine refusal(self, reason)
      class(part_file_type), intent(in) :: self
      !> In the system's words
      character(len=:), allocatable, intent(out) :: reason
      character(kind=c_char, len=256) :: found
      call c_refusal(self%name//c_null_char, found)
      reason = found(:index(found, c_null_char) - 1)
      if (len(reason) == 0) reason = "no room?"
   end subroutine refusal

   !> Put the finished file in its place
   subroutine commit(self, error)
      class(part_file_type), intent(inout) :: self
      !> Why the older file, if there was one, is still there
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: outcome
      call c_hold(self%watch)
      outcome = c_commit(self%name//c_null_char, self%goal//c_null_char)
      if (outcome == not_on_disk) call fail(error, self%path//": the new file could not be forced to the disk (full?)")
      if (outcome == not_renamed) call fail(error, self%path//": the new file could not be renamed to this name")
      if (allocated(error)) then
         call self%discard()
      else
         call end_part(self)
      end if
   end subroutine commit

   !> Remove an unfinished file, if there is one
   subroutine discard(self)
      class(part_file_type), intent(inout) :: self
      integer(c_int) :: ignored
      if (.not. allocated(self%name)) return
      ignored = c_remove(self%name//c_null_char)
      call end_part(self)
   end subroutine discard

   subroutine end_part(self)
      class(part_file_type), intent(inout) :: self
      call c_forget(self%watch)
      self%watch = unwatched
      deallocate (self%name)
   end subroutine end_part

   !> The file that a name leads to; empty where it leads nowhere
   function target_of(path) result(goal)
      !> A file name
      character(len=*), intent(in) :: path
      character(len=:), allocatable :: goal
      character(kind=c_char, len=longest_path) :: found
      goal = ""
      if (c_target(path//c_null_char, found) /= 0) goal = found(:index(found, c_null_char) - 1)
   end function target_of

end module cnn_core_atomic_file
