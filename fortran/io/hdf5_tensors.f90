! SPDX-License-Identifier: MIT
!> Real tensors in an HDF5 file.
!>
!> Layout.  Dimensions are reversed on their way to C, as HDF5's Fortran library does, so a Fortran x(w,h,c,n) is the
!>          dataset (n,c,h,w) that h5py and torch see: the same bytes, nothing to transpose.
!> Values are converted by the HDF5 library when the file's precision differs from the tensor's.
module cnn_io_hdf5_tensors
   use, intrinsic :: iso_c_binding, only : c_int, c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32
   use cnn_core_tensor, only : max_rank, shape_text, tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_hdf5_c, only : cnn_hdf5_link_create, cnn_hdf5_native_double, cnn_hdf5_native_float, &
      & H5D_SPACE_STATUS_NOT_ALLOCATED, H5Dclose, H5Dcreate2, H5Dget_space, H5Dget_space_status, H5Dget_type, &
      & H5Dread, H5Dwrite, H5P_DEFAULT, H5Pclose, H5Pcreate, H5Pset_create_intermediate_group, H5S_ALL, H5Sclose, &
      & H5Screate_simple, H5Sget_simple_extent_dims, H5Sget_simple_extent_ndims, H5T_FLOAT, H5Tclose, H5Tget_class, &
      & H5Tget_size, hid_t, hsize_t
   use cnn_io_hdf5_handle, only : hdf5_handle_type
   implicit none
   private

   type, extends(hdf5_handle_type), public :: hdf5_tensors_type
   contains
      procedure :: extent
      procedure :: read_tensor
      procedure :: write_tensor
      procedure :: write_scalar
      procedure :: write_values
   end type hdf5_tensors_type

contains

   !> Shape of a dataset of real numbers, in Fortran order; the missing ones are 1.
   !> With `expected_rank`, another number of dimensions is an error.
   subroutine extent(self, name, found, error, expected_rank, found_rank)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Lengths of its dimensions
      integer, intent(out) :: found(max_rank)
      !> Dataset that is missing, empty, of another type, or of another number of dimensions
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that it must have
      integer, intent(in), optional :: expected_rank
      !> Number of dimensions that it has; 0 after an error
      integer, intent(out), optional :: found_rank
      integer(hid_t) :: dataset, space, kind
      integer(hsize_t) :: dims(max_rank)
      integer(c_size_t) :: bytes
      integer(c_int) :: rank, kind_class, place, ignored

      found = 0
      if (present(found_rank)) found_rank = 0
      call self%open_dataset(name, dataset, error)
      if (allocated(error)) return
      dims = 1
      space = H5Dget_space(dataset)
      rank = H5Sget_simple_extent_ndims(space)
      if (rank >= 1 .and. rank <= max_rank) ignored = H5Sget_simple_extent_dims(space, dims, c_null_ptr)
      ignored = H5Sclose(space)
      kind = H5Dget_type(dataset)
      kind_class = H5Tget_class(kind)
      bytes = H5Tget_size(kind)
      ignored = H5Tclose(kind)
      if (H5Dget_space_status(dataset, place) < 0) place = H5D_SPACE_STATUS_NOT_ALLOCATED
      ignored = H5Dclose(dataset)

      if (kind_class /= H5T_FLOAT .or. .not. (bytes == 4 .or. bytes == 8)) then
         call self%fail_with(name//" does not hold float32 or float64", error)
      else if (rank < 0 .or. rank > max_rank) then
         call self%fail_with(name//" has "//to_text(rank)//" dimensions, expected at most "//to_text(max_rank), error)
      else if (any(dims < 1)) then
         call self%fail_with(name//" is empty", error)
      else if (any(dims > huge(1)) .or. product(real(dims, dp)) > 2.0_dp**40) then
         call self%fail_with(name//" declares an absurd shape", error)
      else if (place == H5D_SPACE_STATUS_NOT_ALLOCATED) then
         call self%fail_with(name//" declares a shape but holds no data", error)
      else
         found = 1
         found(:rank) = int(dims(rank:1:-1))
         if (present(found_rank)) found_rank = rank
      end if
      if (allocated(error) .or. .not. present(expected_rank)) return
      if (rank /= expected_rank) call self%fail_with(name//" has "//to_text(rank)//" dimensions, expected "// &
         & to_text(expected_rank), error)
   end subroutine extent

   !> A dataset in another memory order (docs/exchange-file.md) is for the comparison alone, which reads it in Python
   subroutine refuse_layout(self, name, error)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Dataset that says it is in another order
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
   subroutine read_tensor(self, name, tensor, error, expected_rank)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Host tensor that is filled
      type(tensor_type), intent(in) :: tensor
      !> Dataset that is missing, damaged, or of another shape
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that it must have, where the caller knows it: ones before the others are no extents
      integer, intent(in), optional :: expected_rank
      integer(hid_t) :: dataset
      integer :: found(max_rank)
      integer(c_int) :: status, ignored

      call self%extent(name, found, error, expected_rank)
      if (allocated(error)) return
      call refuse_layout(self, name, error)
      if (allocated(error)) return
      if (any(found /= tensor%extent)) then
         call self%fail_with(name//" has the shape "//shape_text(found)//", expected "//shape_text(tensor%extent), &
            & error)
         return
      end if
      call self%open_dataset(name, dataset, error)
      if (allocated(error)) return
      if (associated(self%alive)) call self%alive(tensor%bytes())
      status = H5Dread(dataset, memory_type(tensor%dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor%address)
      ignored = H5Dclose(dataset)
      if (status /= 0) call self%fail_with(name//" could not be read (truncated file?)", error)
   end subroutine read_tensor

   !> Write a host tensor as a dataset of its first `rank` dimensions
   subroutine write_tensor(self, name, tensor, rank, error)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Host tensor that is written
      type(tensor_type), intent(in) :: tensor
      !> Number of dimensions of the dataset
      integer, intent(in) :: rank
      type(error_type), allocatable, intent(out) :: error
      call self%write_values(name, memory_type(tensor%dtype), tensor%extent(:rank), tensor%address, error)
   end subroutine write_tensor

   !> Write one float64
   subroutine write_scalar(self, name, value, error)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Number that is written
      real(dp), intent(in) :: value
      type(error_type), allocatable, intent(out) :: error
      real(dp), target :: copy
      copy = value
      call self%write_values(name, cnn_hdf5_native_double(), [integer ::], c_loc(copy), error)
   end subroutine write_scalar

   subroutine write_values(self, name, kind, extent, address, error)
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> Lengths of the dimensions, in Fortran's order; none for a scalar
      integer, intent(in) :: extent(:)
      !> Address of the values, host memory
      type(c_ptr), intent(in) :: address
      type(error_type), allocatable, intent(out) :: error
      integer(hid_t) :: links, space, dataset
      integer(c_int) :: status, ignored

      dataset = -1
      links = H5Pcreate(cnn_hdf5_link_create())
      status = H5Pset_create_intermediate_group(links, 1_c_int)
      ! A scalar has no extents
      space = H5Screate_simple(size(extent, kind=c_int), int(extent(size(extent):1:-1), hsize_t), c_null_ptr)
      if (status == 0) dataset = H5Dcreate2(self%id, name//c_null_char, kind, space, links, H5P_DEFAULT, H5P_DEFAULT)
      status = H5Dwrite(dataset, kind, H5S_ALL, H5S_ALL, H5P_DEFAULT, address)
      if (dataset >= 0) ignored = H5Dclose(dataset)
      ignored = H5Sclose(space)
      ignored = H5Pclose(links)
      if (status /= 0) call self%fail_with(name//" could not be written (no room on the disk?)", error)
   end subroutine write_values

   integer(hid_t) function memory_type(dtype)
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      memory_type = cnn_hdf5_native_double()
      if (dtype == dtype_float32) memory_type = cnn_hdf5_native_float()
   end function memory_type

end module cnn_io_hdf5_tensors
