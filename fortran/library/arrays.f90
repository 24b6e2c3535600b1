! SPDX-License-Identifier: MIT
!> The caller's arrays as the tensors of a network, without a copy.
module cnn_library_arrays
   use, intrinsic :: iso_c_binding, only : c_loc, c_ptr
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, dtype_none, sp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : list_length, shape_list
   use cnn_library_any_kind, only : integer_of, integers_of
   implicit none
   private

   public :: array_at, array_of, device_array

   !> Dimensions that a tensor may have
   integer, parameter :: most = 4

   !> Where an array is, what it is made of, and its shape
   type, public :: array_type
      !> Without an element type where the array cannot be a tensor's
      type(tensor_type) :: tensor
      integer :: rank = 0
      logical :: on_device = .false.
   contains
      procedure :: shape_text
   end type array_type

   !> An array in host memory. It is used while the call runs that it is given to, and not after it
   interface array_of
      module procedure array_of_sp
      module procedure array_of_dp
   end interface array_of

contains

   type(array_type) function array_of_sp(x) result(array)
      !> Of one to four dimensions
      real(sp), contiguous, target, intent(in) :: x(..)
      array = array_at(c_loc(x), dtype_float32, shape(x))
   end function array_of_sp

   type(array_type) function array_of_dp(x) result(array)
      !> Of one to four dimensions
      real(dp), contiguous, target, intent(in) :: x(..)
      array = array_at(c_loc(x), dtype_float64, shape(x))
   end function array_of_dp

   !> An array in the memory of a GPU, of CUDA Fortran (`c_devloc(x)`) or OpenACC (`host_data use_device`). It must stay
   !> there while a network works on it
   type(array_type) function device_array(address, extents, kind) result(array)
      !> Of the first element
      type(c_ptr), intent(in) :: address
      !> One to four, as Fortran's `shape`
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
      array%tensor%extent(:min(array%rank, most)) = extents(:min(array%rank, most))
      if (array%rank >= 1 .and. array%rank <= most) array%tensor%dtype = dtype
   end function array_at

   !> As its reader writes it: (w, h, c, n) in Fortran
   pure function shape_text(self) result(text)
      !> The array
      class(array_type), intent(in) :: self
      character(len=list_length(self%tensor%extent(:min(self%rank, most)))) :: text
      text = shape_list(self%tensor%extent(:min(self%rank, most)))
   end function shape_text

end module cnn_library_arrays
