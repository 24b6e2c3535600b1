! SPDX-License-Identifier: MIT
!> The part of HDF5 that an exchange file needs: real tensors, texts and numbers by name.
module cnn_io_hdf5_file
   use, intrinsic :: iso_c_binding, only : c_int, c_loc, c_null_char, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_io_hdf5_c, only : cnn_hdf5_link_create, cnn_hdf5_native_double, cnn_hdf5_native_int, H5Aclose, &
      & H5Acreate_by_name, H5Aget_space, H5Aget_type, H5Aread, H5Awrite, H5Gclose, H5Gcreate2, H5P_DEFAULT, H5Pclose, &
      & H5Pcreate, H5Pset_create_intermediate_group, H5Sclose, H5Screate_simple, H5Sget_simple_extent_npoints, &
      & H5T_FLOAT, H5T_INTEGER, H5Tclose, H5Tget_class, hid_t, hsize_t
   use cnn_io_hdf5_tensors, only : hdf5_tensors_type
   use cnn_io_hdf5_texts, only : read_string, string_type
   implicit none
   private

   !> Most numbers of an attribute
   integer, parameter :: most_numbers = 4096

   type, extends(hdf5_tensors_type), public :: hdf5_file_type
   contains
      procedure :: read_text_attribute
      procedure :: write_text_attribute
      procedure :: read_number, read_numbers
      procedure :: write_number, write_numbers
   end type hdf5_file_type

contains

   subroutine read_text_attribute(self, object, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What it holds
      character(len=:), allocatable, intent(out) :: text
      !> Attribute that is missing, or no text
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: attribute, kind
      integer :: status
      integer(c_int) :: ignored
      call self%open_attribute(object, name, attribute, error)
      if (allocated(error)) return
      kind = H5Aget_type(attribute)
      call read_string(attribute, kind, .true., text, status)
      ignored = H5Tclose(kind)
      ignored = H5Aclose(attribute)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" is not one text", error)
   end subroutine read_text_attribute

   !> `object` is "/", or a dataset or a group, which is created when it is not there
   subroutine write_text_attribute(self, object, name, text, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      character(len=*), intent(in) :: text
      type(error_type), allocatable, intent(out) :: error
      character(len=len(text)), target :: copy
      ! gfortran 12 hands over c_loc of letters with their length, as if it were letters
      type(c_ptr) :: address
      integer(hid_t) :: kind
      integer :: status
      integer(c_int) :: ignored
      copy = text
      address = c_loc(copy)
      call string_type(len(text), kind, status)
      if (status == 0) call write_attribute(self, object, name, kind, 1, address, status)
      ignored = H5Tclose(kind)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_text_attribute

   !> A number attribute as float64, whatever real or integer type it has in the file
   subroutine read_number(self, object, name, value, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What it holds, 0 after an error
      real(dp), intent(out) :: value
      !> Attribute that is missing, or no number
      type(error_type), allocatable, intent(out) :: error
      real(dp), allocatable :: values(:)
      call read_attribute(self, object, name, 1, values, error)
      value = 0.0_dp
      if (.not. allocated(error)) value = values(1)
   end subroutine read_number

   !> One to four numbers of an attribute, as `read_number`
   subroutine read_numbers(self, object, name, values, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What it holds; empty after an error
      real(dp), allocatable, intent(out) :: values(:)
      !> Attribute that is missing, or no numbers
      type(error_type), allocatable, intent(out) :: error
      call read_attribute(self, object, name, most_numbers, values, error)
   end subroutine read_numbers

   !> Numbers of an attribute, whatever real or integer type they have
   subroutine read_attribute(self, object, name, most, values, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> How many there may be, `most_numbers` at most
      integer, intent(in) :: most
      !> What it holds; empty after an error
      real(dp), allocatable, intent(out) :: values(:)
      !> Attribute that is missing, or holds no numbers or more of them
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: numbers(most_numbers)
      integer(hid_t) :: attribute, kind, space
      integer(hsize_t) :: points
      integer(c_int) :: kind_class, status, ignored
      allocate (values(0))
      call self%open_attribute(object, name, attribute, error)
      if (allocated(error)) return
      kind = H5Aget_type(attribute)
      kind_class = H5Tget_class(kind)
      ignored = H5Tclose(kind)
      space = H5Aget_space(attribute)
      points = H5Sget_simple_extent_npoints(space)
      ignored = H5Sclose(space)
      status = -1
      numbers = 0.0_dp
      if (kind_class /= H5T_FLOAT .and. kind_class /= H5T_INTEGER) points = 0
      if (points >= 1 .and. points <= most) status = H5Aread(attribute, cnn_hdf5_native_double(), c_loc(numbers))
      ignored = H5Aclose(attribute)
      if (status == 0) then
         values = numbers(:points)
      else if (most == 1) then
         call self%fail_with("attribute "//name//" of "//object//" is not one number", error)
      else
         call self%fail_with("attribute "//name//" of "//object//" is not one number or a few", error)
      end if
   end subroutine read_attribute

   !> A number attribute, float64
   subroutine write_number(self, object, name, value, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      real(dp), intent(in) :: value
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: copy
      integer :: status
      copy = value
      call write_attribute(self, object, name, cnn_hdf5_native_double(), 1, c_loc(copy), status)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_number

   !> The numbers of an attribute: integers where all of them are, else float64
   subroutine write_numbers(self, object, name, values, error)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      real(dp), intent(in) :: values(:)
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: reals(size(values))
      integer(c_int), target :: integers(size(values))
      integer :: status
      reals = values
      if (all(abs(values) <= huge(1) .and. abs(values - anint(values)) <= 0.0_dp)) then
         integers = nint(values, c_int)
         call write_attribute(self, object, name, cnn_hdf5_native_int(), size(values), c_loc(integers), status)
      else
         call write_attribute(self, object, name, cnn_hdf5_native_double(), size(values), c_loc(reals), status)
      end if
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_numbers

   !> An attribute; a group that is not there is made, with those that it lies in
   subroutine write_attribute(self, object, name, kind, count, address, status)
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> How many they are: a scalar, or an array of one dimension
      integer, intent(in) :: count
      !> Address of the values, host memory
      type(c_ptr), intent(in) :: address
      !> 0 where all went well
      integer, intent(out) :: status
      integer(hid_t) :: space, attribute
      integer(c_int) :: ignored
      logical :: there
      there = object == "/"
      if (.not. there) there = self%has(object)
      status = 0
      if (.not. there) call make_group(self%id, object, status)
      if (status /= 0) return
      space = H5Screate_simple(merge(0_c_int, 1_c_int, count == 1), [int(count, hsize_t)], c_null_ptr)
      attribute = H5Acreate_by_name(self%id, object//c_null_char, name//c_null_char, kind, space, H5P_DEFAULT, &
         & H5P_DEFAULT, H5P_DEFAULT)
      status = H5Awrite(attribute, kind, address)
      ignored = H5Aclose(attribute)
      ignored = H5Sclose(space)
   end subroutine write_attribute

   !> A group, with those that it lies in
   subroutine make_group(file, path, status)
      !> The library's number of the file
      integer(hid_t), intent(in) :: file
      !> From "/" on
      character(len=*), intent(in) :: path
      !> 0 where all went well
      integer, intent(out) :: status
      integer(hid_t) :: links, group
      integer(c_int) :: ignored
      links = H5Pcreate(cnn_hdf5_link_create())
      status = H5Pset_create_intermediate_group(links, 1_c_int)
      group = H5Gcreate2(file, path//c_null_char, links, H5P_DEFAULT, H5P_DEFAULT)
      if (group < 0) status = -1
      ignored = H5Gclose(group)
      ignored = H5Pclose(links)
   end subroutine make_group

end module cnn_io_hdf5_file
