! SPDX-License-Identifier: MIT
!> Which convolutions our own kernels compute: of 3 x 3 in float32, where they are faster than cuDNN's, see
!> cnn_cuda_operations_direct. docs/gpu-bench.md has what was measured.
module cnn_cuda_plans_direct
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type, math_fp32
   use cnn_core_kinds, only : dtype_float32, i8
   use cnn_cuda_plans_request, only : conv_data, conv_filter, conv_forward, conv_request_type, layout_nchw
   implicit none
   private

   public :: as_forward, by_forward, is_direct, most_parts, reads_fours

   !> Channels that a kernel makes at a time, and those whose filter gradients it sums
   integer, parameter, public :: together(2) = [1, 16], filters_together = 4
   !> Channels with which all is ours, without tensor cores and beside them, which win with more; and those that need
   !> not be a multiple of what a kernel makes at a time
   integer, parameter :: all_ours = 32, all_ours_beside_tensor_cores = 16, few_channels = 4
   !> Channels that cuDNN's engines make at a time
   integer, parameter :: made_by_cudnn = 64
   !> Threads below which a GPU has nothing to do while some of them wait
   integer(i8), parameter :: enough_threads = 2_i8**16
   !> Bytes of the sums of a filter gradient above which adding them up takes longer than its products
   integer(i8), parameter :: most_sums = 2_i8**26
   !> Pixels below which adding up the sums of a filter gradient takes longer than its products
   integer(i8), parameter :: enough_pixels = 2_i8**12
   !> Largest number of a kernel's elements that are counted in 32 bits, with room for those beyond the end
   integer(i8), parameter :: most_elements = 2_i8**31 - 2_i8**20

contains

   !> Whether a convolution, or one of its gradients, is computed by our kernels
   pure logical function is_direct(name, operation, conv, dtype, x, w, y)
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents of the input (w, h, c, n)
      integer, intent(in) :: x(4)
      !> Extents of the filter (s, r, c, k)
      integer, intent(in) :: w(4)
      !> Extents of the output (q, p, k, n)
      integer, intent(in) :: y(4)
      logical :: few
      is_direct = .false.
      if (.not. is_plain(name, conv, dtype, w)) return
      if (max(elements(x), elements(y), product(int(w, i8))) > most_elements) return
      few = max(x(3), y(3)) <= merge(all_ours, all_ours_beside_tensor_cores, name%math == math_fp32)
      if (.not. few .and. name%math /= math_fp32) return
      select case (operation)
       case (conv_forward)
         is_direct = can_make(y(3)) .and. (few .or. y(3) <= all_ours .or. x(3) <= few_channels)
       case (conv_data)
         is_direct = can_make(x(3)) .and. (few .or. threads_of(x) >= enough_threads)
       case (conv_filter)
         is_direct = any(mod([x(3), y(3)], filters_together) == 0) .and. &
            & (few .or. (reads_fours(x, y) .and. product(int(y([1, 2, 4]), i8)) >= enough_pixels .and. &
            & bytes_of_sums(x(3)*y(3)) <= min(most_sums, name%workspace_limit)))
       case default
         is_direct = .false.
      end select
   end function is_direct

   !> Whether a data gradient is better computed as what it is, too: a convolution of dy with filters turned by 180
   !> degrees and their channels exchanged. cuDNN's forward engines are faster than those of data gradients, and than
   !> our kernel where they have as many channels as they make at a time, or a multiple.
   pure logical function by_forward(name, request)
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> One operation; its dtype is that of the tensors
      type(conv_request_type), intent(in) :: request
      by_forward = request%operation == conv_data .and. request%layout == layout_nchw .and. .not. request%mask
      if (.not. by_forward) return
      associate (conv => request%conv, dtype => request%dtype, x => request%x, w => request%w, y => request%y)
         by_forward = is_plain(name, conv, dtype, w) .and. name%math == math_fp32 .and. min(x(3), y(3)) > few_channels &
            & .and. product(int(w, i8)) <= most_elements
         if (mod(x(3), made_by_cudnn) == 0) return
         by_forward = by_forward .and. .not. is_direct(name, conv_data, conv, dtype, x, w, y)
      end associate
   end function by_forward

   !> That convolution
   pure type(conv_request_type) function as_forward(request)
      !> A data gradient that is computed so
      type(conv_request_type), intent(in) :: request
      as_forward = request
      as_forward%operation = conv_forward
      as_forward%x = request%y
      as_forward%w = request%w([1, 2, 4, 3])
      as_forward%y = request%x
      as_forward%conv%pad_h = 2 - request%conv%pad_h
      as_forward%conv%pad_w = 2 - request%conv%pad_w
   end function as_forward

   !> Whether it is of 3 x 3 in float32, with nothing but padding that the filter can reach over
   pure logical function is_plain(name, conv, dtype, w)
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents of the filter (s, r, c, k)
      integer, intent(in) :: w(4)
      is_plain = name%direct .and. dtype == dtype_float32 .and. all(w(1:2) == 3) .and. conv%groups == 1 .and. &
         & all([conv%stride_h, conv%stride_w, conv%dilation_h, conv%dilation_w] == 1) .and. &
         & max(conv%pad_h, conv%pad_w) <= 2
   end function is_plain

   !> Whether there is a kernel for so many channels of a result
   pure logical function can_make(channels)
      !> 1 or more
      integer, intent(in) :: channels
      can_make = channels <= few_channels .or. mod(channels, together(2)) == 0
   end function can_make

   !> Whether rows are read four columns at a time: both have as many, a multiple of four
   pure logical function reads_fours(x, y)
      !> Extents (w, h, c, n) of the input
      integer, intent(in) :: x(4)
      !> Extents (q, p, k, n) of the output
      integer, intent(in) :: y(4)
      reads_fours = x(1) == y(1) .and. mod(x(1), 4) == 0
   end function reads_fours

   !> Threads that make a result of many channels
   pure integer(i8) function threads_of(extent)
      !> Extents (w, h, c, n) of the result
      integer, intent(in) :: extent(4)
      threads_of = product(int(extent, i8))/(4*together(2))
   end function threads_of

   !> Parts of the sums of a filter gradient that there may be
   pure integer function most_parts(pairs, name)
      !> Channels of x times those of y
      integer, intent(in) :: pairs
      !> Options of the device
      type(device_name_type), intent(in) :: name
      most_parts = int(max(1_i8, min(most_sums, name%workspace_limit)/bytes_of_sums(pairs)))
   end function most_parts

   !> Bytes of one part of the sums of a filter gradient: of 32 threads for each element
   pure integer(i8) function bytes_of_sums(pairs)
      !> Channels of x times those of y
      integer, intent(in) :: pairs
      bytes_of_sums = 32*8*9*int(pairs, i8)
   end function bytes_of_sums

   !> Elements that are counted in one kernel: those of an image, and pixels of all
   pure integer(i8) function elements(extent)
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      elements = product(int(extent(:2), i8))*max(extent(3), extent(4))
   end function elements

end module cnn_cuda_plans_direct
