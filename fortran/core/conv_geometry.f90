! SPDX-License-Identifier: MIT
!> What a 2-D convolution is: stride, padding, dilation, groups, and the shapes that follow.
!>
!> Convolution means cross-correlation, as in `torch.nn.functional.conv2d`:
!>
!>     y(n,k,p,q) = b(k) + sum over c,r,s of
!>                  w(k,c,r,s) * x(n, c, p*stride_h - pad_h + r*dilation_h, q*stride_w - pad_w + s*dilation_w)
!>
!> Source.  torch.nn.Conv2d (shape formula); Dumoulin & Visin, arXiv:1603.07285.
module cnn_core_conv_geometry
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : shape_text
   use cnn_core_text, only : to_text
   implicit none
   private

   public :: taps_along

   type, public :: conv_type
      integer :: stride_h = 1, stride_w = 1
      !> Zeros added on each side, in pixels
      integer :: pad_h = 0, pad_w = 0
      integer :: dilation_h = 1, dilation_w = 1
      integer :: groups = 1
   contains
      procedure :: output_extent
      procedure, private :: check_parameters
   end type conv_type

   !> The pixel pairs that one kernel tap joins along one axis:
   !> output `out_first + i` and input `in_first + i*in_step`, i = 0 .. pairs-1 (positions from 1)
   type, public :: tap_type
      integer :: pairs = 0
      integer :: out_first = 1, in_first = 1
      integer :: in_step = 1
   end type tap_type

contains

   !> Shape of y for x and w (extents in Fortran order); an error when they do not fit together
   subroutine output_extent(self, x, w, y, error)
      class(conv_type), intent(in) :: self
      !> Extents of the input (w, h, c, n)
      integer, intent(in) :: x(4)
      !> Extents of the weights (s, r, c/groups, k)
      integer, intent(in) :: w(4)
      !> Extents of the result (q, p, k, n); 0 where there is none
      integer, intent(out) :: y(4)
      !> Which value or shape is wrong, and what was expected
      type(error_type), allocatable, intent(out) :: error

      y = 0
      call self%check_parameters(error)
      if (allocated(error)) return
      if (any(x < 1) .or. any(w < 1)) then
         call fail(error, "conv2d: empty tensor, input "//shape_text(x)//", weight "//shape_text(w))
         return
      end if
      if (x(3) /= w(3)*self%groups) then
         call fail(error, "conv2d: input "//shape_text(x)//" has "//to_text(x(3))//" channels, weight "// &
            & shape_text(w)//" with groups = "//to_text(self%groups)//" expects "//to_text(w(3)*self%groups))
         return
      end if
      if (mod(w(4), self%groups) /= 0) then
         call fail(error, "conv2d: weight "//shape_text(w)//" has "//to_text(w(4))// &
            & " output channels, expected a multiple of groups = "//to_text(self%groups))
         return
      end if
      y(1) = positions(x(1), w(1), self%stride_w, self%pad_w, self%dilation_w)
      y(2) = positions(x(2), w(2), self%stride_h, self%pad_h, self%dilation_h)
      y(3) = w(4)
      y(4) = x(4)
      if (any(y(1:2) < 1)) then
         call fail(error, "conv2d: the kernel of weight "//shape_text(w)// &
            & " is larger than the padded input "//shape_text(x))
      else if (.not. fits_32_bits(x, w, y, self%groups)) then
         call fail(error, "conv2d: input "//shape_text(x)//" with weight "//shape_text(w)// &
            & " is too large: an image, the weights, or one unfolded row has 2**31 elements or more")
      end if
   end subroutine output_extent

   !> Our kernels count the pixels of one image, the weights, one unfolded row, and the rows of the batch
   !> in 32 bits
   pure logical function fits_32_bits(x, w, y, groups)
      !> Extents of the input (w, h, c, n)
      integer, intent(in) :: x(4)
      !> Extents of the weights (s, r, c/groups, k)
      integer, intent(in) :: w(4)
      !> Extents of the result (q, p, k, n)
      integer, intent(in) :: y(4)
      !> Groups of channels that are convolved apart
      integer, intent(in) :: groups
      integer(i8) :: unfolded_row
      unfolded_row = product(int(w(1:2), i8))*max(w(3), w(4))
      fits_32_bits = unfolded_row <= huge(1)/int(max(x(1), y(1)), i8)
      fits_32_bits = fits_32_bits .and. product(int(w, i8)) <= huge(1)
      fits_32_bits = fits_32_bits .and. max(x(2), y(2))*int(groups, i8) <= huge(1)/x(4)
      fits_32_bits = fits_32_bits .and. max(product(int(x(1:2), i8)), product(int(y(1:2), i8))) <= huge(1)
   end function fits_32_bits

   subroutine check_parameters(self, error)
      class(conv_type), intent(in) :: self
      !> Which of them is out of its range
      type(error_type), allocatable, intent(out) :: error
      call at_least("stride", [self%stride_h, self%stride_w], 1, error)
      if (allocated(error)) return
      call at_least("padding", [self%pad_h, self%pad_w], 0, error)
      if (allocated(error)) return
      call at_least("dilation", [self%dilation_h, self%dilation_w], 1, error)
      if (allocated(error)) return
      call at_least("groups", [self%groups], 1, error)
   end subroutine check_parameters

   subroutine at_least(name, found, lowest, error)
      !> What the values are, for the message
      character(len=*), intent(in) :: name
      !> Along h and w, or one value
      integer, intent(in) :: found(:)
      !> The smallest value that is allowed
      integer, intent(in) :: lowest
      !> What was found, and the range
      type(error_type), allocatable, intent(out) :: error
      ! The upper limit keeps every index computation inside 32 bits
      if (any(found < lowest) .or. any(found > 32767)) call fail(error, "conv2d: "//name//" is "// &
         & to_text(found)//", expected values from "//to_text(lowest)//" to 32767")
   end subroutine at_least

   !> Output positions along one axis; below 1 when the kernel does not fit
   pure integer function positions(n, kernel, stride, pad, dilation)
      !> Input pixels along the axis
      integer, intent(in) :: n
      !> Taps along the axis
      integer, intent(in) :: kernel
      !> Input pixels from one output position to the next
      integer, intent(in) :: stride
      !> Zeros on each side, in pixels
      integer, intent(in) :: pad
      !> Input pixels from one tap to the next
      integer, intent(in) :: dilation
      integer(i8) :: room
      room = n + 2_i8*pad - int(dilation, i8)*(kernel - 1) - 1
      positions = 0
      if (room >= 0) positions = int(min(room/stride + 1, int(huge(1), i8)))
   end function positions

   !> All taps of one axis: tap t pairs output o (from 0) with input o*stride - pad + (t-1)*dilation
   pure function taps_along(n_in, n_out, kernel, stride, pad, dilation) result(taps)
      !> Input pixels along the axis
      integer, intent(in) :: n_in
      !> Output pixels along the axis
      integer, intent(in) :: n_out
      !> Taps along the axis
      integer, intent(in) :: kernel
      !> Input pixels from one output position to the next
      integer, intent(in) :: stride
      !> Zeros on each side, in pixels
      integer, intent(in) :: pad
      !> Input pixels from one tap to the next
      integer, intent(in) :: dilation
      type(tap_type) :: taps(kernel)
      integer :: t, offset, first, last
      do t = 1, kernel
         offset = (t - 1)*dilation - pad
         ! first o with o*stride + offset >= 0, last o with o*stride + offset <= n_in - 1
         first = max(0, (-offset + stride - 1)/stride)
         if (offset >= 0) first = 0
         last = -1
         if (n_in - 1 - offset >= 0) last = min(n_out - 1, (n_in - 1 - offset)/stride)
         taps(t)%pairs = max(0, last - first + 1)
         taps(t)%out_first = first + 1
         taps(t)%in_first = first*stride + offset + 1
         taps(t)%in_step = stride
      end do
   end function taps_along

end module cnn_core_conv_geometry
