! SPDX-License-Identifier: MIT
!> A tensor: an address, an element type and a shape; no ownership, no arithmetic.
!>
!> Layout.  `extent` is in Fortran order: numpy and torch `(n, c, h, w)` is `extent = [w, h, c, n]`,
!> the same bytes. Kernels: torch `(k, c, r, s)` is `[s, r, c, k]`. Biases: `[k, 1, 1, 1]`.
!> Memory.  `address` is host or device memory, as its backend decides; the backend that
!> allocated it releases it. A tensor that views somebody else's memory is never released.
module cnn_core_tensor
   use, intrinsic :: iso_c_binding, only : c_associated, c_f_pointer, c_intptr_t, c_null_ptr, c_ptr
   use cnn_core_kinds, only : bytes_of, dp, dtype_float32, dtype_none, i8, sp
   use cnn_core_text, only : list_length, shape_list
   implicit none
   private

   public :: address_after, aligned, all_finite, as_vector, extent_of, images_of, part_of, same_memory, same_shape, &
      & shape_text

   !> Most dimensions of a tensor; a tensor of fewer has extents of 1 behind its own
   integer, parameter, public :: max_rank = 8

   type, public :: tensor_type
      type(c_ptr) :: address = c_null_ptr
      integer :: dtype = dtype_none
      integer :: extent(max_rank) = 0
      !> Channels are the fastest index in memory, (c, w, h, n) with these extents; only what says so takes such tensors
      logical :: channels_last = .false.
   contains
      procedure :: count => tensor_count
      procedure :: bytes => tensor_bytes
      procedure :: is_allocated => tensor_is_allocated
   end type tensor_type

   !> All elements of a host tensor as one Fortran vector, without a copy
   interface as_vector
      module procedure as_vector_sp
      module procedure as_vector_dp
   end interface as_vector

   !> Elements that one thread looks at in one go, and more than it takes to wake the others
   integer(i8), parameter :: block = 8192_i8, few = 65536_i8
   !> Sums that do not wait for each other
   integer, parameter :: chains = 32

contains

   !> Number of elements
   pure integer(i8) function tensor_count(self)
      class(tensor_type), intent(in) :: self
      tensor_count = product(int(self%extent, i8))
   end function tensor_count

   !> Size of the elements, in bytes; 2**62, for which there is no memory, when it is that or more
   pure integer(i8) function tensor_bytes(self)
      class(tensor_type), intent(in) :: self
      integer(i8), parameter :: too_many = 2_i8**62
      tensor_bytes = too_many
      if (product(real(self%extent, dp))*bytes_of(self%dtype) < real(too_many, dp)) then
         tensor_bytes = self%count() * bytes_of(self%dtype)
      end if
   end function tensor_bytes

   logical function tensor_is_allocated(self)
      class(tensor_type), intent(in) :: self
      tensor_is_allocated = c_associated(self%address)
   end function tensor_is_allocated

   pure logical function same_shape(a, b)
      !> A tensor; its elements are not looked at
      type(tensor_type), intent(in) :: a
      !> Another, compared by element type and extents
      type(tensor_type), intent(in) :: b
      same_shape = a%dtype == b%dtype .and. all(a%extent == b%extent)
   end function same_shape

   !> Whether two tensors begin at the same address
   logical function same_memory(a, b)
      !> A tensor
      type(tensor_type), intent(in) :: a
      !> Another
      type(tensor_type), intent(in) :: b
      same_memory = c_associated(a%address, b%address)
   end function same_memory

   !> A tensor inside the memory of another, `offset` bytes after its start
   function part_of(whole, offset, extent) result(part)
      !> The tensor whose memory it is
      type(tensor_type), intent(in) :: whole
      !> Bytes
      integer(i8), intent(in) :: offset
      !> Extents of the part, in Fortran order; the element type is that of the whole
      integer, intent(in) :: extent(:)
      type(tensor_type) :: part
      part%address = address_after(whole%address, offset)
      part%dtype = whole%dtype
      part%extent = extent_of(extent)
   end function part_of

   !> All extents of a tensor of these
   pure function extent_of(extents) result(extent)
      !> `max_rank` at most, in Fortran order
      integer, intent(in) :: extents(:)
      integer :: extent(max_rank)
      extent = 1
      extent(:size(extents)) = extents
   end function extent_of

   !> Some images of a tensor, in its memory
   function images_of(whole, rank, first, images) result(part)
      !> Of all images
      type(tensor_type), intent(in) :: whole
      !> Its dimensions, of which the last is that of the images
      integer, intent(in) :: rank
      !> Images before them
      integer, intent(in) :: first
      !> How many
      integer, intent(in) :: images
      type(tensor_type) :: part
      integer :: extent(max_rank)
      extent = whole%extent
      extent(rank) = images
      part = part_of(whole, whole%bytes()/whole%extent(rank)*first, extent)
   end function images_of

   !> Bytes, rounded up to where the next tensor in the same piece of memory may start: 256, as CUDA's allocations do
   pure integer(i8) function aligned(bytes)
      !> Size of a tensor
      integer(i8), intent(in) :: bytes
      integer(i8), parameter :: alignment = 256_i8
      aligned = (bytes + alignment - 1)/alignment*alignment
   end function aligned

   !> The address `bytes` bytes after this one
   pure type(c_ptr) function address_after(address, bytes)
      !> Host or device memory
      type(c_ptr), intent(in) :: address
      !> May be negative
      integer(i8), intent(in) :: bytes
      address_after = transfer(transfer(address, 0_c_intptr_t) + int(bytes, c_intptr_t), address)
   end function address_after

   !> No NaN and no infinity among n elements in host memory
   logical function all_finite(address, dtype, n)
      !> The first element, host memory
      type(c_ptr), intent(in) :: address
      !> `dtype_float32` or `dtype_float64`
      integer, intent(in) :: dtype
      !> Number of elements
      integer(i8), intent(in) :: n
      real(sp), pointer, contiguous :: single(:)
      real(dp), pointer, contiguous :: double(:)
      integer(i8) :: i
      all_finite = .true.
      if (dtype == dtype_float32) then
         call c_f_pointer(address, single, [n])
         !$omp parallel do reduction(.and.:all_finite) schedule(static) if (n > few)
         do i = 1, n, block
            all_finite = all_finite .and. finite_sp(single(i:min(i + block - 1, n)))
         end do
         !$omp end parallel do
      else
         call c_f_pointer(address, double, [n])
         !$omp parallel do reduction(.and.:all_finite) schedule(static) if (n > few)
         do i = 1, n, block
            all_finite = all_finite .and. finite_dp(double(i:min(i + block - 1, n)))
         end do
         !$omp end parallel do
      end if
   end function all_finite

   !> x - x is 0, or NaN where x is not finite: summed in several chains, each a vector or two wide
   pure logical function finite_sp(x)
      !> A block of the elements
      real(sp), contiguous, intent(in) :: x(:)
      real(sp) :: nothing(chains)
      integer :: i, j
      nothing = 0.0_sp
      do i = 0, size(x) - chains, chains
         !$omp simd
         do j = 1, chains
            nothing(j) = nothing(j) + (x(i + j) - x(i + j))
         end do
      end do
      do j = i + 1, size(x)
         nothing(1) = nothing(1) + (x(j) - x(j))
      end do
      finite_sp = all(nothing >= 0.0_sp)
   end function finite_sp

   pure logical function finite_dp(x)
      !> A block of the elements
      real(dp), contiguous, intent(in) :: x(:)
      real(dp) :: nothing(chains)
      integer :: i, j
      nothing = 0.0_dp
      do i = 0, size(x) - chains, chains
         !$omp simd
         do j = 1, chains
            nothing(j) = nothing(j) + (x(i + j) - x(i + j))
         end do
      end do
      do j = i + 1, size(x)
         nothing(1) = nothing(1) + (x(j) - x(j))
      end do
      finite_dp = all(nothing >= 0.0_dp)
   end function finite_dp

   !> Dimensions that are not left out: four, or those up to the last that is not 1
   pure integer function shown(extent)
      !> In Fortran order
      integer, intent(in) :: extent(:)
      shown = max(min(4, size(extent)), findloc(extent /= 1, .true., 1, back=.true.))
   end function shown

   !> The shape as its reader writes it, torch `(n, c, h, w)`, or more dimensions where it has them
   pure function shape_text(extent) result(text)
      !> Extents in Fortran order (w, h, c, n)
      integer, intent(in) :: extent(:)
      character(len=list_length(extent(:shown(extent)))) :: text
      text = shape_list(extent(:shown(extent)))
   end function shape_text

   subroutine as_vector_sp(tensor, vector)
      !> A tensor of dtype float32, host memory
      type(tensor_type), intent(in) :: tensor
      !> The tensor's elements in the order of memory
      real(sp), pointer, contiguous, intent(out) :: vector(:)
      call c_f_pointer(tensor%address, vector, [tensor%count()])
   end subroutine as_vector_sp

   subroutine as_vector_dp(tensor, vector)
      !> A tensor of dtype float64, host memory
      type(tensor_type), intent(in) :: tensor
      !> The tensor's elements in the order of memory
      real(dp), pointer, contiguous, intent(out) :: vector(:)
      call c_f_pointer(tensor%address, vector, [tensor%count()])
   end subroutine as_vector_dp

end module cnn_core_tensor
