! SPDX-License-Identifier: MIT
!> The part of HDF5 that an exchange file needs: real tensors, texts and numbers by name.
!>
!> Layout.  The Fortran library reverses dimensions, so a Fortran x(w,h,c,n) is the dataset
!>          (n,c,h,w) that h5py and torch see: the same bytes, nothing to transpose.
!> Values are converted by the HDF5 library when the file's precision differs from the tensor's.
!> Every message starts with the file's name.
!>
!> Source.  HDF5 1.10 Fortran 2003 interface (module hdf5).
module cnn_io_hdf5_file
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_f_pointer, c_loc, c_null_char, c_null_ptr, &
      & c_ptr, c_size_t
   use cnn_core_atomic_file, only : may_read
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use hdf5
   implicit none
   private

   !> Longest text that is read, in bytes
   integer(size_t), parameter :: longest_text = 1048576

   type, public :: hdf5_file_type
      character(len=:), allocatable :: path
      integer(hid_t), private :: id = -1
   contains
      procedure :: open_to_read
      procedure :: create
      procedure :: close
      procedure :: has
      procedure :: has_attribute
      procedure :: extent
      procedure :: read_tensor
      procedure :: write_tensor
      procedure :: write_scalar
      procedure :: read_text
      procedure :: write_text
      procedure :: read_text_attribute
      procedure :: write_text_attribute
      procedure :: read_number
      procedure :: write_number
      procedure, private :: fail_with, open_dataset, owns, write_values, open_attribute
   end type hdf5_file_type

   interface
      function c_strlen(text) result(length) bind(C, name="strlen")
         import :: c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: text
         integer(c_size_t) :: length
      end function c_strlen
   end interface

contains

   subroutine open_to_read(self, path, error)
      class(hdf5_file_type), intent(inout) :: self
      character(len=*), intent(in) :: path
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
      class(hdf5_file_type), intent(inout) :: self
      character(len=*), intent(in) :: path
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
      class(hdf5_file_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      if (self%id < 0) return
      call h5fclose_f(self%id, status)
      self%id = -1
      if (status /= 0) call self%fail_with("the file could not be closed (no room on the disk?)", error)
   end subroutine close

   !> The library once a process; its own error prints are replaced by our messages
   subroutine start_library(error)
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
      class(hdf5_file_type), intent(in) :: self
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
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      integer :: status
      has_attribute = object == "/"
      if (.not. has_attribute) has_attribute = self%has(object)
      if (.not. has_attribute) return
      call h5aexists_by_name_f(self%id, object, name, has_attribute, status)
      if (status /= 0) has_attribute = .false.
   end function has_attribute

   !> Shape of a dataset of real numbers, in Fortran order; the missing ones of four are 1.
   !> With `expected_rank`, another number of dimensions is an error.
   subroutine extent(self, name, found, error, expected_rank)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      integer, intent(out) :: found(4)
      type(error_type), allocatable, intent(out) :: error
      integer, intent(in), optional :: expected_rank
      integer(hid_t) :: dataset, space, kind
      integer(hsize_t) :: dims(4), limits(4)
      integer(size_t) :: bytes
      integer :: rank, class, place, status, ignored

      found = 0
      call self%open_dataset(name, dataset, error)
      if (allocated(error)) return
      rank = -1
      class = -1
      dims = 1
      space = -1
      kind = -1
      call h5dget_space_f(dataset, space, status)
      if (status == 0) call h5sget_simple_extent_ndims_f(space, rank, status)
      if (status == 0 .and. rank >= 1 .and. rank <= 4) call h5sget_simple_extent_dims_f(space, dims, limits, status)
      call h5sclose_f(space, ignored)
      call h5dget_type_f(dataset, kind, status)
      bytes = 0
      if (status == 0) call h5tget_class_f(kind, class, status)
      if (status == 0) call h5tget_size_f(kind, bytes, status)
      call h5tclose_f(kind, ignored)
      place = H5D_SPACE_STS_NOT_ALLOCATED_F
      call h5dget_space_status_f(dataset, place, status)
      call h5dclose_f(dataset, ignored)

      if (class /= H5T_FLOAT_F .or. .not. (bytes == 4 .or. bytes == 8)) then
         call self%fail_with(name//" does not hold float32 or float64", error)
      else if (rank < 0 .or. rank > 4) then
         call self%fail_with(name//" has "//to_text(rank)//" dimensions, expected at most 4", error)
      else if (any(dims < 1)) then
         call self%fail_with(name//" is empty", error)
      else if (any(dims > huge(1)) .or. product(real(dims, dp)) > 2.0_dp**40) then
         call self%fail_with(name//" declares an absurd shape", error)
      else if (place == H5D_SPACE_STS_NOT_ALLOCATED_F) then
         call self%fail_with(name//" declares a shape but holds no data", error)
      else
         found = int(dims)
      end if
      if (allocated(error) .or. .not. present(expected_rank)) return
      if (rank /= expected_rank) call self%fail_with(name//" has "//to_text(rank)//" dimensions, expected "// &
         & to_text(expected_rank), error)
   end subroutine extent

   !> A dataset in another memory order (docs/exchange-file.md) is for the comparison alone, which reads it in Python
   subroutine refuse_layout(self, name, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      type(error_type), allocatable, intent(out) :: error
      character(len=*), parameter :: attributes(3) = [character(len=6) :: "layout", "order", "flip"]
      integer :: i
      do i = 1, size(attributes)
         if (self%has_attribute(name, trim(attributes(i)))) then
            call self%fail_with(name//" has the attribute "//trim(attributes(i))// &
               & ", expected a tensor in the usual order", error)
            return
         end if
      end do
   end subroutine refuse_layout

   !> Fill a host tensor; the dataset must have its shape
   subroutine read_tensor(self, name, tensor, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: dataset
      integer :: found(4), status, ignored
      ! The library's interface wants a variable (intent inout)
      type(c_ptr) :: address

      call self%extent(name, found, error)
      if (allocated(error)) return
      call refuse_layout(self, name, error)
      if (allocated(error)) return
      if (any(found /= tensor%extent)) then
         call self%fail_with(name//" has the shape "//to_text(found(4:1:-1))//", expected "// &
            & to_text(tensor%extent(4:1:-1)), error)
         return
      end if
      call self%open_dataset(name, dataset, error)
      if (allocated(error)) return
      address = tensor%address
      call h5dread_f(dataset, memory_type(tensor%dtype), address, status)
      call h5dclose_f(dataset, ignored)
      if (status /= 0) call self%fail_with(name//" could not be read (truncated file?)", error)
   end subroutine read_tensor

   !> Write a host tensor as a dataset of its first `rank` dimensions
   subroutine write_tensor(self, name, tensor, rank, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      type(tensor_type), intent(in) :: tensor
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      call self%write_values(name, memory_type(tensor%dtype), tensor%extent(:rank), tensor%address, error)
   end subroutine write_tensor

   !> Write one float64
   subroutine write_scalar(self, name, value, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      real(dp), intent(in), target :: value
      type(error_type), allocatable, intent(out) :: error
      integer :: no_extent(0)
      call self%write_values(name, H5T_NATIVE_DOUBLE, no_extent, c_loc(value), error)
   end subroutine write_scalar

   subroutine write_values(self, name, kind, extent, address, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      integer(hid_t), intent(in) :: kind
      integer, intent(in) :: extent(:)
      type(c_ptr), intent(in) :: address
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: links, space, dataset
      integer :: status, ignored

      dataset = -1
      space = -1
      links = -1
      call h5pcreate_f(H5P_LINK_CREATE_F, links, status)
      if (status == 0) call h5pset_create_inter_group_f(links, 1, status)
      if (status == 0) call create_space(extent, space, status)
      if (status == 0) call h5dcreate_f(self%id, name, kind, space, dataset, status, lcpl_id=links)
      if (status == 0) call h5dwrite_f(dataset, kind, address, status)
      if (dataset >= 0) call h5dclose_f(dataset, ignored)
      call h5sclose_f(space, ignored)
      call h5pclose_f(links, ignored)
      if (status /= 0) call self%fail_with(name//" could not be written (no room on the disk?)", error)
   end subroutine write_values

   subroutine create_space(extent, space, status)
      integer, intent(in) :: extent(:)
      integer(hid_t), intent(out) :: space
      integer, intent(out) :: status
      if (size(extent) == 0) then
         call h5screate_f(H5S_SCALAR_F, space, status)
      else
         call h5screate_simple_f(size(extent), int(extent, hsize_t), space, status)
      end if
   end subroutine create_space

   !> A scalar text, of fixed or variable length
   subroutine read_text(self, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      character(len=:), allocatable, intent(out) :: text
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: dataset, kind
      integer :: status, ignored
      call self%open_dataset(name, dataset, error)
      if (allocated(error)) return
      call h5dget_type_f(dataset, kind, status)
      if (status == 0) call read_string(dataset, kind, .false., text, status)
      call h5tclose_f(kind, ignored)
      call h5dclose_f(dataset, ignored)
      if (status /= 0) call self%fail_with(name//" is not one text", error)
   end subroutine read_text

   subroutine read_text_attribute(self, object, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      character(len=:), allocatable, intent(out) :: text
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: attribute, kind
      integer :: status, ignored
      call self%open_attribute(object, name, attribute, error)
      if (allocated(error)) return
      call h5aget_type_f(attribute, kind, status)
      if (status == 0) call read_string(attribute, kind, .true., text, status)
      call h5tclose_f(kind, ignored)
      call h5aclose_f(attribute, ignored)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" is not one text", error)
   end subroutine read_text_attribute

   !> The string of an open dataset or attribute; status is not 0 when it is no single string
   subroutine read_string(id, kind, is_attribute, text, status)
      integer(hid_t), intent(in) :: id, kind
      logical, intent(in) :: is_attribute
      character(len=:), allocatable, intent(out) :: text
      integer, intent(out) :: status
      character(kind=c_char), allocatable, target :: fixed(:)
      type(c_ptr), target :: variable
      type(c_ptr) :: address
      integer(hid_t) :: space
      integer(size_t) :: length
      integer(hsize_t) :: points
      integer :: class, ignored
      logical :: is_variable

      text = ""
      points = 0
      length = 0
      call h5tget_class_f(kind, class, status)
      if (status /= 0) return
      status = -1
      if (class /= H5T_STRING_F) return
      if (is_attribute) then
         call h5aget_space_f(id, space, status)
      else
         call h5dget_space_f(id, space, status)
      end if
      if (status /= 0) return
      call h5sget_simple_extent_npoints_f(space, points, status)
      if (points /= 1) status = -1
      if (status == 0) call h5tis_variable_str_f(kind, is_variable, status)
      if (status == 0 .and. is_variable) then
         variable = c_null_ptr
         address = c_loc(variable)
         call read_raw(id, kind, is_attribute, address, status)
         if (status == 0 .and. c_associated(variable)) call copy_text(variable, text)
         call h5dvlen_reclaim_f(kind, space, H5P_DEFAULT_F, address, ignored)
      else if (status == 0) then
         call h5tget_size_f(kind, length, status)
         if (length > longest_text) status = -1
         if (status == 0) then
            allocate (fixed(length + 1))
            fixed = c_null_char
            address = c_loc(fixed)
            call read_raw(id, kind, is_attribute, address, status)
            if (status == 0) call copy_text(address, text)
         end if
      end if
      call h5sclose_f(space, ignored)
   end subroutine read_string

   subroutine read_raw(id, kind, is_attribute, address, status)
      integer(hid_t), intent(in) :: id, kind
      logical, intent(in) :: is_attribute
      type(c_ptr), intent(inout) :: address
      integer, intent(out) :: status
      if (is_attribute) then
         call h5aread_f(id, kind, address, status)
      else
         call h5dread_f(id, kind, address, status)
      end if
   end subroutine read_raw

   !> A C string as Fortran text, without the blanks that pad Fortran strings
   subroutine copy_text(address, text)
      type(c_ptr), intent(in) :: address
      character(len=:), allocatable, intent(out) :: text
      character(kind=c_char), pointer :: letters(:)
      integer(c_size_t) :: length, i
      length = min(c_strlen(address), int(longest_text, c_size_t))
      call c_f_pointer(address, letters, [length])
      allocate (character(len=int(length)) :: text)
      do i = 1, length
         text(i:i) = letters(i)
      end do
      text = trim(text)
   end subroutine copy_text

   !> Write a scalar text of fixed length
   subroutine write_text(self, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name, text
      type(error_type), allocatable, intent(out) :: error
      character(len=len(text)), target :: copy
      integer(hid_t) :: kind
      integer :: status, ignored, no_extent(0)
      copy = text
      call string_type(len(text), kind, status)
      if (status == 0) then
         call self%write_values(name, kind, no_extent, c_loc(copy), error)
      else
         call self%fail_with(name//" could not be written", error)
      end if
      call h5tclose_f(kind, ignored)
   end subroutine write_text

   !> `object` is "/", or a dataset or a group, which is created when it is not there
   subroutine write_text_attribute(self, object, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name, text
      type(error_type), allocatable, intent(out) :: error
      character(len=len(text)), target :: copy
      integer(hid_t) :: kind
      integer :: status, ignored
      copy = text
      call string_type(len(text), kind, status)
      if (status == 0) call write_attribute(self, object, name, kind, c_loc(copy), status)
      call h5tclose_f(kind, ignored)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_text_attribute

   !> A number attribute as float64, whatever real or integer type it has in the file
   subroutine read_number(self, object, name, value, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      real(dp), intent(out), target :: value
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr) :: address
      integer(hid_t) :: attribute, kind, space
      integer(hsize_t) :: points
      integer :: class, status, ignored
      value = 0.0_dp
      call self%open_attribute(object, name, attribute, error)
      if (allocated(error)) return
      class = -1
      points = 0
      space = -1
      kind = -1
      call h5aget_type_f(attribute, kind, status)
      if (status == 0) call h5tget_class_f(kind, class, status)
      call h5tclose_f(kind, ignored)
      if (status == 0) call h5aget_space_f(attribute, space, status)
      if (status == 0) call h5sget_simple_extent_npoints_f(space, points, status)
      call h5sclose_f(space, ignored)
      if (points /= 1 .or. .not. (class == H5T_FLOAT_F .or. class == H5T_INTEGER_F)) status = -1
      address = c_loc(value)
      if (status == 0) call h5aread_f(attribute, H5T_NATIVE_DOUBLE, address, status)
      call h5aclose_f(attribute, ignored)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" is not one number", error)
   end subroutine read_number

   subroutine write_number(self, object, name, value, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      real(dp), intent(in) :: value
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: copy
      integer :: status
      copy = value
      call write_attribute(self, object, name, H5T_NATIVE_DOUBLE, c_loc(copy), status)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_number

   subroutine write_attribute(self, object, name, kind, address, status)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      integer(hid_t), intent(in) :: kind
      type(c_ptr), intent(in) :: address
      integer, intent(out) :: status
      integer(hid_t) :: owner, space, attribute
      integer :: ignored
      logical :: there
      there = object == "/"
      if (.not. there) there = self%has(object)
      if (there) then
         call h5oopen_f(self%id, object, owner, status)
      else
         call h5gcreate_f(self%id, object, owner, status)
      end if
      if (status /= 0) return
      call h5screate_f(H5S_SCALAR_F, space, status)
      if (status == 0) call h5acreate_f(owner, name, kind, space, attribute, status)
      if (status == 0) then
         call h5awrite_f(attribute, kind, address, status)
         call h5aclose_f(attribute, ignored)
      end if
      call h5sclose_f(space, ignored)
      call h5oclose_f(owner, ignored)
   end subroutine write_attribute

   subroutine open_dataset(self, name, dataset, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: name
      integer(hid_t), intent(out) :: dataset
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
      class(hdf5_file_type), intent(in) :: self
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
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: object, name
      integer(hid_t), intent(out) :: attribute
      type(error_type), allocatable, intent(out) :: error
      integer :: status
      attribute = -1
      if (self%has_attribute(object, name)) then
         call h5aopen_by_name_f(self%id, object, name, attribute, status)
         if (status == 0) return
      end if
      call self%fail_with("attribute "//name//" of "//object//" is missing", error)
   end subroutine open_attribute

   subroutine string_type(length, kind, status)
      integer, intent(in) :: length
      integer(hid_t), intent(out) :: kind
      integer, intent(out) :: status
      call h5tcopy_f(H5T_C_S1, kind, status)
      if (status == 0) call h5tset_size_f(kind, int(max(1, length), size_t), status)
      if (status == 0) call h5tset_strpad_f(kind, H5T_STR_NULLPAD_F, status)
   end subroutine string_type

   integer(hid_t) function memory_type(dtype)
      integer, intent(in) :: dtype
      memory_type = H5T_NATIVE_DOUBLE
      if (dtype == dtype_float32) memory_type = H5T_NATIVE_REAL
   end function memory_type

   subroutine fail_with(self, what, error)
      class(hdf5_file_type), intent(in) :: self
      character(len=*), intent(in) :: what
      type(error_type), allocatable, intent(out) :: error
      call fail(error, self%path//": "//what)
   end subroutine fail_with

end module cnn_io_hdf5_file
