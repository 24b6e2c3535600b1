! SPDX-License-Identifier: MIT
!> Texts of an HDF5 file, of fixed or variable length.
module cnn_io_hdf5_texts
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_f_pointer, c_int, c_loc, c_null_char, c_null_ptr, &
      & c_ptr, c_size_t
   use cnn_io_hdf5_c, only : cnn_hdf5_c_string, H5Aget_space, H5Aread, H5Dget_space, H5Dread, H5free_memory, &
      & H5P_DEFAULT, H5S_ALL, H5Sclose, H5Sget_simple_extent_npoints, H5T_STR_NULLPAD, H5T_STRING, H5Tcopy, &
      & H5Tget_class, H5Tget_size, H5Tis_variable_str, H5Tset_size, H5Tset_strpad, hid_t, hsize_t
   implicit none
   private

   public :: read_string, string_type

   !> Longest text that is read, in bytes
   integer(c_size_t), parameter :: longest_text = 1048576

   interface
      function c_strlen(text) result(length) bind(C, name="strlen")
         import :: c_ptr, c_size_t
         implicit none
         !> Address of a text with a NUL at its end
         type(c_ptr), value :: text
         !> Bytes before the NUL
         integer(c_size_t) :: length
      end function c_strlen
   end interface

contains

   !> The string of an open dataset or attribute; status is not 0 when it is no single string
   subroutine read_string(id, kind, is_attribute, text, status)
      !> The library's number of the dataset or attribute
      integer(hid_t), intent(in) :: id
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> Whether it is an attribute
      logical, intent(in) :: is_attribute
      !> What it holds
      character(len=:), allocatable, intent(out) :: text
      !> 0 where all went well
      integer, intent(out) :: status
      character(kind=c_char), allocatable, target :: fixed(:)
      type(c_ptr), target :: variable
      ! gfortran 12 hands over c_loc of letters with their length, as if it were letters
      type(c_ptr) :: address
      integer(hid_t) :: space
      integer(c_size_t) :: length
      integer(hsize_t) :: points
      integer(c_int) :: is_variable, ignored

      text = ""
      status = -1
      if (H5Tget_class(kind) /= H5T_STRING) return
      if (is_attribute) then
         space = H5Aget_space(id)
      else
         space = H5Dget_space(id)
      end if
      points = H5Sget_simple_extent_npoints(space)
      ignored = H5Sclose(space)
      is_variable = H5Tis_variable_str(kind)
      if (points /= 1 .or. is_variable < 0) return
      if (is_variable > 0) then
         variable = c_null_ptr
         call read_raw(id, kind, is_attribute, c_loc(variable), status)
         if (status == 0 .and. c_associated(variable)) call copy_text(variable, text)
         ignored = H5free_memory(variable)
      else
         length = H5Tget_size(kind)
         if (length < 1 .or. length > longest_text) return
         allocate (fixed(length + 1))
         fixed = c_null_char
         address = c_loc(fixed)
         call read_raw(id, kind, is_attribute, address, status)
         if (status == 0) call copy_text(address, text)
      end if
   end subroutine read_string

   subroutine read_raw(id, kind, is_attribute, address, status)
      !> The library's number of the dataset or attribute
      integer(hid_t), intent(in) :: id
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> Whether it is an attribute
      logical, intent(in) :: is_attribute
      !> Address of the place for the values
      type(c_ptr), intent(in) :: address
      !> 0 where all went well
      integer, intent(out) :: status
      if (is_attribute) then
         status = H5Aread(id, kind, address)
      else
         status = H5Dread(id, kind, H5S_ALL, H5S_ALL, H5P_DEFAULT, address)
      end if
   end subroutine read_raw

   !> A C string as Fortran text, without the blanks that pad Fortran strings
   subroutine copy_text(address, text)
      !> Address of a text with a NUL at its end
      type(c_ptr), intent(in) :: address
      !> The same, without blanks at its end
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

   subroutine string_type(length, kind, status)
      !> Bytes of the text
      integer, intent(in) :: length
      !> The library's number of the new type, to be closed
      integer(hid_t), intent(out) :: kind
      !> 0 where all went well
      integer, intent(out) :: status
      kind = H5Tcopy(cnn_hdf5_c_string())
      status = H5Tset_size(kind, int(max(1, length), c_size_t))
      if (status == 0) status = H5Tset_strpad(kind, H5T_STR_NULLPAD)
   end subroutine string_type

end module cnn_io_hdf5_texts
