! SPDX-License-Identifier: MIT
!> The caller's arrays as the tensors of a network, without a copy where they have no gaps.
module cnn_library_arrays
   use, intrinsic :: iso_c_binding, only : c_associated, c_loc, c_ptr
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, dtype_none, i8, sp
   use cnn_core_tensor, only : max_rank, tensor_type
   use cnn_core_text, only : list_length, shape_list
   use cnn_library_any_kind, only : integer_of, integers_of
   implicit none
   private

   public :: array_at, device_array, give_back, take

   !> Where an array is, what it is made of, and its shape
   type, public :: array_type
      !> Without an element type where the array cannot be a tensor's
      type(tensor_type) :: tensor
      integer :: rank = 0
      logical :: on_device = .false.
      !> The numbers of an array with gaps
      real(sp), allocatable :: packed_sp(:)
      real(dp), allocatable :: packed_dp(:)
   contains
      procedure :: shape_text
   end type array_type

   !> An array in host memory is used where it is; what has gaps, as x(:, :, :, ::2), is packed. Who declares an
   !> argument contiguous gets a copy from gfortran 12 of every array of assumed shape, with gaps or without
   interface take
      module procedure take_sp
      module procedure take_dp
   end interface take

   !> An array with gaps gets what was written
   interface give_back
      module procedure give_back_sp
      module procedure give_back_dp
   end interface give_back

contains

   subroutine take_sp(x, array)
      !> Of one to eight dimensions
      real(sp), target, intent(in) :: x(..)
      !> Describes it, while the call runs that it is given to, and not after it
      type(array_type), target, intent(out) :: array
      array = array_at(c_loc(x), dtype_float32, shape(x))
      if (is_contiguous(x) .or. array%tensor%dtype == dtype_none .or. .not. c_associated(array%tensor%address)) return
      allocate (array%packed_sp(size(x, kind=i8)))
      select rank (x)
       rank (1)
         array%packed_sp = x
       rank (2)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (3)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (4)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (5)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (6)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (7)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
       rank (8)
         array%packed_sp = reshape(x, [size(x, kind=i8)])
      end select
      array%tensor%address = c_loc(array%packed_sp)
   end subroutine take_sp

   subroutine give_back_sp(array, x)
      !> After the call
      type(array_type), intent(in) :: array
      !> That was taken; has what the call wrote
      real(sp), intent(inout) :: x(..)
      if (.not. allocated(array%packed_sp)) return
      select rank (x)
       rank (1)
         x = array%packed_sp
       rank (2)
         x = reshape(array%packed_sp, shape(x))
       rank (3)
         x = reshape(array%packed_sp, shape(x))
       rank (4)
         x = reshape(array%packed_sp, shape(x))
       rank (5)
         x = reshape(array%packed_sp, shape(x))
       rank (6)
         x = reshape(array%packed_sp, shape(x))
       rank (7)
         x = reshape(array%packed_sp, shape(x))
       rank (8)
         x = reshape(array%packed_sp, shape(x))
      end select
   end subroutine give_back_sp

   subroutine take_dp(x, array)
      !> Of one to eight dimensions
      real(dp), target, intent(in) :: x(..)
      !> Describes it, while the call runs that it is given to, and not after it
      type(array_type), target, intent(out) :: array
      array = array_at(c_loc(x), dtype_float64, shape(x))
      if (is_contiguous(x) .or. array%tensor%dtype == dtype_none .or. .not. c_associated(array%tensor%address)) return
      allocate (array%packed_dp(size(x, kind=i8)))
      select rank (x)
       rank (1)
         array%packed_dp = x
       rank (2)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (3)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (4)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (5)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (6)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (7)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
       rank (8)
         array%packed_dp = reshape(x, [size(x, kind=i8)])
      end select
      array%tensor%address = c_loc(array%packed_dp)
   end subroutine take_dp

   subroutine give_back_dp(array, x)
      !> After the call
      type(array_type), intent(in) :: array
      !> That was taken; has what the call wrote
      real(dp), intent(inout) :: x(..)
      if (.not. allocated(array%packed_dp)) return
      select rank (x)
       rank (1)
         x = array%packed_dp
       rank (2)
         x = reshape(array%packed_dp, shape(x))
       rank (3)
         x = reshape(array%packed_dp, shape(x))
       rank (4)
         x = reshape(array%packed_dp, shape(x))
       rank (5)
         x = reshape(array%packed_dp, shape(x))
       rank (6)
         x = reshape(array%packed_dp, shape(x))
       rank (7)
         x = reshape(array%packed_dp, shape(x))
       rank (8)
         x = reshape(array%packed_dp, shape(x))
      end select
   end subroutine give_back_dp

   !> An array in the memory of a GPU, of CUDA Fortran (`c_devloc(x)`) or OpenACC (`host_data use_device`). It must stay
   !> there while a network works on it
   type(array_type) function device_array(address, extents, kind) result(array)
      !> Of the first element
      type(c_ptr), intent(in) :: address
      !> One to eight, as Fortran's `shape`
      class(*), intent(in) :: extents(:)
      !> Of its real numbers: `sp` or `dp`
      class(*), intent(in) :: kind
      integer :: dtype
      dtype = dtype_none
      if (integer_of(kind) == sp) dtype = dtype_float32
      if (integer_of(kind) == dp) dtype = dtype_float64
      array = array_at(address, dtype, integers_of(extents))
      array%on_device = .true.
   end function device_array

   !> An array of any element type, in any memory
   type(array_type) function array_at(address, dtype, extents) result(array)
      !> Of the first element
      type(c_ptr), intent(in) :: address
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> As Fortran's `shape`
      integer, intent(in) :: extents(:)
      array%rank = size(extents)
      array%tensor%address = address
      array%tensor%extent = 1
      array%tensor%extent(:min(array%rank, max_rank)) = extents(:min(array%rank, max_rank))
      if (array%rank >= 1 .and. array%rank <= max_rank) array%tensor%dtype = dtype
   end function array_at

   !> As its reader writes it: (w, h, c, n) in Fortran
   pure function shape_text(self) result(text)
      !> The array
      class(array_type), intent(in) :: self
      character(len=list_length(self%tensor%extent(:min(self%rank, max_rank)))) :: text
      text = shape_list(self%tensor%extent(:min(self%rank, max_rank)))
   end function shape_text

end module cnn_library_arrays
