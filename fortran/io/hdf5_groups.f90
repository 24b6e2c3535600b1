! SPDX-License-Identifier: MIT
!> Groups of an HDF5 file: names of their members and attributes, and copies.
module cnn_io_hdf5_groups
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_null_char, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_text, only : name_type, to_text
   use cnn_io_hdf5_c, only : H5_INDEX_NAME, H5_ITER_INC, H5_ITER_NATIVE, H5Aget_name_by_idx, H5Aget_num_attrs, &
      & H5G_info_t, H5Gclose, H5Gget_info, H5Gopen2, H5Lget_name_by_idx, H5P_DEFAULT, hid_t, hsize_t
   use cnn_io_hdf5_file, only : hdf5_file_type
   implicit none
   private

   public :: attribute_names, group_members

   !> Longest name of an object or an attribute
   integer(c_size_t), parameter :: longest_name = 128
   !> Most members or attributes of a group
   integer, parameter :: most = 10000
   !> A group itself, in the words of the library
   character(kind=c_char, len=2), parameter :: itself = "."//c_null_char

contains

   !> Names of all that is in a group
   subroutine group_members(file, path, names, error)
      !> Open
      type(hdf5_file_type), intent(in) :: file
      !> Of the group
      character(len=*), intent(in) :: path
      !> In no order that means anything
      type(name_type), allocatable, intent(out) :: names(:)
      !> It is not there, no group of this file, or has too many members
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: group
      integer(c_size_t) :: length
      integer(c_int) :: status, ignored
      integer :: i
      type(H5G_info_t) :: info
      character(kind=c_char, len=longest_name + 1) :: name

      allocate (names(0))
      call open_group(file, path, group, error)
      if (allocated(error)) return
      status = H5Gget_info(group, info)
      if (status == 0 .and. info%nlinks > most) then
         call file%fail_with(path//" has "//to_text(int(min(info%nlinks, int(huge(1), hsize_t))))// &
            & " members, expected "//to_text(most)//" at most", error)
      else if (status == 0) then
         deallocate (names)
         allocate (names(info%nlinks))
         do i = 1, size(names)
            length = H5Lget_name_by_idx(group, itself, H5_INDEX_NAME, H5_ITER_NATIVE, int(i - 1, hsize_t), name, &
               & longest_name + 1, H5P_DEFAULT)
            if (length < 0 .or. length > longest_name) status = -1
            if (status /= 0) exit
            names(i)%text = name(:length)
         end do
      end if
      ignored = H5Gclose(group)
      if (status /= 0 .and. .not. allocated(error)) call file%fail_with(path//" cannot be read", error)
   end subroutine group_members

   !> Names of the attributes of a group
   subroutine attribute_names(file, path, names, error)
      !> Open
      type(hdf5_file_type), intent(in) :: file
      !> Of the group
      character(len=*), intent(in) :: path
      !> In no order that means anything
      type(name_type), allocatable, intent(out) :: names(:)
      !> The group is not there, no group of this file, or has too many attributes
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: group
      integer(c_size_t) :: length
      integer(c_int) :: count, i, ignored
      logical :: is_read
      character(kind=c_char, len=longest_name + 1) :: name

      allocate (names(0))
      call open_group(file, path, group, error)
      if (allocated(error)) return
      count = H5Aget_num_attrs(group)
      is_read = count >= 0 .and. count <= most
      if (is_read) then
         deallocate (names)
         allocate (names(count))
         do i = 1, count
            length = H5Aget_name_by_idx(group, itself, H5_INDEX_NAME, H5_ITER_INC, int(i - 1, hsize_t), name, &
               & longest_name + 1, H5P_DEFAULT)
            is_read = length >= 0 .and. length <= longest_name
            if (.not. is_read) exit
            names(i)%text = name(:length)
         end do
      end if
      ignored = H5Gclose(group)
      if (.not. is_read) call file%fail_with("the attributes of "//path//" cannot be read", error)
   end subroutine attribute_names

   subroutine open_group(file, path, group, error)
      !> Open
      type(hdf5_file_type), intent(in) :: file
      !> Of the group
      character(len=*), intent(in) :: path
      !> The library's number of it, to be closed
      integer(hid_t), intent(out) :: group
      !> It is not there, or no group of this file
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: ignored
      group = -1
      if (.not. file%has(path)) then
         call file%fail_with(path//" is missing", error)
         return
      end if
      group = H5Gopen2(file%id, path//c_null_char, H5P_DEFAULT)
      if (group < 0) then
         call file%fail_with(path//" is not a group", error)
      else if (.not. file%owns(group)) then
         ignored = H5Gclose(group)
         call file%fail_with(path//" is a link into another file", error)
      end if
   end subroutine open_group

end module cnn_io_hdf5_groups
