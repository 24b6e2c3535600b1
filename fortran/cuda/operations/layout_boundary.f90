! SPDX-License-Identifier: MIT
!> The ends of a fused sequence of convolutions that keeps its tensors in a form of its own: channels last, and perhaps
!> 16 bits.
!>
!>     places = places_type()                        ! first to count, then with memory
!>     call places%place(boundary, x, dtype)
!>     call bring_in(device, boundary, between, error)   ! boundary%inside is x in the sequence's form
!>
!> A tensor that is the same bytes in both forms is not copied.
module cnn_cuda_operations_layout_boundary
   use, intrinsic :: iso_c_binding, only : c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, i8
   use cnn_core_tensor, only : address_after, aligned, extent_of, tensor_type
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_nhwc, only : is_flat, to_nchw, to_nhwc
   implicit none
   private

   public :: bring_in, bring_out

   !> A tensor outside, in the element type and layout of the network, and the one inside that stands for it
   type, public :: boundary_type
      type(tensor_type) :: outside, inside
   end type boundary_type

   !> Memory that is given out piece by piece; without an address it only counts
   type, public :: places_type
      type(c_ptr) :: base = c_null_ptr
      integer(i8) :: bytes = 0
   contains
      procedure :: place
      procedure :: room
   end type places_type

contains

   !> Where the tensor that stands for `outside` lies
   subroutine place(self, boundary, outside, dtype)
      class(places_type), intent(inout) :: self
      !> The tensor and what stands for it; both are set
      type(boundary_type), intent(inout) :: boundary
      !> In the network's element type and layout; may be empty
      type(tensor_type), intent(in) :: outside
      !> Element type inside, of cnn_core_kinds
      integer, intent(in) :: dtype
      boundary%outside = outside
      boundary%inside = outside
      if (.not. is_changed(outside, dtype)) return
      boundary%inside = self%room(outside%extent, dtype)
   end subroutine place

   !> A tensor in the next free memory
   function room(self, extent, dtype) result(tensor)
      class(places_type), intent(inout) :: self
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      type(tensor_type) :: tensor
      tensor%dtype = dtype
      tensor%extent = extent_of(extent)
      tensor%address = address_after(self%base, self%bytes)
      self%bytes = self%bytes + aligned(product(int(extent, i8))*bytes_of(dtype))
   end function room

   !> Whether a tensor has other bytes inside; one without memory stands for itself
   logical function is_changed(outside, dtype)
      !> The tensor
      type(tensor_type), intent(in) :: outside
      !> Element type inside, of cnn_core_kinds
      integer, intent(in) :: dtype
      is_changed = outside%is_allocated() .and. (outside%dtype /= dtype .or. .not. is_flat(outside%extent))
   end function is_changed

   !> From outside to inside; `between` has room for the tensor inside
   subroutine bring_in(device, boundary, between, error)
      type(cuda_device_type), intent(inout) :: device
      !> A tensor and what stands for it, of `place`, with memory
      type(boundary_type), intent(in) :: boundary
      !> Scratch memory, *device*, for the tensor inside
      type(c_ptr), intent(in) :: between
      type(error_type), allocatable, intent(out) :: error
      if (.not. is_changed(boundary%outside, boundary%inside%dtype)) return
      call to_nhwc(device, boundary%outside, boundary%inside, between, error)
   end subroutine bring_in

   !> From inside to outside
   subroutine bring_out(device, boundary, between, error)
      type(cuda_device_type), intent(inout) :: device
      !> A tensor and what stands for it, of `place`, with memory
      type(boundary_type), intent(in) :: boundary
      !> Scratch memory, *device*, for the tensor inside
      type(c_ptr), intent(in) :: between
      type(error_type), allocatable, intent(out) :: error
      if (.not. is_changed(boundary%outside, boundary%inside%dtype)) return
      call to_nchw(device, boundary%inside, boundary%outside, between, error)
   end subroutine bring_out

end module cnn_cuda_operations_layout_boundary
