! SPDX-License-Identifier: MIT
!> The primitives of fortran/operations on a CUDA device, by our kernels. Most are a kernel of the same name, which goes
!> through the elements of the last tensor; the others are below, and in cnn_cuda_operations_normalization, _row_norms
!> and _spline.
module cnn_cuda_operations_primitives
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_narrow
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_normalization, only : batch_norm, batch_norm_backward
   use cnn_cuda_operations_row_norms, only : row_norm, row_norm_backward
   use cnn_cuda_operations_spline, only : spline_gradients
   use cnn_cuda_operations_sums, only : most_rows, reserve_sums, sums_to_gradient
   implicit none
   private

   public :: compute

   !> Blocks of a kernel that only goes through its elements
   integer, parameter :: most_blocks = 4096
   !> Threads that add up one tensor
   integer(i8), parameter :: most_parts = 262144_i8

contains

   !> Queue a primitive
   subroutine compute(device, name, t, integers, reals, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Of the primitive
      character(len=*), intent(in) :: name
      !> Its tensors, in its order, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Its settings
      integer, intent(in) :: integers(:)
      !> Its settings
      real(dp), intent(in) :: reals(:)
      !> No device memory, no such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: n
      n = t(size(t))%count()
      select case (name)
       case ("add_bias")
         call launch(device, name, n, t, channels_of(t(2)), reals, error)
       case ("avg_pool")
         if (all(integers(1:2) == t(1)%extent([2, 1])) .and. all(integers(5:6) == 0)) then
            call sum_to(device, t(1), t(2), product(real(integers(1:2), dp)), error)
         else
            call launch(device, name, n, t, [sizes_of(t(1), t(2)), int(integers, i8)], reals, error)
         end if
       case ("combine")
         call combine(device, t(1), t(2), int(integers(1), i8), t(3), error)
       case ("combine_backward")
         call combine_backward(device, t, int(integers, i8), error)
       case ("matmul")
         call multiply(device, t(1), t(2), t(3), integers(1) == 1, integers(2) == 1, error)
       case ("max_pool", "resample")
         call launch(device, name, n, t, [sizes_of(t(1), t(2)), int(integers, i8)], reals, error)
       case ("avg_pool_backward", "max_pool_backward", "resample_backward")
         call launch(device, name, n, t, [sizes_of(t(size(t)), t(size(t) - 1)), int(integers, i8)], reals, error)
       case ("batch_norm")
         call batch_norm(device, t, integers(1) == 1, reals, error)
       case ("batch_norm_backward")
         call batch_norm_backward(device, t, integers(1) == 1, error)
       case ("extreme")
         call launch(device, name, n, t, [boxes_of(t(1), t(2)), int(integers, i8)], reals, error)
       case ("extreme_backward")
         call launch(device, name, t(2)%count(), t, [boxes_of(t(1), t(2)), int(integers, i8)], reals, error)
       case ("from_channels")
         call copy_channels(device, t(1), t(2), integers, t(2), error)
       case ("to_channels")
         call copy_channels(device, t(1), t(2), integers, t(1), error)
       case ("row_norm")
         call row_norm(device, t, integers, reals(1), error)
       case ("row_norm_backward")
         call row_norm_backward(device, t, integers, reals(1), error)
       case ("softmax", "softmax_backward")
         associate (axis => integers(1), extent => t(1)%extent)
            call launch(device, name, n/extent(axis), t, [product(int(extent(:axis - 1), i8)), &
               & int([extent(axis), integers(2)], i8)], reals, error)
         end associate
       case ("spline", "spline_backward")
         call launch(device, name, n, t, [int([t(1)%extent(1), t(size(t) - merge(0, 1, name == "spline"))%extent(1), &
            & integers], i8), merge(1_i8, 0_i8, t(4)%is_allocated())], reals, error)
       case ("spline_gradients")
         call spline_gradients(device, t, integers, reals, error)
       case ("spread")
         call launch(device, "gather", n, t, [int(t(2)%extent(:3), i8), strides_in(t(1), t(2))], reals, error)
       case ("sum_to")
         call sum_to(device, t(1), t(2), reals(1), error)
       case ("transpose")
         call exchange(device, t(1), t(2), integers, error)
       case default
         call launch(device, name, n, t, int(integers, i8), reals, error)
      end select
   end subroutine compute

   !> Of boxes that become one number: their elements, how many along three axes, their extents along these, and
   !> the strides of what they are parts of
   pure function boxes_of(x, y)
      !> The whole
      type(tensor_type), intent(in) :: x
      !> What the boxes become
      type(tensor_type), intent(in) :: y
      integer(i8) :: boxes_of(11)
      boxes_of = [x%count()/y%count(), int(y%extent(:3), i8), int(merge(x%extent(:3), 1, y%extent(:3) == 1), i8), &
         & strides_in(x, x)]
   end function boxes_of

   !> y is x with two axes exchanged
   subroutine exchange(device, x, y, axes, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: x
      !> What is written, *device*
      type(tensor_type), intent(in) :: y
      !> In Fortran order
      integer, intent(in) :: axes(2)
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: strides(4)
      strides = strides_in(x, x)
      strides(axes) = strides(axes([2, 1]))
      call launch(device, "gather", y%count(), [x, y], [int(y%extent(:3), i8), strides], [1.0_dp], error)
   end subroutine exchange

   !> Queue a kernel with a thread for each of n elements
   subroutine launch(device, name, n, t, integers, reals, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> Of the kernel
      character(len=*), intent(in) :: name
      !> How many elements
      integer(i8), intent(in) :: n
      !> Its tensors, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Its settings
      integer(i8), intent(in) :: integers(:)
      !> Its settings
      real(dp), intent(in) :: reals(:)
      !> No such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      call device%kernels%launch_named(name, t(size(t))%dtype, [blocks_for(n, most_blocks), 1], [n], t%address, &
         & integers, reals, device%stream, error)
   end subroutine launch

   !> Pixels and channels of images
   pure function channels_of(tensor)
      !> Images (w, h, c, n)
      type(tensor_type), intent(in) :: tensor
      integer(i8) :: channels_of(2)
      channels_of = [product(int(tensor%extent(:2), i8)), int(tensor%extent(3), i8)]
   end function channels_of

   !> Widths and heights of two kinds of images
   pure function sizes_of(one, other)
      !> Images (w, h, c, n)
      type(tensor_type), intent(in) :: one
      !> Others
      type(tensor_type), intent(in) :: other
      integer(i8) :: sizes_of(4)
      sizes_of = int([one%extent(:2), other%extent(:2)], i8)
   end function sizes_of

   !> y = f(a, b), whose extents are those of y, or 1
   subroutine combine(device, a, b, f, y, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> One, *device*
      type(tensor_type), intent(in) :: a
      !> The other, *device*
      type(tensor_type), intent(in) :: b
      !> Which function, see binary_numbers.inc
      integer(i8), intent(in) :: f
      !> Is overwritten, *device*
      type(tensor_type), intent(in) :: y
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      if (all(a%extent == y%extent) .and. all(b%extent == y%extent)) then
         call launch(device, "combine", y%count(), [a, b, y], [f], [real(dp) ::], error)
      else
         call launch(device, "combine_broadcast", y%count(), [a, b, y], [int(y%extent(:3), i8), strides_in(a, y), &
            & strides_in(b, y), f], [real(dp) ::], error)
      end if
   end subroutine combine

   !> The gradient with respect to one operand, summed over the axes along which its only element stood for all
   subroutine combine_backward(device, t, settings, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> a, b, dy and dx, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Which function, and 1 or 2
      integer(i8), intent(in) :: settings(:)
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: steps(8)
      steps = [strides_in(t(1), t(3)), strides_in(t(2), t(3))]
      if (all(t(4)%extent == t(3)%extent)) then
         call launch(device, "combine_backward", t(3)%count(), t, [int(t(3)%extent(:3), i8), steps, settings], &
            & [real(dp) ::], error)
      else
         call add_boxes(device, "combine_sums", t(:3), [steps, settings], [real(dp) ::], t(4), error)
      end if
   end subroutine combine_backward

   !> Strides of a tensor along the axes of another, 0 where its only element stands for all
   pure function strides_in(tensor, whole) result(strides)
      !> Extents of the whole, or 1
      type(tensor_type), intent(in) :: tensor
      !> Another
      type(tensor_type), intent(in) :: whole
      integer(i8) :: strides(4)
      integer :: i
      do i = 1, 4
         strides(i) = product(int(tensor%extent(:i - 1), i8))
         if (tensor%extent(i) == 1 .and. whole%extent(i) > 1) strides(i) = 0
      end do
   end function strides_in

   !> x = sums of y over the axes along which x has only one element, divided. Where a sum is long many threads share it
   subroutine sum_to(device, y, x, divisor, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> What is summed, *device*
      type(tensor_type), intent(in) :: y
      !> Extents of y, or 1; is overwritten, *device*
      type(tensor_type), intent(in) :: x
      !> Of each sum
      real(dp), intent(in) :: divisor
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      if (all(x%extent == y%extent)) then
         ! Of one number each: their divisor is 1
         call launch(device, "copy", y%count(), [y, x], [integer(i8) ::], [real(dp) ::], error)
      else
         call add_boxes(device, "box_sums", [y], [integer(i8) ::], [divisor], x, error)
      end if
   end subroutine sum_to

   !> x = sums of what a kernel finds for the elements of its last tensor, over the axes along which x has only one
   subroutine add_boxes(device, kernel, t, integers, reals, x, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(inout) :: device
      !> Its name
      character(len=*), intent(in) :: kernel
      !> What it reads, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Its last settings
      integer(i8), intent(in) :: integers(:)
      !> The same
      real(dp), intent(in) :: reals(:)
      !> Extents of the last tensor, or 1; is overwritten, *device*
      type(tensor_type), intent(in) :: x
      !> No device memory, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: partial, address
      type(c_ptr) :: addresses(size(t) + 1)
      integer(c_int64_t), target :: sums
      integer(i8) :: boxes, length, parts
      integer :: box(4), i

      boxes = x%count()
      associate (y => t(size(t)))
         length = y%count()/boxes
         parts = max(1_i8, min(length, most_parts/boxes))
         if (boxes > most_rows) parts = 1
         box = merge(y%extent, 1, x%extent == 1)
         call reserve_sums(device, parts, boxes, partial, error)
         if (allocated(error)) return
         do i = 1, size(t)
            addresses(i) = t(i)%address
         end do
         addresses(size(addresses)) = partial
         call device%kernels%launch_named(kernel, y%dtype, [blocks_for(boxes*parts, most_blocks), 1], [boxes*parts], &
            & addresses, [parts, length, int(x%extent(:3), i8), int(box(:3), i8), strides_in(y, y), integers], reals, &
            & device%stream, error)
      end associate
      if (allocated(error)) return
      if (parts > 1) then
         call sums_to_gradient(device, partial, parts, boxes, x, error)
      else
         sums = boxes
         address = x%address
         call device%kernels%launch_typed(kernel_narrow, x%dtype, [blocks_for(boxes, most_blocks), 1], &
            & [c_loc(sums), c_loc(partial), c_loc(address)], device%stream, error)
      end if
   end subroutine add_boxes

   !> y = a b of all matrices, torch's last two axes
   subroutine multiply(device, a, b, y, turn_a, turn_b, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> Matrices, *device*
      type(tensor_type), intent(in) :: a
      !> As many, *device*
      type(tensor_type), intent(in) :: b
      !> Their products, *device*
      type(tensor_type), intent(in) :: y
      !> Whether the transposes of a are meant
      logical, intent(in) :: turn_a
      !> Whether the transposes of b are
      logical, intent(in) :: turn_b
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: a_steps(2), b_steps(2)
      a_steps = [int(a%extent(1), i8), 1_i8]
      if (turn_a) a_steps = a_steps([2, 1])
      b_steps = [1_i8, int(b%extent(1), i8)]
      if (turn_b) b_steps = b_steps([2, 1])
      call launch(device, "matmul", y%count(), [a, b, y], [int(y%extent(:2), i8), &
         & int(a%extent(merge(2, 1, turn_a)), i8), a_steps, product(int(a%extent(:2), i8)), b_steps, &
         & product(int(b%extent(:2), i8))], [real(dp) ::], error)
   end subroutine multiply

   !> The channels of a part from or to those of a whole
   subroutine copy_channels(device, from, to, settings, part, error)
      !> An entered device, on whose stream the work is queued
      type(cuda_device_type), intent(in) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, *device*
      type(tensor_type), intent(in) :: to
      !> The axis of the channels, and how many of the whole come before those of the part
      integer, intent(in) :: settings(2)
      !> One of the two
      type(tensor_type), intent(in) :: part
      !> A kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: places(2), inner, row
      inner = product(int(part%extent(:settings(1) - 1), i8))
      row = inner*part%extent(settings(1))
      places = settings(2)*inner
      if (all(from%extent == part%extent)) places(1) = 0
      if (all(to%extent == part%extent)) places(2) = 0
      call launch(device, "copy_rows", part%count(), [from, to], [row, places(1), inner*from%extent(settings(1)), &
         & places(2), inner*to%extent(settings(1))], [real(dp) ::], error)
   end subroutine copy_channels

end module cnn_cuda_operations_primitives
