! SPDX-License-Identifier: MIT
!> Which convolutions our own kernels compute: 3 x 3 with few channels in float32, see cnn_cuda_operations_direct.
module cnn_cuda_plans_direct
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type, math_fp32
   use cnn_core_kinds, only : dtype_float32, i8
   use cnn_cuda_plans_request, only : conv_data, conv_filter, conv_forward
   implicit none
   private

   public :: is_direct

   !> Channels that a kernel makes at a time, and those whose filter gradients it sums
   integer, parameter, public :: together(2) = [1, 16], filters_together = 4
   !> The largest number of channels that was measured, and that beside tensor cores, which win with more. And of those
   !> that need not be a multiple of what a kernel makes at a time
   integer, parameter :: most_channels = 32, most_beside_tensor_cores = 16, few_channels = 4
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
      is_direct = .false.
      if (.not. name%direct .or. dtype /= dtype_float32 .or. any(w(1:2) /= 3) .or. conv%groups /= 1) return
      if (any([conv%stride_h, conv%stride_w, conv%dilation_h, conv%dilation_w] /= 1)) return
      if (max(conv%pad_h, conv%pad_w) > 2) return
      if (max(x(3), y(3)) > merge(most_channels, most_beside_tensor_cores, name%math == math_fp32)) return
      if (max(elements(x), elements(y)) > most_elements) return
      select case (operation)
       case (conv_forward)
         is_direct = can_make(y(3))
       case (conv_data)
         is_direct = can_make(x(3))
       case (conv_filter)
         is_direct = any(mod([x(3), y(3)], filters_together) == 0)
       case default
         is_direct = .false.
      end select
   end function is_direct

   !> Whether there is a kernel for so many channels of a result
   pure logical function can_make(channels)
      !> 1 or more
      integer, intent(in) :: channels
      can_make = channels <= few_channels .or. mod(channels, together(2)) == 0
   end function can_make

   !> Elements that are counted in one kernel: those of an image, and pixels of all
   pure integer(i8) function elements(extent)
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      elements = product(int(extent(:2), i8))*max(extent(3), extent(4))
   end function elements

end module cnn_cuda_plans_direct
