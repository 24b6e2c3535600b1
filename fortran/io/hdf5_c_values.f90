! SPDX-License-Identifier: MIT
!> HDF5's C library: data spaces, types, datasets and attributes. See also cnn_io_hdf5_c_files.
!>
!> Declarations only, with C's names.
!>
!> Layout.  Dimensions are in C's order: a Fortran x(w,h,c,n) is the dataset (n,c,h,w), the same bytes.
!> Source.  HDF5 reference manual, https://support.hdfgroup.org/documentation/hdf5/latest/_r_m.html; H5*public.h.
module cnn_io_hdf5_c_values
   use, intrinsic :: iso_c_binding, only : c_char, c_int, c_ptr, c_size_t
   use cnn_io_hdf5_c_files, only : hid_t, hsize_t
   implicit none
   private

   public :: H5Screate_simple, H5Sget_simple_extent_ndims, H5Sget_simple_extent_dims, &
      & H5Sget_simple_extent_npoints, H5Sclose, H5Tcopy, H5Tset_size, H5Tset_strpad, H5Tget_class, H5Tget_size, &
      & H5Tis_variable_str, H5Tclose, H5Dopen2, H5Dcreate2, H5Dget_space, H5Dget_type, H5Dget_create_plist, &
      & H5Dget_space_status, H5Dread, H5Dwrite, H5Dclose, H5Aopen_by_name, H5Acreate_by_name, H5Aexists_by_name, &
      & H5Aget_num_attrs, H5Aget_name_by_idx, H5Aget_type, H5Aget_space, H5Aread, H5Awrite, H5Aclose, &
      & hdf5_native_int, hdf5_native_float, hdf5_native_double, hdf5_c_string

   integer(c_int), parameter, public :: H5T_INTEGER = 0, H5T_FLOAT = 1, H5T_STRING = 3
   integer(c_int), parameter, public :: H5T_STR_NULLPAD = 1
   integer(c_int), parameter, public :: H5D_SPACE_STATUS_NOT_ALLOCATED = 0

   interface
      !> A new data space; a scalar, of no dimension, is rank 0
      function H5Screate_simple(rank, dims, limits) result(number) bind(C, name="H5Screate_simple")
         import :: c_int, c_ptr, hid_t, hsize_t
         implicit none
         !> Number of dimensions
         integer(c_int), value :: rank
         !> Lengths of the dimensions, in C's order
         integer(hsize_t), intent(in) :: dims(*)
         !> Address of their limits, or null for the lengths themselves
         type(c_ptr), value :: limits
         integer(hid_t) :: number
      end function H5Screate_simple
      !> Number of dimensions; negative after an error
      function H5Sget_simple_extent_ndims(space) result(found) bind(C, name="H5Sget_simple_extent_ndims")
         import :: c_int, hid_t
         implicit none
         !> Number of the data space
         integer(hid_t), value :: space
         integer(c_int) :: found
      end function H5Sget_simple_extent_ndims
      !> Number of dimensions, and their lengths; negative after an error
      function H5Sget_simple_extent_dims(space, dims, limits) result(found) bind(C, name="H5Sget_simple_extent_dims")
         import :: c_int, c_ptr, hid_t, hsize_t
         implicit none
         !> Number of the data space
         integer(hid_t), value :: space
         !> Lengths of the dimensions, in C's order
         integer(hsize_t), intent(out) :: dims(*)
         !> Address for their limits, or null
         type(c_ptr), value :: limits
         integer(c_int) :: found
      end function H5Sget_simple_extent_dims
      !> Number of elements; negative after an error
      function H5Sget_simple_extent_npoints(space) result(found) bind(C, name="H5Sget_simple_extent_npoints")
         import :: hid_t, hsize_t
         implicit none
         !> Number of the data space
         integer(hid_t), value :: space
         integer(hsize_t) :: found
      end function H5Sget_simple_extent_npoints
      function H5Sclose(space) result(status) bind(C, name="H5Sclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the data space
         integer(hid_t), value :: space
         integer(c_int) :: status
      end function H5Sclose
      !> A new type like another
      function H5Tcopy(kind) result(number) bind(C, name="H5Tcopy")
         import :: hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         integer(hid_t) :: number
      end function H5Tcopy
      function H5Tset_size(kind, bytes) result(status) bind(C, name="H5Tset_size")
         import :: c_int, c_size_t, hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         !> Size of an element
         integer(c_size_t), value :: bytes
         integer(c_int) :: status
      end function H5Tset_size
      !> How strings end
      function H5Tset_strpad(kind, padding) result(status) bind(C, name="H5Tset_strpad")
         import :: c_int, hid_t
         implicit none
         !> Number of a type of strings
         integer(hid_t), value :: kind
         !> `H5T_STR_NULLPAD`
         integer(c_int), value :: padding
         integer(c_int) :: status
      end function H5Tset_strpad
      !> `H5T_INTEGER`, `H5T_FLOAT`, `H5T_STRING` or another class; negative after an error
      function H5Tget_class(kind) result(found) bind(C, name="H5Tget_class")
         import :: c_int, hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         integer(c_int) :: found
      end function H5Tget_class
      !> Bytes of an element; 0 after an error
      function H5Tget_size(kind) result(found) bind(C, name="H5Tget_size")
         import :: c_size_t, hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         integer(c_size_t) :: found
      end function H5Tget_size
      !> Whether strings have any length, and are addresses in memory: 1, 0, negative after an error
      function H5Tis_variable_str(kind) result(found) bind(C, name="H5Tis_variable_str")
         import :: c_int, hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         integer(c_int) :: found
      end function H5Tis_variable_str
      function H5Tclose(kind) result(status) bind(C, name="H5Tclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the type
         integer(hid_t), value :: kind
         integer(c_int) :: status
      end function H5Tclose
      function H5Dopen2(location, name, dapl) result(number) bind(C, name="H5Dopen2")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: dapl
         integer(hid_t) :: number
      end function H5Dopen2
      !> A new dataset
      function H5Dcreate2(location, name, kind, space, lcpl, dcpl, dapl) result(number) bind(C, name="H5Dcreate2")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> Type of the values in the file
         integer(hid_t), value :: kind
         !> Number of the data space
         integer(hid_t), value :: space
         !> List of properties of the link, or `H5P_DEFAULT`
         integer(hid_t), value :: lcpl
         !> List of properties of the dataset, or `H5P_DEFAULT`
         integer(hid_t), value :: dcpl
         !> List of properties of the access, or `H5P_DEFAULT`
         integer(hid_t), value :: dapl
         integer(hid_t) :: number
      end function H5Dcreate2
      function H5Dget_space(dataset) result(number) bind(C, name="H5Dget_space")
         import :: hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         integer(hid_t) :: number
      end function H5Dget_space
      function H5Dget_type(dataset) result(number) bind(C, name="H5Dget_type")
         import :: hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         integer(hid_t) :: number
      end function H5Dget_type
      !> A copy of the properties that it was created with
      function H5Dget_create_plist(dataset) result(number) bind(C, name="H5Dget_create_plist")
         import :: hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         integer(hid_t) :: number
      end function H5Dget_create_plist
      !> Whether there is room in the file for the values
      function H5Dget_space_status(dataset, found) result(status) bind(C, name="H5Dget_space_status")
         import :: c_int, hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         !> `H5D_SPACE_STATUS_NOT_ALLOCATED`, or that there is some
         integer(c_int), intent(out) :: found
         integer(c_int) :: status
      end function H5Dget_space_status
      !> Values of a dataset, converted to the type in memory
      function H5Dread(dataset, memory_type, memory_space, file_space, dxpl, memory) &
         & result(status) bind(C, name="H5Dread")
         import :: c_int, c_ptr, hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         !> Type of the values in memory
         integer(hid_t), value :: memory_type
         !> Data space in memory, or `H5S_ALL`
         integer(hid_t), value :: memory_space
         !> What is read of the dataset, or `H5S_ALL`
         integer(hid_t), value :: file_space
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: dxpl
         !> Address of the place for the values
         type(c_ptr), value :: memory
         integer(c_int) :: status
      end function H5Dread
      !> The other way
      function H5Dwrite(dataset, memory_type, memory_space, file_space, dxpl, memory) &
         & result(status) bind(C, name="H5Dwrite")
         import :: c_int, c_ptr, hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         !> Type of the values in memory
         integer(hid_t), value :: memory_type
         !> Data space in memory, or `H5S_ALL`
         integer(hid_t), value :: memory_space
         !> What is written of the dataset, or `H5S_ALL`
         integer(hid_t), value :: file_space
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: dxpl
         !> Address of the values
         type(c_ptr), value :: memory
         integer(c_int) :: status
      end function H5Dwrite
      function H5Dclose(dataset) result(status) bind(C, name="H5Dclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the dataset
         integer(hid_t), value :: dataset
         integer(c_int) :: status
      end function H5Dclose
      function H5Aopen_by_name(location, object, name, aapl, lapl) result(number) bind(C, name="H5Aopen_by_name")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name of the group or dataset, with a NUL at its end
         character(kind=c_char), intent(in) :: object(*)
         !> Name of the attribute, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties, or `H5P_DEFAULT`
         integer(hid_t), value :: aapl
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(hid_t) :: number
      end function H5Aopen_by_name
      !> A new attribute
      function H5Acreate_by_name(location, object, name, kind, space, acpl, aapl, lapl) &
         & result(number) bind(C, name="H5Acreate_by_name")
         import :: c_char, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name of the group or dataset, with a NUL at its end
         character(kind=c_char), intent(in) :: object(*)
         !> Name of the attribute, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> Type of the values in the file
         integer(hid_t), value :: kind
         !> Number of the data space
         integer(hid_t), value :: space
         !> List of properties of the attribute, or `H5P_DEFAULT`
         integer(hid_t), value :: acpl
         !> List of properties of the access, or `H5P_DEFAULT`
         integer(hid_t), value :: aapl
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(hid_t) :: number
      end function H5Acreate_by_name
      !> Whether it is there: 1, 0, negative after an error
      function H5Aexists_by_name(location, object, name, lapl) result(found) bind(C, name="H5Aexists_by_name")
         import :: c_char, c_int, hid_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name of the group or dataset, with a NUL at its end
         character(kind=c_char), intent(in) :: object(*)
         !> Name of the attribute, with a NUL at its end
         character(kind=c_char), intent(in) :: name(*)
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(c_int) :: found
      end function H5Aexists_by_name
      !> How many attributes an object has; negative after an error
      function H5Aget_num_attrs(object) result(found) bind(C, name="H5Aget_num_attrs")
         import :: c_int, hid_t
         implicit none
         !> Group or dataset
         integer(hid_t), value :: object
         integer(c_int) :: found
      end function H5Aget_num_attrs
      !> Length of the name of an object's nth attribute, without the NUL; negative after an error
      function H5Aget_name_by_idx(location, object, index, order, n, name, room, lapl) &
         & result(found) bind(C, name="H5Aget_name_by_idx")
         import :: c_char, c_int, c_size_t, hid_t, hsize_t
         implicit none
         !> File or group that the name begins in
         integer(hid_t), value :: location
         !> Name of the group or dataset, with a NUL at its end
         character(kind=c_char), intent(in) :: object(*)
         !> `H5_INDEX_NAME`
         integer(c_int), value :: index
         !> `H5_ITER_INC`
         integer(c_int), value :: order
         !> From 0 on
         integer(hsize_t), value :: n
         !> Letters of `name`, the NUL included
         integer(c_size_t), value :: room
         !> Name of the attribute, as much of it as there is room for, and a NUL
         character(kind=c_char), intent(out) :: name(room)
         !> List of properties of the way there, or `H5P_DEFAULT`
         integer(hid_t), value :: lapl
         integer(c_size_t) :: found
      end function H5Aget_name_by_idx
      function H5Aget_type(attribute) result(number) bind(C, name="H5Aget_type")
         import :: hid_t
         implicit none
         !> Number of the attribute
         integer(hid_t), value :: attribute
         integer(hid_t) :: number
      end function H5Aget_type
      function H5Aget_space(attribute) result(number) bind(C, name="H5Aget_space")
         import :: hid_t
         implicit none
         !> Number of the attribute
         integer(hid_t), value :: attribute
         integer(hid_t) :: number
      end function H5Aget_space
      !> Values of an attribute, converted to the type in memory
      function H5Aread(attribute, memory_type, memory) result(status) bind(C, name="H5Aread")
         import :: c_int, c_ptr, hid_t
         implicit none
         !> Number of the attribute
         integer(hid_t), value :: attribute
         !> Type of the values in memory
         integer(hid_t), value :: memory_type
         !> Address of the place for the values
         type(c_ptr), value :: memory
         integer(c_int) :: status
      end function H5Aread
      !> The other way
      function H5Awrite(attribute, memory_type, memory) result(status) bind(C, name="H5Awrite")
         import :: c_int, c_ptr, hid_t
         implicit none
         !> Number of the attribute
         integer(hid_t), value :: attribute
         !> Type of the values in memory
         integer(hid_t), value :: memory_type
         !> Address of the values
         type(c_ptr), value :: memory
         integer(c_int) :: status
      end function H5Awrite
      function H5Aclose(attribute) result(status) bind(C, name="H5Aclose")
         import :: c_int, hid_t
         implicit none
         !> Number of the attribute
         integer(hid_t), value :: attribute
         integer(c_int) :: status
      end function H5Aclose
      !> The type of C's int
      function hdf5_native_int() result(number) bind(C, name="cnn_hdf5_native_int")
         import :: hid_t
         implicit none
         integer(hid_t) :: number
      end function hdf5_native_int
      !> The type of real32
      function hdf5_native_float() result(number) bind(C, name="cnn_hdf5_native_float")
         import :: hid_t
         implicit none
         integer(hid_t) :: number
      end function hdf5_native_float
      !> The type of real64
      function hdf5_native_double() result(number) bind(C, name="cnn_hdf5_native_double")
         import :: hid_t
         implicit none
         integer(hid_t) :: number
      end function hdf5_native_double
      !> A type of strings, to be copied and given a length
      function hdf5_c_string() result(number) bind(C, name="cnn_hdf5_c_string")
         import :: hid_t
         implicit none
         integer(hid_t) :: number
      end function hdf5_c_string
   end interface

end module cnn_io_hdf5_c_values
