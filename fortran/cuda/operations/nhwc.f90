! SPDX-License-Identifier: MIT
!> What tensors with channels last, (c, w, h, n) in memory, need besides convolutions: the way there and back, and ReLU
!> backward with the bias gradient. By our CUDA Fortran kernels, for float32, float16 and bfloat16.
module cnn_cuda_operations_nhwc
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_channel_sums, kernel_relu_backward_nhwc, kernel_transpose, &
      & threads_per_block
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_pointwise, only : convert
   use cnn_cuda_operations_sums, only : most_blocks, reserve_sums, sums_to_gradient
   implicit none
   private

   public :: bias_gradient_nhwc, is_flat, relu_backward_nhwc, to_nchw, to_nhwc

   !> Blocks of a kernel that only goes through its elements
   integer, parameter :: most_transposing = 4096

contains

   !> Whether both layouts are the same bytes
   pure logical function is_flat(extent)
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      is_flat = extent(3) == 1 .or. product(extent(1:2)) == 1
   end function is_flat

   !> from (w, h, c, n) to (c, w, h, n), in another element type or the same; `between` has room in that of `to`
   subroutine to_nhwc(device, from, to, between, error)
      type(cuda_device_type), intent(inout) :: device
      !> What is read, NCHW, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, NHWC, *device*; the same extents (w, h, c, n)
      type(tensor_type), intent(in) :: to
      !> Scratch memory, *device*; not used where the types agree
      type(c_ptr), intent(in) :: between
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: source
      source = from
      if (is_flat(from%extent)) then
         call convert(device, from, to, error)
         return
      end if
      if (from%dtype /= to%dtype) then
         source = to
         source%address = between
         call convert(device, from, source, error)
         if (allocated(error)) return
      end if
      call transpose_images(device, product(int(from%extent(1:2), i8)), int(from%extent(3), i8), source, to, error)
   end subroutine to_nhwc

   !> from (c, w, h, n) to (w, h, c, n); `between` has room in the element type of `from`
   subroutine to_nchw(device, from, to, between, error)
      type(cuda_device_type), intent(inout) :: device
      !> What is read, NHWC, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, NCHW, *device*; the same extents (w, h, c, n)
      type(tensor_type), intent(in) :: to
      !> Scratch memory, *device*; not used where the types agree
      type(c_ptr), intent(in) :: between
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: transposed
      if (is_flat(from%extent)) then
         call convert(device, from, to, error)
         return
      end if
      transposed = to
      if (from%dtype /= to%dtype) then
         transposed = from
         transposed%address = between
      end if
      call transpose_images(device, int(from%extent(3), i8), product(int(from%extent(1:2), i8)), from, transposed, &
         & error)
      if (allocated(error)) return
      if (from%dtype /= to%dtype) call convert(device, transposed, to, error)
   end subroutine to_nchw

   !> Each image of `to` is the transpose of that of `from`, which is (rows, columns)
   subroutine transpose_images(device, rows, columns, from, to, error)
      type(cuda_device_type), intent(inout) :: device
      !> Elements that lie one after the other in `from`
      integer(i8), intent(in) :: rows
      !> How many such rows an image has
      integer(i8), intent(in) :: columns
      !> What is read, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, *device*, of the same element type
      type(tensor_type), intent(in) :: to
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: r, c, images
      type(c_ptr), target :: source, destination
      r = rows
      c = columns
      images = from%extent(4)
      source = from%address
      destination = to%address
      call device%kernels%launch_stored(kernel_transpose, from%dtype, blocks_for(from%count(), most_transposing), &
         & [c_loc(r), c_loc(c), c_loc(images), c_loc(source), c_loc(destination)], device%stream, error)
   end subroutine transpose_images

   !> dz = da where z > 0, and db = sums of dz when `db` is not empty; dz may be z or da
   subroutine relu_backward_nhwc(device, z, da, dz, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> Input of the ReLU or its result, NHWC, *device*
      type(tensor_type), intent(in) :: z
      !> Gradient of its result, NHWC, *device*
      type(tensor_type), intent(in) :: da
      !> Gradient of its input, NHWC, *device*
      type(tensor_type), intent(in) :: dz
      !> Bias gradient (c, 1, 1, 1), *device*; may be empty
      type(tensor_type), intent(in) :: db
      !> No memory for the sums, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: n, channels
      type(c_ptr), target :: z_address, da_address, dz_address, partial
      integer(i8) :: threads
      integer :: blocks

      call prepare_sums(device, dz, blocks, threads, partial, error)
      if (allocated(error)) return
      n = dz%count()
      channels = dz%extent(3)
      z_address = z%address
      da_address = da%address
      dz_address = dz%address
      call device%kernels%launch_stored(kernel_relu_backward_nhwc, dz%dtype, blocks, &
         & [c_loc(n), c_loc(channels), c_loc(z_address), c_loc(da_address), c_loc(dz_address), c_loc(partial)], &
         & device%stream, error)
      if (allocated(error)) return
      if (db%is_allocated()) call sums_to_gradient(device, partial, threads, channels, db, error)
   end subroutine relu_backward_nhwc

   !> db = sums of dz over n, h, w
   subroutine bias_gradient_nhwc(device, dz, db, error)
      type(cuda_device_type), intent(inout) :: device
      !> What is summed, NHWC, extents (w, h, c, n), *device*
      type(tensor_type), intent(in) :: dz
      !> Bias gradient (c, 1, 1, 1), *device*
      type(tensor_type), intent(in) :: db
      !> No memory for the sums, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: n, channels
      type(c_ptr), target :: address, partial
      integer(i8) :: threads
      integer :: blocks

      call prepare_sums(device, dz, blocks, threads, partial, error)
      if (allocated(error)) return
      n = dz%count()
      channels = dz%extent(3)
      address = dz%address
      call device%kernels%launch_stored(kernel_channel_sums, dz%dtype, blocks, &
         & [c_loc(n), c_loc(channels), c_loc(address), c_loc(partial)], device%stream, error)
      if (allocated(error)) return
      call sums_to_gradient(device, partial, threads, channels, db, error)
   end subroutine bias_gradient_nhwc

   !> Blocks whose threads are a multiple of the channels, so that a thread meets only one; threads for each channel;
   !> and room for their sums
   subroutine prepare_sums(device, dz, blocks, threads, partial, error)
      type(cuda_device_type), intent(inout) :: device
      !> Only its extents matter
      type(tensor_type), intent(in) :: dz
      !> Blocks of the kernel
      integer, intent(out) :: blocks
      !> How many partial sums each channel has
      integer(i8), intent(out) :: threads
      !> Room for them, *device*
      type(c_ptr), intent(out) :: partial
      type(error_type), allocatable, intent(out) :: error
      integer :: unit
      unit = dz%extent(3)/greatest_divisor(dz%extent(3), threads_per_block)
      blocks = max(1, blocks_for(dz%count(), most_blocks)/unit)*unit
      threads = int(blocks, i8)*threads_per_block/dz%extent(3)
      call reserve_sums(device, threads, int(dz%extent(3), i8), partial, error)
   end subroutine prepare_sums

   !> The greatest common divisor
   pure integer function greatest_divisor(a, b)
      !> 1 or more
      integer, intent(in) :: a
      !> 1 or more
      integer, intent(in) :: b
      integer :: rest, next
      greatest_divisor = a
      rest = b
      do while (rest /= 0)
         next = mod(greatest_divisor, rest)
         greatest_divisor = rest
         rest = next
      end do
   end function greatest_divisor

end module cnn_cuda_operations_nhwc
