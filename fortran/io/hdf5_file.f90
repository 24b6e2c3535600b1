! SPDX-License-Identifier: MIT
!> The part of HDF5 that an exchange file needs: real tensors, texts and numbers by name.
module cnn_io_hdf5_file
   use, intrinsic :: iso_c_binding, only : c_loc, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_io_hdf5_tensors, only : hdf5_tensors_type
   use cnn_io_hdf5_texts, only : read_string, string_type
   use hdf5
   implicit none
   private

   !> Most numbers of an attribute
   integer, parameter :: most_numbers = 4

   type, extends(hdf5_tensors_type), public :: hdf5_file_type
   contains
      procedure :: read_text_attribute
      procedure :: write_text_attribute
      procedure :: read_number, read_numbers
      procedure :: write_number, write_numbers
   end type hdf5_file_type

contains

   subroutine read_text_attribute(self, object, name, text, error)
      !> The file, open
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
      integer :: status, ignored
      call self%open_attribute(object, name, attribute, error)
      if (allocated(error)) return
      call h5aget_type_f(attribute, kind, status)
      if (status == 0) call read_string(attribute, kind, .true., text, status)
      call h5tclose_f(kind, ignored)
      call h5aclose_f(attribute, ignored)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" is not one text", error)
   end subroutine read_text_attribute

   !> `object` is "/", or a dataset or a group, which is created when it is not there
   subroutine write_text_attribute(self, object, name, text, error)
      !> The file, open
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      character(len=*), intent(in) :: text
      !> What is wrong, with the file's name
      type(error_type), allocatable, intent(out) :: error
      character(len=len(text)), target :: copy
      integer(hid_t) :: kind
      integer :: status, ignored
      copy = text
      call string_type(len(text), kind, status)
      if (status == 0) call write_attribute(self, object, name, kind, 1, c_loc(copy), status)
      call h5tclose_f(kind, ignored)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_text_attribute

   !> A number attribute as float64, whatever real or integer type it has in the file
   subroutine read_number(self, object, name, value, error)
      !> The file, open
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
      !> The file, open
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
      !> The file, open
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
      type(c_ptr) :: address
      integer(hid_t) :: attribute, kind, space
      integer(hsize_t) :: points
      integer :: class, status, ignored
      allocate (values(0))
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
      if (.not. (class == H5T_FLOAT_F .or. class == H5T_INTEGER_F)) status = -1
      if (points < 1 .or. points > most) status = -1
      numbers = 0.0_dp
      address = c_loc(numbers)
      if (status == 0) call h5aread_f(attribute, H5T_NATIVE_DOUBLE, address, status)
      call h5aclose_f(attribute, ignored)
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
      !> The file, open
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      real(dp), intent(in) :: value
      !> What is wrong, with the file's name
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: copy
      integer :: status
      copy = value
      call write_attribute(self, object, name, H5T_NATIVE_DOUBLE, 1, c_loc(copy), status)
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_number

   !> One to four numbers of an attribute: integers where all of them are, else float64
   subroutine write_numbers(self, object, name, values, error)
      !> The file, open
      class(hdf5_file_type), intent(in) :: self
      !> Dataset or group, or "/"
      character(len=*), intent(in) :: object
      !> Name of the attribute
      character(len=*), intent(in) :: name
      !> What is written
      real(dp), intent(in) :: values(:)
      !> What is wrong, with the file's name
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: reals(size(values))
      integer, target :: integers(size(values))
      integer :: status
      reals = values
      if (all(abs(values) <= huge(1) .and. abs(values - anint(values)) <= 0.0_dp)) then
         integers = nint(values)
         call write_attribute(self, object, name, H5T_NATIVE_INTEGER, size(values), c_loc(integers), status)
      else
         call write_attribute(self, object, name, H5T_NATIVE_DOUBLE, size(values), c_loc(reals), status)
      end if
      if (status /= 0) call self%fail_with("attribute "//name//" of "//object//" could not be written", error)
   end subroutine write_numbers

   !> An attribute; a group that is not there is made, with those that it lies in
   subroutine write_attribute(self, object, name, kind, count, address, status)
      !> The file, open
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
      integer(hid_t) :: owner, space, attribute
      integer :: ignored
      logical :: there
      there = object == "/"
      if (.not. there) there = self%has(object)
      if (there) then
         call h5oopen_f(self%id, object, owner, status)
      else
         call make_group(self%id, object, owner, status)
      end if
      if (status /= 0) return
      if (count == 1) then
         call h5screate_f(H5S_SCALAR_F, space, status)
      else
         call h5screate_simple_f(1, [int(count, hsize_t)], space, status)
      end if
      if (status == 0) call h5acreate_f(owner, name, kind, space, attribute, status)
      if (status == 0) then
         call h5awrite_f(attribute, kind, address, status)
         call h5aclose_f(attribute, ignored)
      end if
      call h5sclose_f(space, ignored)
      call h5oclose_f(owner, ignored)
   end subroutine write_attribute

   !> A group, with those that it lies in
   subroutine make_group(file, path, group, status)
      !> The library's number of the file
      integer(hid_t), intent(in) :: file
      !> From "/" on
      character(len=*), intent(in) :: path
      !> The library's number of the group, to be closed
      integer(hid_t), intent(out) :: group
      !> 0 where all went well
      integer, intent(out) :: status
      integer(hid_t) :: links
      integer :: ignored
      group = -1
      call h5pcreate_f(H5P_LINK_CREATE_F, links, status)
      if (status == 0) call h5pset_create_inter_group_f(links, 1, status)
      if (status == 0) call h5gcreate_f(file, path, group, status, lcpl_id=links)
      call h5pclose_f(links, ignored)
   end subroutine make_group

end module cnn_io_hdf5_file
