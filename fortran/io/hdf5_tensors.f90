! SPDX-License-Identifier: MIT
!> Real tensors in an HDF5 file.
!>
!> Layout.  The Fortran library reverses dimensions, so a Fortran x(w,h,c,n) is the dataset (n,c,h,w) that h5py and
!>          torch see: the same bytes, nothing to transpose.
!> Values are converted by the HDF5 library when the file's precision differs from the tensor's.
module cnn_io_hdf5_tensors
   use, intrinsic :: iso_c_binding, only : c_loc, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_io_hdf5_handle, only : hdf5_handle_type
   use hdf5
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

   !> Shape of a dataset of real numbers, in Fortran order; the missing ones of four are 1.
   !> With `expected_rank`, another number of dimensions is an error.
   subroutine extent(self, name, found, error, expected_rank, found_rank)
      !> The file, open
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Lengths of its dimensions
      integer, intent(out) :: found(4)
      !> Dataset that is missing, empty, of another type, or of another number of dimensions
      type(error_type), allocatable, intent(out) :: error
      !> Number of dimensions that it must have
      integer, intent(in), optional :: expected_rank
      !> Number of dimensions that it has; 0 after an error
      integer, intent(out), optional :: found_rank
      integer(hid_t) :: dataset, space, kind
      integer(hsize_t) :: dims(4), limits(4)
      integer(size_t) :: bytes
      integer :: rank, class, place, status, ignored

      found = 0
      if (present(found_rank)) found_rank = 0
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
         if (present(found_rank)) found_rank = rank
      end if
      if (allocated(error) .or. .not. present(expected_rank)) return
      if (rank /= expected_rank) call self%fail_with(name//" has "//to_text(rank)//" dimensions, expected "// &
         & to_text(expected_rank), error)
   end subroutine extent

   !> A dataset in another memory order (docs/exchange-file.md) is for the comparison alone, which reads it in Python
   subroutine refuse_layout(self, name, error)
      !> The file, open
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
   subroutine read_tensor(self, name, tensor, error)
      !> The file, open
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Host tensor that is filled
      type(tensor_type), intent(in) :: tensor
      !> Dataset that is missing, damaged, or of another shape
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
      !> The file, open
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Host tensor that is written
      type(tensor_type), intent(in) :: tensor
      !> Number of dimensions of the dataset
      integer, intent(in) :: rank
      !> What is wrong, with the file's name
      type(error_type), allocatable, intent(out) :: error
      call self%write_values(name, memory_type(tensor%dtype), tensor%extent(:rank), tensor%address, error)
   end subroutine write_tensor

   !> Write one float64
   subroutine write_scalar(self, name, value, error)
      !> The file, open
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Number that is written
      real(dp), intent(in), target :: value
      !> What is wrong, with the file's name
      type(error_type), allocatable, intent(out) :: error
      integer :: no_extent(0)
      call self%write_values(name, H5T_NATIVE_DOUBLE, no_extent, c_loc(value), error)
   end subroutine write_scalar

   subroutine write_values(self, name, kind, extent, address, error)
      !> The file, open
      class(hdf5_tensors_type), intent(in) :: self
      !> Name of the dataset, from "/" on
      character(len=*), intent(in) :: name
      !> Type of its values, of the library
      integer(hid_t), intent(in) :: kind
      !> Lengths of the dimensions, in Fortran's order; none for a scalar
      integer, intent(in) :: extent(:)
      !> Address of the values, host memory
      type(c_ptr), intent(in) :: address
      !> What is wrong, with the file's name
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
      !> Lengths of the dimensions, in Fortran's order; none for a scalar
      integer, intent(in) :: extent(:)
      !> The library's number of the new data space
      integer(hid_t), intent(out) :: space
      !> 0 where all went well
      integer, intent(out) :: status
      if (size(extent) == 0) then
         call h5screate_f(H5S_SCALAR_F, space, status)
      else
         call h5screate_simple_f(size(extent), int(extent, hsize_t), space, status)
      end if
   end subroutine create_space

   integer(hid_t) function memory_type(dtype)
      !> Element type, float32 or float64 of cnn_core_kinds
      integer, intent(in) :: dtype
      memory_type = H5T_NATIVE_DOUBLE
      if (dtype == dtype_float32) memory_type = H5T_NATIVE_REAL
   end function memory_type

end module cnn_io_hdf5_tensors
