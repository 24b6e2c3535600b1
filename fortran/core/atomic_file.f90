! SPDX-License-Identifier: MIT
!> Files that are either the old one or the new one, whatever happens in between.
!>
!> Write to `temporary_name(path)`, then `commit_file`: the data is forced to the disk, and one
!> rename puts it in place. A process killed at any point leaves `path` as it was.
!>
!> Source.  POSIX rename(2), fsync(2), mkdir(2), truncate(2), called through functions with fixed argument lists.
module cnn_atomic_file
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_int, c_long, c_null_char, c_null_ptr, c_ptr
   use cnn_error, only : error_type, fail
   use cnn_kinds, only : i8
   use cnn_text, only : to_text
   implicit none
   private

   public :: commit_file, discard_file, is_replaceable, make_folders, same_file, temporary_name

   interface
      function c_fopen(path, mode) result(stream) bind(C, name="fopen")
         import :: c_char, c_ptr
         implicit none
         character(kind=c_char), intent(in) :: path(*), mode(*)
         type(c_ptr) :: stream
      end function c_fopen
      function c_fclose(stream) result(status) bind(C, name="fclose")
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: stream
         integer(c_int) :: status
      end function c_fclose
      function c_fileno(stream) result(descriptor) bind(C, name="fileno")
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: stream
         integer(c_int) :: descriptor
      end function c_fileno
      function c_fsync(descriptor) result(status) bind(C, name="fsync")
         import :: c_int
         implicit none
         integer(c_int), value :: descriptor
         integer(c_int) :: status
      end function c_fsync
      function c_rename(old, new) result(status) bind(C, name="rename")
         import :: c_char, c_int
         implicit none
         character(kind=c_char), intent(in) :: old(*), new(*)
         integer(c_int) :: status
      end function c_rename
      function c_remove(path) result(status) bind(C, name="remove")
         import :: c_char, c_int
         implicit none
         character(kind=c_char), intent(in) :: path(*)
         integer(c_int) :: status
      end function c_remove
      function c_realpath(path, resolved) result(address) bind(C, name="realpath")
         import :: c_char, c_ptr
         implicit none
         character(kind=c_char), intent(in) :: path(*)
         type(c_ptr), value :: resolved
         type(c_ptr) :: address
      end function c_realpath
      function c_strcmp(a, b) result(order) bind(C, name="strcmp")
         import :: c_int, c_ptr
         implicit none
         type(c_ptr), value :: a, b
         integer(c_int) :: order
      end function c_strcmp
      subroutine c_free(address) bind(C, name="free")
         import :: c_ptr
         implicit none
         type(c_ptr), value :: address
      end subroutine c_free
      function c_getpid() result(pid) bind(C, name="getpid")
         import :: c_int
         implicit none
         integer(c_int) :: pid
      end function c_getpid
      function c_mkdir(path, mode) result(status) bind(C, name="mkdir")
         import :: c_char, c_int
         implicit none
         character(kind=c_char), intent(in) :: path(*)
         integer(c_int), value :: mode
         integer(c_int) :: status
      end function c_mkdir
      function c_truncate(path, length) result(status) bind(C, name="truncate")
         import :: c_char, c_int, c_long
         implicit none
         character(kind=c_char), intent(in) :: path(*)
         integer(c_long), value :: length
         integer(c_int) :: status
      end function c_truncate
   end interface

contains

   !> Whether a rename may put a file in this place: where nothing is, or a file; not a device, which would be gone from
   !> the system then. Nothing is opened, because that may wait for ever
   logical function is_replaceable(path)
      character(len=*), intent(in) :: path
      logical :: exists, is_folder
      integer(i8) :: bytes
      inquire (file=path, exist=exists, size=bytes)
      inquire (file=path//"/.", exist=is_folder)
      is_replaceable = .not. exists .or. bytes > 0
      ! Only a file can be cut to the length that it has
      if (.not. is_replaceable) is_replaceable = c_truncate(path//c_null_char, 0_c_long) == 0
      if (is_folder) is_replaceable = .false.
   end function is_replaceable

   !> The folder of `path`, and the one that it is in, for this user alone; what is wrong is seen when a file is made
   subroutine make_folders(path)
      character(len=*), intent(in) :: path
      integer(c_int), parameter :: mode = int(o"700", c_int)
      integer(c_int) :: ignored
      integer :: inner, outer
      inner = scan(path, "/", back=.true.)
      if (inner < 2) return
      outer = scan(path(:inner - 1), "/", back=.true.)
      if (outer > 1) ignored = c_mkdir(path(:outer - 1)//c_null_char, mode)
      ignored = c_mkdir(path(:inner - 1)//c_null_char, mode)
   end subroutine make_folders

   !> A name beside `path` (same file system, so that the rename is atomic), unique to this process
   function temporary_name(path) result(name)
      character(len=*), intent(in) :: path
      character(len=:), allocatable :: name
      integer :: slash
      slash = scan(path, "/", back=.true.)
      name = path(:slash)//"."//path(slash + 1:)//"."//to_text(int(c_getpid()))//".part"
   end function temporary_name

   !> Do two names lead to one file? A name without a file leads nowhere.
   logical function same_file(a, b)
      character(len=*), intent(in) :: a, b
      type(c_ptr) :: full_a, full_b
      full_a = c_realpath(a//c_null_char, c_null_ptr)
      full_b = c_realpath(b//c_null_char, c_null_ptr)
      same_file = .false.
      if (c_associated(full_a) .and. c_associated(full_b)) same_file = c_strcmp(full_a, full_b) == 0
      call c_free(full_a)
      call c_free(full_b)
   end function same_file

   !> Put the finished file `temporary` in the place of `path`
   subroutine commit_file(temporary, path, error)
      character(len=*), intent(in) :: temporary, path
      type(error_type), allocatable, intent(out) :: error
      integer :: slash
      if (.not. synchronised(temporary)) then
         call fail(error, path//": the new file could not be forced to the disk (full?)")
      else if (c_rename(temporary//c_null_char, path//c_null_char) /= 0) then
         call fail(error, path//": the new file could not be renamed to this name")
      end if
      if (allocated(error)) then
         call discard_file(temporary)
         return
      end if
      ! The rename itself is safe once its folder is; some file systems cannot do that, and need not
      slash = scan(path, "/", back=.true.)
      if (slash == 0) then
         if (synchronised(".")) return
      else
         if (synchronised(path(:slash))) return
      end if
   end subroutine commit_file

   !> Remove an unfinished file, if it is there
   subroutine discard_file(temporary)
      character(len=*), intent(in) :: temporary
      if (c_remove(temporary//c_null_char) /= 0) return
   end subroutine discard_file

   !> Force what was written under this name to the disk
   logical function synchronised(path)
      character(len=*), intent(in) :: path
      type(c_ptr) :: stream
      stream = c_fopen(path//c_null_char, "rb"//c_null_char)
      synchronised = c_associated(stream)
      if (.not. synchronised) return
      synchronised = c_fsync(c_fileno(stream)) == 0
      if (c_fclose(stream) /= 0) synchronised = .false.
   end function synchronised

end module cnn_atomic_file
