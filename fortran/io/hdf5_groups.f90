! SPDX-License-Identifier: MIT
!> Groups of an HDF5 file: names of their members and attributes, and copies.
module cnn_io_hdf5_groups
   use cnn_core_error, only : error_type
   use cnn_core_text, only : name_type, to_text
   use cnn_io_hdf5_file, only : hdf5_file_type
   use hdf5
   implicit none
   private

   public :: attribute_names, group_members

   !> Longest name of an object or an attribute
   integer(size_t), parameter :: longest_name = 128
   !> Most members or attributes of a group
   integer, parameter :: most = 10000

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
      integer(size_t) :: length
      integer :: count, i, status, ignored, kind, corder
      character(len=longest_name) :: name

      allocate (names(0))
      call open_group(file, path, group, error)
      if (allocated(error)) return
      call h5gget_info_f(group, kind, count, corder, status)
      if (status == 0 .and. count > most) then
         call file%fail_with(path//" has "//to_text(count)//" members, expected "//to_text(most)//" at most", error)
      else if (status == 0) then
         deallocate (names)
         allocate (names(count))
         do i = 1, count
            name = ""
            call h5lget_name_by_idx_f(group, ".", H5_INDEX_NAME_F, H5_ITER_NATIVE_F, int(i - 1, hsize_t), name, &
               & status, length)
            if (status /= 0 .or. length > longest_name) status = -1
            if (status /= 0) exit
            names(i)%text = trim(name)
         end do
      end if
      call h5gclose_f(group, ignored)
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
      integer(hid_t) :: group, attribute
      integer :: count, i, status, ignored
      character(len=longest_name) :: name

      allocate (names(0))
      call open_group(file, path, group, error)
      if (allocated(error)) return
      call h5aget_num_attrs_f(group, count, status)
      if (status == 0 .and. count > most) status = -1
      if (status == 0) then
         deallocate (names)
         allocate (names(count))
         do i = 1, count
            name = ""
            call h5aopen_by_idx_f(group, ".", H5_INDEX_NAME_F, H5_ITER_INC_F, int(i - 1, hsize_t), attribute, status)
            if (status /= 0) exit
            call h5aget_name_f(attribute, longest_name, name, status)
            call h5aclose_f(attribute, ignored)
            ! The library returns the length of the name
            if (status < 0 .or. status > longest_name) exit
            names(i)%text = trim(name)
            status = 0
         end do
      end if
      call h5gclose_f(group, ignored)
      if (status /= 0) call file%fail_with("the attributes of "//path//" cannot be read", error)
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
      integer :: status
      group = -1
      if (.not. file%has(path)) then
         call file%fail_with(path//" is missing", error)
         return
      end if
      call h5gopen_f(file%id, path, group, status)
      if (status /= 0) then
         call file%fail_with(path//" is not a group", error)
      else if (.not. file%owns(group)) then
         call h5gclose_f(group, status)
         call file%fail_with(path//" is a link into another file", error)
      end if
   end subroutine open_group

end module cnn_io_hdf5_groups
