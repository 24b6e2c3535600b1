! SPDX-License-Identifier: MIT
!> The primitives of fortran/operations on a CUDA device, by our kernels. Most are a kernel of the same name, which goes
!> through the elements of the last tensor; the others are below, and in cnn_cuda_operations_normalization, _row_norms
!> and _spline.
module cnn_cuda_operations_primitives
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr
   use cnn_core_calls, only : add_bias_call, avg_pool_backward_call, avg_pool_call, batch_norm_backward_call, &
      & batch_norm_call, combine_backward_call, combine_call, extreme_backward_call, extreme_call, &
      & from_channels_call, matmul_call, max_pool_backward_call, max_pool_call, primitive_type, &
      & resample_backward_call, resample_call, row_norm_backward_call, row_norm_call, softmax_backward_call, &
      & softmax_call, spline_backward_call, spline_call, spline_gradients_call, spread_call, sum_to_call, &
      & to_channels_call, transpose_call, unpack
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

   !> Queue a primitive. Those that are not named here are a kernel of their name, with their arguments in its order
   subroutine compute(device, primitive, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      class(primitive_type), intent(in) :: primitive
      !> No device memory, no such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      select type (p => primitive)
       type is (combine_call)
         call combine(device, p%a, p%b, int(p%f, i8), p%y, error)
       type is (combine_backward_call)
         call combine_backward(device, p, error)
       type is (matmul_call)
         call multiply(device, p, error)
       type is (batch_norm_call)
         call batch_norm(device, p, error)
       type is (batch_norm_backward_call)
         call batch_norm_backward(device, p, error)
       type is (from_channels_call)
         call copy_channels(device, p%from, p%to, [p%axis, p%first], p%to, error)
       type is (to_channels_call)
         call copy_channels(device, p%from, p%to, [p%axis, p%first], p%from, error)
       type is (row_norm_call)
         call row_norm(device, p, error)
       type is (row_norm_backward_call)
         call row_norm_backward(device, p, error)
       type is (spline_gradients_call)
         call spline_gradients(device, p, error)
       type is (spread_call)
         call launch(device, "gather", p%to%count(), [p%from, p%to], [int(p%to%extent(:3), i8), strides_in(p%from, &
            & p%to)], [p%divisor], error)
       type is (sum_to_call)
         call sum_to(device, p%from, p%to, p%divisor, error)
       type is (transpose_call)
         call exchange(device, p%from, p%to, p%axes, error)
       type is (avg_pool_call)
         if (all(p%kernel == p%from%extent([2, 1])) .and. all(p%padding == 0)) then
            call sum_to(device, p%from, p%to, product(real(p%kernel, dp)), error)
         else
            call compute_elements(device, p, error)
         end if
       class default
         call compute_elements(device, p, error)
      end select
   end subroutine compute

   !> Queue a primitive that is a kernel of its name, with a thread for each element that it makes
   subroutine compute_elements(device, primitive, error)
      type(cuda_device_type), intent(in) :: device
      !> Its tensors are *device*
      class(primitive_type), intent(in) :: primitive
      !> No such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: name
      type(tensor_type), allocatable :: t(:)
      integer, allocatable :: integers(:)
      integer(i8), allocatable :: extents(:)
      real(dp), allocatable :: reals(:)
      integer(i8) :: n
      call unpack(primitive, name, t, integers, reals)
      n = t(size(t))%count()
      allocate (extents(0))
      select type (p => primitive)
       type is (add_bias_call)
         extents = channels_of(p%to)
       type is (avg_pool_call)
         extents = sizes_of(p%from, p%to)
       type is (max_pool_call)
         extents = sizes_of(p%from, p%to)
       type is (resample_call)
         extents = sizes_of(p%from, p%to)
       type is (avg_pool_backward_call)
         extents = sizes_of(p%to, p%from)
       type is (max_pool_backward_call)
         extents = sizes_of(p%dx, p%dy)
       type is (resample_backward_call)
         extents = sizes_of(p%to, p%from)
       type is (extreme_call)
         extents = boxes_of(p%x, p%y)
       type is (extreme_backward_call)
         extents = boxes_of(p%x, p%y)
         n = p%y%count()
       type is (softmax_call)
         extents = pixels_of(p%y, p%axis)
         n = n/p%y%extent(p%axis)
       type is (softmax_backward_call)
         extents = pixels_of(p%y, p%axis)
         n = n/p%y%extent(p%axis)
       type is (spline_call)
         extents = int([p%x%extent(1), p%y%extent(1)], i8)
       type is (spline_backward_call)
         extents = int([p%x%extent(1), p%dy%extent(1)], i8)
      end select
      call launch(device, name, n, t, [extents, settings_of(primitive, integers)], reals, error)
   end subroutine compute_elements

   !> The integers that a kernel takes behind extents
   function settings_of(primitive, integers) result(settings)
      !> The call
      class(primitive_type), intent(in) :: primitive
      !> Its integers
      integer, intent(in) :: integers(:)
      integer(i8), allocatable :: settings(:)
      settings = int(integers, i8)
      select type (p => primitive)
       type is (softmax_call)
         settings = [int([p%y%extent(p%axis), merge(1, 0, p%logarithm)], i8)]
       type is (softmax_backward_call)
         settings = [int([p%y%extent(p%axis), merge(1, 0, p%logarithm)], i8)]
       type is (spline_call)
         settings = [settings, merge(1_i8, 0_i8, p%scale_spline%is_allocated())]
       type is (spline_backward_call)
         settings = [settings, merge(1_i8, 0_i8, p%scale_spline%is_allocated())]
      end select
   end function settings_of

   !> Pixels before the next channel
   pure function pixels_of(y, axis)
      !> Output
      type(tensor_type), intent(in) :: y
      !> Of the channels
      integer, intent(in) :: axis
      integer(i8) :: pixels_of(1)
      pixels_of = product(int(y%extent(:axis - 1), i8))
   end function pixels_of

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
      type(cuda_device_type), intent(in) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: x
      !> What is written, *device*
      type(tensor_type), intent(in) :: y
      !> In Fortran order
      integer, intent(in) :: axes(2)
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: strides(4)
      strides = strides_in(x, x)
      strides(axes) = strides(axes([2, 1]))
      call launch(device, "gather", y%count(), [x, y], [int(y%extent(:3), i8), strides], [1.0_dp], error)
   end subroutine exchange

   !> Queue a kernel with a thread for each of n elements
   subroutine launch(device, name, n, t, integers, reals, error)
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
      type(cuda_device_type), intent(in) :: device
      !> One, *device*
      type(tensor_type), intent(in) :: a
      !> The other, *device*
      type(tensor_type), intent(in) :: b
      !> Which function, see numbers.inc
      integer(i8), intent(in) :: f
      !> Is overwritten, *device*
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      if (all(a%extent == y%extent) .and. all(b%extent == y%extent)) then
         call launch(device, "combine", y%count(), [a, b, y], [f], [real(dp) ::], error)
      else
         call launch(device, "combine_broadcast", y%count(), [a, b, y], [int(y%extent(:3), i8), strides_in(a, y), &
            & strides_in(b, y), f], [real(dp) ::], error)
      end if
   end subroutine combine

   !> The gradient with respect to one operand, summed over the axes along which its only element stood for all
   subroutine combine_backward(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(combine_backward_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: steps(8), settings(2)
      steps = [strides_in(p%a, p%dy), strides_in(p%b, p%dy)]
      settings = int([p%f, p%operand], i8)
      if (all(p%dx%extent == p%dy%extent)) then
         call launch(device, "combine_backward", p%dy%count(), [p%a, p%b, p%dy, p%dx], [int(p%dy%extent(:3), i8), &
            & steps, settings], [real(dp) ::], error)
      else
         call add_boxes(device, "combine_sums", [p%a, p%b, p%dy], [steps, settings], [real(dp) ::], p%dx, error)
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
      type(cuda_device_type), intent(inout) :: device
      !> What is summed, *device*
      type(tensor_type), intent(in) :: y
      !> Extents of y, or 1; is overwritten, *device*
      type(tensor_type), intent(in) :: x
      !> Of each sum
      real(dp), intent(in) :: divisor
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
   subroutine multiply(device, p, error)
      type(cuda_device_type), intent(in) :: device
      !> Its tensors are *device*
      type(matmul_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: a_steps(2), b_steps(2)
      a_steps = [int(p%a%extent(1), i8), 1_i8]
      if (p%turn_a) a_steps = a_steps([2, 1])
      b_steps = [1_i8, int(p%b%extent(1), i8)]
      if (p%turn_b) b_steps = b_steps([2, 1])
      call launch(device, "matmul", p%y%count(), [p%a, p%b, p%y], [int(p%y%extent(:2), i8), &
         & int(p%a%extent(merge(2, 1, p%turn_a)), i8), a_steps, product(int(p%a%extent(:2), i8)), b_steps, &
         & product(int(p%b%extent(:2), i8))], [real(dp) ::], error)
   end subroutine multiply

   !> The channels of a part from or to those of a whole
   subroutine copy_channels(device, from, to, settings, part, error)
      type(cuda_device_type), intent(in) :: device
      !> What is read, *device*
      type(tensor_type), intent(in) :: from
      !> What is written, *device*
      type(tensor_type), intent(in) :: to
      !> The axis of the channels, and how many of the whole come before those of the part
      integer, intent(in) :: settings(2)
      !> One of the two
      type(tensor_type), intent(in) :: part
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
