! SPDX-License-Identifier: MIT
!> Kernels that go along four axes of tensors, and how those of up to eight axes are launched.
module cnn_cuda_operations_axes
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_loc, c_ptr
   use cnn_core_axes, only : axes_type, merged, most_tensors, strides_in
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : address_after, max_rank, tensor_type
   use cnn_cuda_device_kernels, only : blocks_for, kernel_narrow
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_sums, only : most_rows, reserve_sums, sums_to_gradient
   implicit none
   private

   public :: add_boxes, axes_of, boxes_of, launch, launch_axes, moved, sizes_in, split

   !> Blocks of a kernel that only goes through its elements
   integer, parameter :: most_blocks = 4096
   !> Axes that a kernel knows strides of
   integer, parameter :: kernel_axes = 4
   !> Threads that add up one tensor
   integer(i8), parameter :: most_parts = 262144_i8

contains

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

   !> The axes of a loop over a whole and tensors of its extents, or 1
   pure type(axes_type) function axes_of(whole, first, second, third, fourth)
      !> What the loop goes through
      type(tensor_type), intent(in) :: whole
      !> One
      type(tensor_type), intent(in) :: first
      !> Another
      type(tensor_type), intent(in) :: second
      !> Another
      type(tensor_type), intent(in), optional :: third
      !> Another
      type(tensor_type), intent(in), optional :: fourth
      integer(i8) :: strides(max_rank, most_tensors)
      strides = 0
      strides(:, 1) = strides_in(first%extent, whole%extent)
      strides(:, 2) = strides_in(second%extent, whole%extent)
      if (present(third)) strides(:, 3) = strides_in(third%extent, whole%extent)
      if (present(fourth)) strides(:, 4) = strides_in(fourth%extent, whole%extent)
      axes_of = merged(whole%extent, strides)
   end function axes_of

   !> Four axes for a kernel, and others for each of whose elements it is launched: the last ones along which the second
   !> tensor has more than one element, so that what a kernel makes of it lies together
   subroutine split(axes, inner, outer)
      !> All
      type(axes_type), intent(in) :: axes
      !> Four at most, in their order
      type(axes_type), intent(out) :: inner
      !> The others
      type(axes_type), intent(out) :: outer
      logical :: outside(max_rank)
      integer :: i
      outside = .false.
      do i = axes%rank, 1, -1
         outside(i) = count(outside) < axes%rank - kernel_axes .and. axes%stride(i, 2) /= 0
      end do
      inner = axes%chosen(.not. outside)
      outer = axes%chosen(outside)
   end subroutine split

   !> A tensor that begins at another element; one that is not there stays so
   function moved(tensor, elements)
      !> *device*
      type(tensor_type), intent(in) :: tensor
      !> How many later
      integer(i8), intent(in) :: elements
      type(tensor_type) :: moved
      moved = tensor
      moved%address = address_after(tensor%address, elements*bytes_of(tensor%dtype))
   end function moved

   !> Queue a kernel that takes three extents and, of its first tensors, strides along four axes: once for each element
   !> of the others
   subroutine launch_axes(device, name, t, axes, strided, integers, reals, error)
      type(cuda_device_type), intent(in) :: device
      !> Of the kernel
      character(len=*), intent(in) :: name
      !> Its tensors, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Of these tensors
      type(axes_type), intent(in) :: axes
      !> Tensors whose strides it takes
      integer, intent(in) :: strided
      !> Its last settings
      integer(i8), intent(in) :: integers(:)
      !> The same
      real(dp), intent(in) :: reals(:)
      !> No such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(axes_type) :: inner, outer
      integer(i8) :: at(most_tensors), i
      integer :: j
      inner = axes%chosen([(j <= kernel_axes, j=1, max_rank)])
      outer = axes%chosen([(j > kernel_axes, j=1, max_rank)])
      do i = 0, outer%count() - 1
         at = outer%places(i)
         call launch(device, name, inner%count(), [(moved(t(j), at(j)), j=1, size(t))], [inner%extent(:3), &
            & reshape(inner%stride(:4, :strided), [4*strided]), integers], reals, error)
         if (allocated(error)) return
      end do
   end subroutine launch_axes

   !> How many boxes: elements of the second tensor
   pure integer(i8) function boxes_of(axes)
      !> Of the whole, and of what its boxes become
      type(axes_type), intent(in) :: axes
      boxes_of = product(axes%extent, axes%stride(:, 2) /= 0)
   end function boxes_of

   !> Boxes along the first three axes, or extents of a box
   pure function sizes_in(axes, of_boxes) result(sizes)
      !> Of the whole, and of what its boxes become
      type(axes_type), intent(in) :: axes
      !> Which of the two
      logical, intent(in) :: of_boxes
      integer(i8) :: sizes(3)
      sizes = merge(axes%extent(:3), 1_i8, (axes%stride(:3, 2) /= 0) .eqv. of_boxes)
   end function sizes_in

   !> x = sums of what a kernel finds for the elements of its last tensor, over the axes along which x has only one
   subroutine add_boxes(device, kernel, t, axes, integers, reals, x, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its name
      character(len=*), intent(in) :: kernel
      !> What it reads, *device*
      type(tensor_type), intent(in) :: t(:)
      !> Of its last tensor and of x
      type(axes_type), intent(in) :: axes
      !> Its last settings
      integer(i8), intent(in) :: integers(:)
      !> The same
      real(dp), intent(in) :: reals(:)
      !> Is overwritten, *device*
      type(tensor_type), intent(in) :: x
      type(error_type), allocatable, intent(out) :: error
      type(c_ptr), target :: partial, address
      integer(c_int64_t), target :: sums
      integer(i8) :: boxes, length, parts

      boxes = boxes_of(axes)
      length = axes%count()/boxes
      parts = max(1_i8, min(length, most_parts/boxes))
      if (boxes > most_rows) parts = 1
      call reserve_sums(device, parts, boxes, partial, error)
      if (allocated(error)) return
      call device%kernels%launch_named(kernel, x%dtype, [blocks_for(boxes*parts, most_blocks), 1], [boxes*parts], &
         & [t%address, partial], [parts, length, sizes_in(axes, .true.), sizes_in(axes, .false.), axes%stride(:4, 1), &
         & integers], reals, device%stream, error)
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

end module cnn_cuda_operations_axes
