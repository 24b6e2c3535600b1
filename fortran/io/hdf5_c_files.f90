! SPDX-License-Identifier: MIT
!> HDF5's C library: itself, files, groups and lists of properties. See also cnn_io_hdf5_c_values.
!>
!> Declarations only, with C's names. The C library has no module that must be the compiler's own, and these functions
!> are the same in 1.10, 1.12, 1.14 and 2.x. Numbers of open objects, of types and of lists of properties are `hid_t`:
!> of 64 bits since 1.10, negative after an error. A status is 0, or negative. Of functions with several versions the
!> name of one is written out (H5Gopen2).
!>
!> Source.  HDF5 reference manual, https://support.hdfgroup.org/documentation/hdf5/latest/_r_m.html; H5*public.h.
module cnn_io_hdf5_c_files
   use, intrinsic :: iso_c_binding, only : c_char, c_funptr, c_int, c_int64_t, c_ptr, c_size_t
   implicit none
   private

   public :: H5open, H5dont_atexit, H5get_libversion, H5free_memory, H5Eset_auto2, H5Fopen, H5Fcreate, H5Fclose, &
      & H5Fget_name, H5Lexists, H5Lget_name_by_idx, H5Gopen2, H5Gcreate2, H5Gget_info, H5Gclose, H5Pcreate, &
      & H5Pset_create_intermediate_group, H5Pget_layout, H5Pget_external_count, H5Pclose, hdf5_link_create

   !> Numbers of the library for what is open, and lengths
   integer, parameter, public :: hid_t = c_int64_t, hsize_t = c_int64_t

   integer(hid_t), parameter, public :: H5E_DEFAULT = 0, H5P_DEFAULT = 0, H5S_ALL = 0
   integer(c_int), parameter, public :: H5F_ACC_RDONLY = 0, H5F_ACC_EXCL = 4
   integer(c_int), parameter, public :: H5_INDEX_NAME = 0, H5_ITER_INC = 0, H5_ITER_NATIVE = 2
   integer(c_int), parameter, public :: H5D_COMPACT = 0, H5D_CONTIGUOUS = 1, H5D_CHUNKED = 2

   type, bind(C), public :: H5G_info_t
      integer(c_int) :: storage_type = 0
      integer(hsize_t) :: nlinks = 0
      integer(c_int64_t) :: max_corder = 0
      !> A C bool, and what follows it to the end of the structure
      integer(c_int64_t) :: mounted = 0
   end type H5G_info_t

   interface
      !> The library, once a process; calls after the first do nothing
      function H5open() result(status) bind(C, name="H5open")
         import :: c_int
         implicit none
         integer(c_int) :: status
      end function H5open
      !> Not to be closed when the process ends; negative where that was said before, or the library is open
      function H5dont_atexit() result(status) bind(C, name="H5dont_atexit")
         import :: c_int
         implicit none
         integer(c_int) :: status
      end function H5dont_atexit
      !> Version of the library that is used: 1.14.3
      function H5get_libversion(major, minor, release) result(status) bind(C, name="H5get_libversion")
         import :: c_int
         implicit none
         !> 1
         integer(c_int), intent(out) :: major
         !> 14
         integer(c_int), intent(out) :: minor
         !> 3
         integer(c_int), intent(out) :: release
         integer(c_int) :: status
      end function H5get_libversion
      !> Give back memory that the library has allocated
      function H5free_memory(memory) result(status) bind(C, name="H5free_memory")
         import :: c_int, c_ptr
         implicit none
         !> Its address, or null
         type(c_ptr), value :: memory
         integer(c_int) :: status
      end function H5free_memory
      !> What is called for an error: nothing, where `handler` is null
      function H5Eset_auto2(stack, handler, data) result(status) bind(C, name="H5Eset_auto2")
         import :: c_funptr, c_int, c_ptr, hid_t
         implicit none
         !> Stack of errors, `H5E_DEFAULT`
         integer(hid_t), value :: stack
         !> Address of a C function, or null
         type(c_funptr), value :: handler
         !> What is handed to it
         type(c_ptr), value :: data
         integer(c_int) :: status
      end function H5Eset_auto2
      !> An existing file
      function H5Fopen(name, flags, fapl) result(number) bind(C, name="H5Fopen")
         import :: c_char, c_int, hid_t
         implicit none
         !> Name of the file, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> `H5F_ACC_RDONLY`
         integer(c_int), value :: flags
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: fapl
         integer(hid_t) :: number
      end function H5Fopen
      !> A new file
      function H5Fcreate(name, flags, fcpl, fapl) result(number) bind(C, name="H5Fcreate")
         import :: c_char, c_int, hid_t
         implicit none
         !> Name of the file, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> `H5F_ACC_EXCL`: it may not be there
         integer(c_int), value :: flags
         !> List of properties of the file, or `H5P_DEFAULT`
         integer(hid_t), value :: fcpl
         !> List of properties of the access, or `H5P_DEFAULT`
         integer(hid_t), value :: fapl
         integer(hid_t) :: number
      end function H5Fcreate
      function H5Fclose(file) result(status) bind(C, name="H5Fclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the file
         integer(hid_t), value :: file
         integer(c_int) :: status
      end function H5Fclose
      !> Length of the name of the file that an object is in, without the NUL; negative after an error
      function H5Fget_name(object, name, room) result(found) bind(C, name="H5Fget_name")
         import :: c_char, c_size_t, hid_t
         implicit none
         !> File, group, dataset or attribute
         integer(hid_t), value :: object
         !> Letters of `name`, the NUL included
         integer(c_size_t), value :: room
         !> Its name, as much of it as there is room for, and a NUL
         character(kind=c_char), intent(out) :: name(room)
         integer(c_size_t) :: found
      end function H5Fget_name
      !> Whether a link is there: 1, 0, or negative where one before the last is missing
      function H5Lexists(location, name, lapl) result(found) bind(C, name="H5Lexists")
         import :: c_char, c_int, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(c_int) :: found
      end function H5Lexists
      !> Length of the name of a group's nth link, without the NUL; negative after an error
      function H5Lget_name_by_idx(location, group, index, order, n, name, room, lapl) &
         & result(found) bind(C, name="H5Lget_name_by_idx")
         import :: c_char, c_int, c_size_t, hid_t, hsize_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name of the group, with a NUL at its end
         character(kind=c_char), intent(in) :: group(*)
         !> `H5_INDEX_NAME`
         integer(c_int), value :: index
         !> `H5_ITER_NATIVE` or `H5_ITER_INC`
         integer(c_int), value :: order
         !> From 0 on
         integer(hsize_t), value :: n
         !> Letters of `name`, the NUL included
         integer(c_size_t), value :: room
         !> Name of the link, as much of it as there is room for, and a NUL
         character(kind=c_char), intent(out) :: name(room)
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(c_size_t) :: found
      end function H5Lget_name_by_idx
      function H5Gopen2(location, name, gapl) result(number) bind(C, name="H5Gopen2")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: gapl
         integer(hid_t) :: number
      end function H5Gopen2
      !> A new group
      function H5Gcreate2(location, name, lcpl, gcpl, gapl) result(number) bind(C, name="H5Gcreate2")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties of the link, or `H5P_DEFAULT`
         integer(hid_t), value :: lcpl
         !> List of properties of the group, or `H5P_DEFAULT`
         integer(hid_t), value :: gcpl
         !> List of properties of the access, or `H5P_DEFAULT`
         integer(hid_t), value :: gapl
         integer(hid_t) :: number
      end function H5Gcreate2
      !> The number of links of a group, and how it is stored
      function H5Gget_info(group, info) result(status) bind(C, name="H5Gget_info")
         import :: c_int, H5G_info_t, hid_t
         implicit none
         !> Number of the group
         integer(hid_t), value :: group
         !> What is found
         type(H5G_info_t), intent(out) :: info
         integer(c_int) :: status
      end function H5Gget_info
      function H5Gclose(group) result(status) bind(C, name="H5Gclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the group
         integer(hid_t), value :: group
         integer(c_int) :: status
      end function H5Gclose
      !> A new list of properties
      function H5Pcreate(list_class) result(number) bind(C, name="H5Pcreate")
         import :: hid_t
         implicit none
         !> Kind of the list, as `hdf5_link_create`
         integer(hid_t), value :: list_class
         integer(hid_t) :: number
      end function H5Pcreate
      !> Whether groups on the way to a new object are made
      function H5Pset_create_intermediate_group(list, create) &
         & result(status) bind(C, name="H5Pset_create_intermediate_group")
         import :: c_int, hid_t
         implicit none
         !> Number of a list of properties of links
         integer(hid_t), value :: list
         !> 1 for yes, 0 for no
         integer(c_int), value :: create
         integer(c_int) :: status
      end function H5Pset_create_intermediate_group
      !> How the values of a dataset are stored, negative after an error: `H5D_COMPACT`, `H5D_CONTIGUOUS`,
      !> `H5D_CHUNKED`, or virtually
      function H5Pget_layout(list) result(found) bind(C, name="H5Pget_layout")
         import :: c_int, hid_t
         implicit none
         !> Number of the properties of a dataset
         integer(hid_t), value :: list
         integer(c_int) :: found
      end function H5Pget_layout
      !> How many other files hold values of a dataset; negative after an error
      function H5Pget_external_count(list) result(found) bind(C, name="H5Pget_external_count")
         import :: c_int, hid_t
         implicit none
         !> Number of the properties of a dataset
         integer(hid_t), value :: list
         integer(c_int) :: found
      end function H5Pget_external_count
      function H5Pclose(list) result(status) bind(C, name="H5Pclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the list of properties
         integer(hid_t), value :: list
         integer(c_int) :: status
      end function H5Pclose
      !> Kind of a list of properties for new links: `H5P_LINK_CREATE`
      function hdf5_link_create() result(number) bind(C, name="cnn_hdf5_link_create")
         import :: hid_t
         implicit none
         integer(hid_t) :: number
      end function hdf5_link_create
   end interface

end module cnn_io_hdf5_c_files
