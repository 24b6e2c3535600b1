! SPDX-License-Identifier: MIT
!> Texts of an HDF5 file, of fixed or variable length.
module cnn_io_hdf5_texts
   use, intrinsic :: iso_c_binding, only : c_associated, c_char, c_f_pointer, c_loc, c_null_char, c_null_ptr, c_ptr, &
      & c_size_t
   use hdf5
   implicit none
   private

   public :: read_string, string_type

   !> Longest text that is read, in bytes
   integer(size_t), parameter :: longest_text = 1048576

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
      !> The library's number of the dataset or attribute
      integer(hid_t), intent(in) :: id
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> Whether it is an attribute
      logical, intent(in) :: is_attribute
      !> Address of the place for the values
      type(c_ptr), intent(inout) :: address
      !> 0 where all went well
      integer, intent(out) :: status
      if (is_attribute) then
         call h5aread_f(id, kind, address, status)
      else
         call h5dread_f(id, kind, address, status)
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
      call h5tcopy_f(H5T_C_S1, kind, status)
      if (status == 0) call h5tset_size_f(kind, int(max(1, length), size_t), status)
      if (status == 0) call h5tset_strpad_f(kind, H5T_STR_NULLPAD_F, status)
   end subroutine string_type

end module cnn_io_hdf5_texts
