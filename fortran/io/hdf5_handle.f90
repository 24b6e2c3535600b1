! SPDX-License-Identifier: MIT
!> An open HDF5 file, and whether and where something is in it. Every message starts with the file's name.
!>
!> Source.  HDF5 1.10 Fortran 2003 interface (module hdf5).
module cnn_io_hdf5_handle
   use cnn_core_atomic_file, only : may_read
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   use hdf5
   implicit none
   private

   type, public :: hdf5_handle_type
      character(len=:), allocatable :: path
      !> The library's; only the modules with hdf5 in their names use it
      integer(hid_t) :: id = -1
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
      !> A file that is not open
      class(hdf5_handle_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> No such file, or one that cannot be read
      type(error_type), allocatable, intent(out) :: error
      integer :: status
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
      call h5fopen_f(path, H5F_ACC_RDONLY_F, self%id, status)
      if (status /= 0) then
         self%id = -1
         call self%fail_with("not a readable HDF5 file (another format, truncated, or still being written)", error)
      end if
   end subroutine open_to_read

   !> Where nothing is yet
   subroutine create(self, path, error)
      !> A file that is not open
      class(hdf5_handle_type), intent(inout) :: self
      !> Name of the file
      character(len=*), intent(in) :: path
      !> File that cannot be created, or is there
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      self%path = path
      call start_library(error)
      if (allocated(error)) return
      call h5fcreate_f(path, H5F_ACC_EXCL_F, self%id, status)
      if (status /= 0) then
         self%id = -1
         call self%fail_with("the file cannot be created (no such folder, no permission, or no room)", error)
      end if
   end subroutine create

   !> Nothing happens for a file that is not open
   subroutine close(self, error)
      !> The file, open or not
      class(hdf5_handle_type), intent(inout) :: self
      !> What was written is not all in the file
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      if (self%id < 0) return
      call h5fclose_f(self%id, status)
      self%id = -1
      if (status /= 0) call self%fail_with("the file could not be closed (no room on the disk?)", error)
   end subroutine close

   !> The library once a process; its own error prints are replaced by our messages
   subroutine start_library(error)
      !> Library that does not start
      type(error_type), allocatable, intent(out) :: error
      integer :: status, ignored
      ! Files are closed here, and one that could not be (a full disk) would crash the library's cleanup at exit.
      ! The call reports a failure when the library has been started before: then it was made before, too.
      call h5dont_atexit_f(ignored)
      call h5open_f(status)
      if (status == 0) call h5eset_auto_f(0, status)
      if (status /= 0) call fail(error, "the HDF5 library could not be started")
   end subroutine start_library

   !> Is there an object of this name? Asked step by step: HDF5 wants every parent to exist
   logical function has(self, name)
      !> The file, open
      class(hdf5_handle_type), intent(in) :: self
      !> Name of the object, from "/" on
      character(len=*), intent(in) :: name
      integer :: last, status
      has = .false.
      do last = 2, len(name)
         if (last < len(name)) then
            if (name(last + 1:last + 1) /= "/") cycle
         end if
         call h5lexists_f(self%id, name(:last), has, status)
         if (status /= 0) has = .false.
         if (.not. has) return
      end do
   end function has

   !> Has this object ("/" is the root) an attribute of this name?
   logical function has_attribute(self, object, name)
      !> The file, open
      class(hdf5_handle_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      integer :: status
      has_attribute = object == "/"
      if (.not. has_attribute) has_attribute = self%has(object)
      if (.not. has_attribute) return
      call h5aexists_by_name_f(self%id, object, name, has_attribute, status)
      if (status /= 0) has_attribute = .false.
   end function has_attribute

   subroutine open_dataset(self, name, dataset, error)
      !> The file, open
      class(hdf5_handle_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> The library's number of it, to be closed
      integer(hid_t), intent(out) :: dataset
      !> Dataset that is missing, or whose values are in another file
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      dataset = -1
      if (.not. self%has(name)) then
         call self%fail_with(name//" is missing", error)
         return
      end if
      call h5dopen_f(self%id, name, dataset, status)
      if (status /= 0) then
         call self%fail_with(name//" is not a dataset", error)
      else if (.not. self%owns(dataset)) then
         call h5dclose_f(dataset, status)
         call self%fail_with(name//" is a link into another file", error)
      else if (.not. stored_here(dataset)) then
         call h5dclose_f(dataset, status)
         call self%fail_with(name//" has its values in another file (a virtual or external dataset)", error)
      end if
   end subroutine open_dataset

   !> Are the values of a dataset in the file of the dataset?
   logical function stored_here(dataset)
      !> The library's number of it
      integer(hid_t), intent(in) :: dataset
      integer(hid_t) :: properties
      integer :: layout, files, status, ignored
      layout = -1
      files = -1
      call h5dget_create_plist_f(dataset, properties, status)
      if (status == 0) call h5pget_layout_f(properties, layout, status)
      if (status == 0) call h5pget_external_count_f(properties, files, status)
      call h5pclose_f(properties, ignored)
      stored_here = files == 0 .and. (layout == H5D_CONTIGUOUS_F .or. layout == H5D_CHUNKED_F .or. &
         & layout == H5D_COMPACT_F)
   end function stored_here

   !> Is an open object in this very file, and not behind a link into another one?
   logical function owns(self, object)
      !> The file, open
      class(hdf5_handle_type), intent(in) :: self
      !> The library's number of it
      integer(hid_t), intent(in) :: object
      integer(size_t), parameter :: longest_path = 4096
      character(len=longest_path) :: mine, theirs
      integer(size_t) :: length
      integer :: status
      owns = .false.
      call h5fget_name_f(self%id, mine, length, status)
      if (status /= 0 .or. length > longest_path) return
      call h5fget_name_f(object, theirs, length, status)
      owns = status == 0 .and. mine == theirs
   end function owns

   subroutine open_attribute(self, object, name, attribute, error)
      !> The file, open
      class(hdf5_handle_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> The library's number of it, to be closed
      integer(hid_t), intent(out) :: attribute
      !> Attribute that is missing
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      attribute = -1
      if (self%has_attribute(object, name)) then
         call h5aopen_by_name_f(self%id, object, name, attribute, status)
         if (status == 0) return
      end if
      call self%fail_with("attribute "//name//" of "//object//" is missing", error)
   end subroutine open_attribute

   subroutine fail_with(self, what, error)
      !> The file, with its name
      class(hdf5_handle_type), intent(in) :: self
      !> What is wrong
      character(len=*), intent(in) :: what
      !> The same, with the file's name
      type(error_type), allocatable, intent(out) :: error
      call fail(error, self%path//": "//what)
   end subroutine fail_with

end module cnn_io_hdf5_handle
