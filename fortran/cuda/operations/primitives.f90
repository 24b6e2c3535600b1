! SPDX-License-Identifier: MIT
!> The primitives of fortran/operations on a CUDA device, by our kernels. Most are a kernel of the same name, which goes
!> through the elements of the last tensor; the others are below, and in cnn_cuda_operations_normalization, _row_norms
!> and _spline.
module cnn_cuda_operations_primitives
   use cnn_core_axes, only : axes_type, most_tensors, moves
   use cnn_core_calls, only : add_bias_call, attention_backward_call, attention_weights_call, avg_pool_backward_call, &
      & avg_pool_call, batch_norm_backward_call, batch_norm_call, combine_backward_call, combine_call, &
      & complex_product_call, extreme_backward_call, extreme_call, &
      & from_channels_call, gather_rows_backward_call, gather_rows_call, gru_cell_backward_call, gru_cell_call, &
      & interpolate_backward_call, interpolate_call, lstm_cell_backward_call, lstm_cell_call, lstm_gates_call, &
      & matmul_call, max_pool_backward_call, max_pool_call, move_call, primitive_type, &
      & resample_backward_call, resample_call, rnn_cell_backward_call, rnn_cell_call, row_norm_backward_call, &
      & row_norm_call, softmax_backward_call, softmax_call, spline_backward_call, spline_call, spline_gradients_call, &
      & spread_call, sum_to_call, times_before_call, to_channels_call, unpack
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_axes, only : add_boxes, axes_of, boxes_of, launch, launch_axes, moved, sizes_in, split
   use cnn_cuda_operations_normalization, only : batch_norm, batch_norm_backward
   use cnn_cuda_operations_row_norms, only : row_norm, row_norm_backward
   use cnn_cuda_operations_spline, only : spline_gradients
   implicit none
   private

   public :: compute

   !> Of a table, which a thread sums: each reads all numbers that choose rows
   integer(i8), parameter :: rows_of_thread = 32

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
       type is (extreme_call)
         call find_extremes(device, "extreme", [p%x, p%y], [int(p%sign, i8)], error)
       type is (extreme_backward_call)
         call find_extremes(device, "extreme_backward", [p%x, p%y, p%dy, p%dx], [merge(1_i8, 0_i8, p%to_first)], error)
       type is (row_norm_call)
         call row_norm(device, p, error)
       type is (row_norm_backward_call)
         call row_norm_backward(device, p, error)
       type is (spline_gradients_call)
         call spline_gradients(device, p, error)
       type is (attention_weights_call)
         call launch(device, "attention_weights", p%y%count()/p%y%extent(1), [p%y], [int(p%y%extent(:2), i8), &
            & int(p%first, i8), merge(1_i8, 0_i8, p%is_causal)], [p%scale], error)
       type is (attention_backward_call)
         call launch(device, "attention_backward", p%dx%count()/p%dx%extent(1), [p%weights, p%dx], &
            & [int(p%dx%extent(1), i8)], [p%scale], error)
       type is (spread_call)
         call launch_axes(device, "gather", [p%from, p%to], axes_of(p%to, p%from, p%to), 1, [integer(i8) ::], &
            & [p%divisor], error)
       type is (sum_to_call)
         call sum_to(device, p%from, p%to, p%divisor, error)
       type is (move_call)
         call move(device, p, error)
       type is (avg_pool_call)
         if (all(p%kernel == p%from%extent([2, 1])) .and. all(p%padding == 0) .and. p%divisor > 0.0_dp) then
            call sum_to(device, p%from, p%to, p%divisor, error)
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
      allocate (extents, source=times_in(primitive))
      select type (p => primitive)
       type is (add_bias_call)
         extents = channels_of(p%to)
       type is (avg_pool_call)
         extents = sizes_of(p%from, p%to)
       type is (max_pool_call)
         extents = sizes_of(p%from, p%to)
       type is (resample_call)
         extents = sizes_of(p%from, p%to)
       type is (interpolate_call)
         extents = sizes_of(p%from, p%to)
       type is (interpolate_backward_call)
         extents = sizes_of(p%to, p%from)
       type is (avg_pool_backward_call)
         extents = sizes_of(p%to, p%from)
       type is (max_pool_backward_call)
         extents = sizes_of(p%dx, p%dy)
       type is (resample_backward_call)
         extents = sizes_of(p%to, p%from)
       type is (softmax_call)
         extents = pixels_of(p%y, p%axis)
         n = n/p%y%extent(p%axis)
       type is (softmax_backward_call)
         extents = pixels_of(p%y, p%axis)
         n = n/p%y%extent(p%axis)
       type is (gather_rows_call)
         extents = [int(p%w%extent(:2), i8), p%x%count()/p%w%extent(3)]
       type is (gather_rows_backward_call)
         extents = [int(p%dw%extent(:2), i8), p%x%count()/p%dw%extent(3), rows_of_thread]
         n = extents(1)*((extents(2) - 1)/rows_of_thread + 1)*p%dw%extent(3)
       type is (complex_product_call)
         extents = complex_steps(p)
         n = n/2
       type is (spline_call)
         extents = int([p%x%extent(1), p%y%extent(1)], i8)
       type is (spline_backward_call)
         extents = int([p%x%extent(1), p%dy%extent(1)], i8)
      end select
      call launch(device, name, n, t, [extents, settings_of(primitive, integers)], reals, error)
   end subroutine compute_elements

   !> Matrices, columns and what is summed over, and steps from row to row and along that of a, and of b
   pure function complex_steps(p) result(found)
      !> Its tensors are (2, places, columns, rows)
      type(complex_product_call), intent(in) :: p
      integer(i8) :: found(7)
      integer(i8) :: inner
      inner = p%a%extent(merge(4, 3, p%turn_a))
      found(:3) = [int(p%y%extent(2:3), i8), inner]
      found(4:5) = [inner, 1_i8]
      if (p%turn_a) found(4:5) = [1_i8, int(p%y%extent(4), i8)]
      found(6:7) = [1_i8, int(p%y%extent(3), i8)]
      if (p%turn_b) found(6:7) = [inner, 1_i8]
   end function complex_steps

   !> Of recurrent layers: numbers of a state, times, and, where shifts may be given, whether they are; else nothing
   function times_in(primitive) result(extents)
      !> The call
      class(primitive_type), intent(in) :: primitive
      integer(i8), allocatable :: extents(:)
      allocate (extents(0))
      select type (p => primitive)
       type is (lstm_cell_call)
         extents = of(p%y, p%bias)
       type is (lstm_gates_call)
         extents = of(p%states, p%bias)
       type is (lstm_cell_backward_call)
         extents = of(p%states)
       type is (gru_cell_call)
         extents = of(p%y, p%bias)
       type is (gru_cell_backward_call)
         extents = of(p%before, p%bias)
       type is (rnn_cell_call)
         extents = of(p%y, p%bias)
       type is (rnn_cell_backward_call)
         extents = of(p%y)
       type is (times_before_call)
         extents = of(p%y)
      end select

   contains

      function of(tensor, bias)
         !> Of all times
         type(tensor_type), intent(in) :: tensor
         !> Shifts of gates, or empty
         type(tensor_type), intent(in), optional :: bias
         integer(i8), allocatable :: of(:)
         allocate (of(merge(3, 2, present(bias))))
         of(:2) = int(tensor%extent(:2), i8)
         if (present(bias)) of(3) = merge(1_i8, 0_i8, bias%is_allocated())
      end function of
   end function times_in

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
         call launch_axes(device, "combine_broadcast", [a, b, y], axes_of(y, a, b, y), 2, [f], [real(dp) ::], error)
      end if
   end subroutine combine

   !> The gradient with respect to one operand, summed over the axes along which its only element stood for all
   subroutine combine_backward(device, p, error)
      type(cuda_device_type), intent(inout) :: device
      !> Its tensors are *device*
      type(combine_backward_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      type(axes_type) :: inner, outer
      integer(i8) :: at(most_tensors), i
      if (all(p%dx%extent == p%dy%extent)) then
         call launch_axes(device, "combine_backward", [p%a, p%b, p%dy, p%dx], axes_of(p%dy, p%a, p%b, p%dy, p%dx), 2, &
            & int([p%f, p%operand], i8), [real(dp) ::], error)
         return
      end if
      call split(axes_of(p%dy, p%dy, p%dx, p%a, p%b), inner, outer)
      do i = 0, outer%count() - 1
         at = outer%places(i)
         call add_boxes(device, "combine_sums", [moved(p%a, at(3)), moved(p%b, at(4)), moved(p%dy, at(1))], inner, &
            & [inner%stride(:4, 3), inner%stride(:4, 4), int([p%f, p%operand], i8)], [real(dp) ::], &
            & moved(p%dx, at(2)), error)
         if (allocated(error)) return
      end do
   end subroutine combine_backward

   !> Queue a kernel that finds a number for each box, or what is sent back to it
   subroutine find_extremes(device, name, t, integers, error)
      type(cuda_device_type), intent(in) :: device
      !> Of the kernel
      character(len=*), intent(in) :: name
      !> Its tensors, *device*: the whole, what the boxes become, and one more of each
      type(tensor_type), intent(in) :: t(:)
      !> Its settings
      integer(i8), intent(in) :: integers(:)
      !> No such kernel, or a kernel launch that failed
      type(error_type), allocatable, intent(out) :: error
      type(axes_type) :: inner, outer
      integer(i8) :: at(most_tensors), i
      integer :: j
      call split(axes_of(t(1), t(1), t(2)), inner, outer)
      do i = 0, outer%count() - 1
         at = outer%places(i)
         at(3:) = at([2, 1])
         call launch(device, name, boxes_of(inner), [(moved(t(j), at(j)), j=1, size(t))], &
            & [inner%count()/boxes_of(inner), sizes_in(inner, .true.), sizes_in(inner, .false.), inner%stride(:4, 1), &
            & integers], [real(dp) ::], error)
         if (allocated(error)) return
      end do
   end subroutine find_extremes

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
      type(axes_type) :: inner, outer
      integer(i8) :: at(most_tensors), i
      if (all(x%extent == y%extent)) then
         ! Of one number each: their divisor is 1
         call launch(device, "copy", y%count(), [y, x], [integer(i8) ::], [real(dp) ::], error)
         return
      end if
      call split(axes_of(y, y, x), inner, outer)
      do i = 0, outer%count() - 1
         at = outer%places(i)
         call add_boxes(device, "box_sums", [moved(y, at(1))], inner, [integer(i8) ::], [divisor], moved(x, at(2)), &
            & error)
         if (allocated(error)) return
      end do
   end subroutine sum_to

   !> Numbers to other places
   subroutine move(device, p, error)
      type(cuda_device_type), intent(in) :: device
      !> Its tensors are *device*
      type(move_call), intent(in) :: p
      type(error_type), allocatable, intent(out) :: error
      call launch_axes(device, "move", [p%from, p%to], moves(p%from%extent, p%order, p%from_step, p%extents, &
         & p%to%extent, p%to_step), 2, [merge(1_i8, 0_i8, p%adds)], [real(dp) ::], error)
   end subroutine move

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
