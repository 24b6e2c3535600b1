! SPDX-License-Identifier: MIT
!> An open HDF5 file, and whether and where something is in it. Every message starts with the file's name.
module cnn_io_hdf5_handle
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_null_char, c_null_funptr, c_null_ptr, c_size_t
   use cnn_core_atomic_file, only : may_read
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_io_hdf5_c, only : H5Aexists_by_name, H5Aopen_by_name, H5D_CHUNKED, H5D_COMPACT, H5D_CONTIGUOUS, H5Dclose, &
      & H5Dget_create_plist, H5dont_atexit, H5Dopen2, H5E_DEFAULT, H5Eset_auto2, H5F_ACC_EXCL, H5F_ACC_RDONLY, &
      & H5Fclose, H5Fcreate, H5Fget_name, H5Fopen, H5get_libversion, H5Lexists, H5open, H5P_DEFAULT, H5Pclose, &
      & H5Pget_external_count, H5Pget_layout, hid_t
   implicit none
   private

   public :: still_alive

   abstract interface
      !> There is progress
      subroutine still_alive(bytes)
         import :: i8
         implicit none
         !> Of what comes next, 0 where that is little
         integer(i8), intent(in) :: bytes
      end subroutine still_alive
   end interface

   type, public :: hdf5_handle_type
      character(len=:), allocatable :: path
      !> The library's; only the modules with hdf5 in their names use it
      integer(hid_t) :: id = -1
      !> Who is told of each object; usually nobody
      procedure(still_alive), pointer, nopass :: alive => null()
   contains
      procedure :: open_to_read
      procedure :: create
      procedure :: close
      procedure :: has
      procedure :: has_attribute
      procedure :: open_dataset, open_attribute
      procedure :: fail_with
      procedure :: owns
   end type hdf5_handle_type

contains

   subroutine open_to_read(self, path, error)
      class(hdf5_handle_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> No such file, or one that cannot be read
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: bytes
      logical :: exists
      self%path = path
      call start_library(error)
      if (allocated(error)) return
      inquire (file=path, exist=exists, size=bytes)
      if (.not. exists) then
         call self%fail_with("no such file", error)
      else if (bytes < 1) then
         ! Opening a pipe would wait for ever
         call self%fail_with("empty, or not a regular file", error)
      end if
      if (allocated(error)) return
      if (.not. may_read(path)) then
         call self%fail_with("permission denied, expected a file that this user may read", error)
         return
      end if
      self%id = H5Fopen(trim(path)//c_null_char, H5F_ACC_RDONLY, H5P_DEFAULT)
      if (self%id < 0) then
         self%id = -1
         call self%fail_with("not a readable HDF5 file (another format, truncated, or still being written)", error)
      end if
   end subroutine open_to_read

   !> Where nothing is yet
   subroutine create(self, path, error)
      class(hdf5_handle_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> File that cannot be created, or is there
      type(error_type), allocatable, intent(out) :: error
      self%path = path
      call start_library(error)
      if (allocated(error)) return
      self%id = H5Fcreate(trim(path)//c_null_char, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT)
      if (self%id < 0) then
         self%id = -1
         call self%fail_with("the file cannot be created (no such folder, no permission, or no room)", error)
      end if
   end subroutine create

   !> Nothing happens for a file that is not open
   subroutine close(self, error)
      class(hdf5_handle_type), intent(inout) :: self
      !> What was written is not all in the file
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      if (self%id < 0) return
      status = H5Fclose(self%id)
      self%id = -1
      if (status /= 0) call self%fail_with("the file could not be closed (no room on the disk?)", error)
   end subroutine close

   !> The library once a process; its own error prints are replaced by our messages
   subroutine start_library(error)
      !> Library that does not start, or is too old
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: major, minor, release, status, ignored
      ! Files are closed here, and one that could not be (a full disk) would crash the library's cleanup at exit.
      ! The call reports a failure when the library has been started before: then it was made before, too.
      ignored = H5dont_atexit()
      status = H5get_libversion(major, minor, release)
      if (status == 0 .and. (major < 1 .or. major == 1 .and. minor < 10)) then
         ! Its numbers have 32 bits
         call fail(error, "the HDF5 library is of version "//to_text(int(major))//"."//to_text(int(minor))//"."// &
            & to_text(int(release))//", expected 1.10 or newer")
         return
      end if
      if (status == 0) status = H5open()
      if (status == 0) status = H5Eset_auto2(H5E_DEFAULT, c_null_funptr, c_null_ptr)
      if (status /= 0) call fail(error, "the HDF5 library could not be started")
   end subroutine start_library

   !> Is there an object of this name? Asked step by step: HDF5 wants every parent to exist
   logical function has(self, name)
      class(hdf5_handle_type), intent(in) :: self
      !> Name of the object, from "/" on
      character(len=*), intent(in) :: name
      integer :: last
      if (associated(self%alive)) call self%alive(0_i8)
      has = .false.
      do last = 2, len(name)
         if (last < len(name)) then
            if (name(last + 1:last + 1) /= "/") cycle
         end if
         has = H5Lexists(self%id, name(:last)//c_null_char, H5P_DEFAULT) > 0
         if (.not. has) return
      end do
   end function has

   !> Has this object ("/" is the root) an attribute of this name?
   logical function has_attribute(self, object, name)
      class(hdf5_handle_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      has_attribute = object == "/"
      if (.not. has_attribute) has_attribute = self%has(object)
      if (.not. has_attribute) return
      has_attribute = H5Aexists_by_name(self%id, object//c_null_char, name//c_null_char, H5P_DEFAULT) > 0
   end function has_attribute

   subroutine open_dataset(self, name, dataset, error)
      class(hdf5_handle_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> The library's number of it, to be closed
      integer(hid_t), intent(out) :: dataset
      !> Dataset that is missing, or whose values are in another file
      type(error_type), allocatable, intent(out) :: error
      integer :: ignored
      dataset = -1
      if (.not. self%has(name)) then
         call self%fail_with(name//" is missing", error)
         return
      end if
      dataset = H5Dopen2(self%id, name//c_null_char, H5P_DEFAULT)
      if (dataset < 0) then
         call self%fail_with(name//" is not a dataset", error)
      else if (.not. self%owns(dataset)) then
         ignored = H5Dclose(dataset)
         call self%fail_with(name//" is a link into another file", error)
      else if (.not. stored_here(dataset)) then
         ignored = H5Dclose(dataset)
         call self%fail_with(name//" has its values in another file (a virtual or external dataset)", error)
      end if
   end subroutine open_dataset

   !> Are the values of a dataset in the file of the dataset?
   logical function stored_here(dataset)
      !> The library's number of it
      integer(hid_t), intent(in) :: dataset
      integer(hid_t) :: properties
      integer(c_int) :: layout, ignored
      properties = H5Dget_create_plist(dataset)
      layout = H5Pget_layout(properties)
      stored_here = H5Pget_external_count(properties) == 0 .and. (layout == H5D_CONTIGUOUS .or. &
         & layout == H5D_CHUNKED .or. layout == H5D_COMPACT)
      ignored = H5Pclose(properties)
   end function stored_here

   !> Is an open object in this very file, and not behind a link into another one?
   logical function owns(self, object)
      class(hdf5_handle_type), intent(in) :: self
      !> The library's number of it
      integer(hid_t), intent(in) :: object
      integer(c_size_t), parameter :: room = 4097
      character(kind=c_char, len=room) :: mine, theirs
      integer(c_size_t) :: length
      owns = .false.
      length = H5Fget_name(self%id, mine, room)
      if (length < 0 .or. length >= room) return
      if (H5Fget_name(object, theirs, room) == length) owns = mine(:length) == theirs(:length)
   end function owns

   subroutine open_attribute(self, object, name, attribute, error)
      class(hdf5_handle_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> The library's number of it, to be closed
      integer(hid_t), intent(out) :: attribute
      !> Attribute that is missing
      type(error_type), allocatable, intent(out) :: error
      attribute = -1
      if (self%has_attribute(object, name)) then
         attribute = H5Aopen_by_name(self%id, object//c_null_char, name//c_null_char, H5P_DEFAULT, H5P_DEFAULT)
         if (attribute >= 0) return
      end if
      call self%fail_with("attribute "//name//" of "//object//" is missing", error)
   end subroutine open_attribute

   subroutine fail_with(self, what, error)
      class(hdf5_handle_type), intent(in) :: self
      !> What is wrong
      character(len=*), intent(in) :: what
      !> The same, with the file's name
      type(error_type), allocatable, intent(out) :: error
      call fail(error, self%path//": "//what)
   end subroutine fail_with

end module cnn_io_hdf5_handle
