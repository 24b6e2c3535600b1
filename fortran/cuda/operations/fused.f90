! SPDX-License-Identifier: MIT
!> Convolutions with only ReLUs between them, channels last from the first to the last: what tensor cores want.
!>
!> Inside.  What one convolution hands to the next is NHWC and of the type that is multiplied: float32 with tf32, else
!>          float16 or bfloat16. Outside it is NCHW and float32: input, output and parameters are converted, at the
!>          ends where there is little to copy, or with one channel in float32 nothing.
!> Plans.   All of the graph API. Forward convolutions take bias and ReLU, data gradients the ReLU's mask where that is
!>          offered and faster; else the mask is applied by the kernel that sums the bias gradient.
!> Sums.    Bias gradients are float64 sums of what is stored.
module cnn_cuda_operations_fused
   use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_device_name, only : device_name_type, math_fp32
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_float32, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_layout_boundary, only : bring_in, bring_out, boundary_type, places_type
   use cnn_cuda_operations_masked, only : backward_relu
   use cnn_cuda_operations_nhwc_plans, only : has_plan, run
   use cnn_cuda_operations_sums, only : most_rows
   use cnn_cuda_plans_direct, only : is_direct
   use cnn_cuda_plans_request, only : conv_data, conv_filter, conv_forward, conv_request_type, layout_nhwc, &
      & multiplied_as
   implicit none
   private

   public :: backward_nhwc, find_form, forward_nhwc

contains

   !> Whether the fused sequence is computed with channels last, and then in which element type; only extents of tensors
   !> matter
   subroutine find_form(device, name, steps, last, dtype, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> The sequence's convolutions, first to last
      type(conv_step_type), intent(in) :: steps(:)
      !> Whether with channels last
      logical, intent(out) :: last
      !> Element type of what lies between, of cnn_core_kinds
      integer, intent(out) :: dtype
      !> An error of the search for plans
      type(error_type), allocatable, intent(out) :: error
      integer :: i, operation

      dtype = steps(1)%x%dtype
      last = .false.
      ! A gradient that goes on below would have to be converted, too
      if (size(steps) < 2 .or. steps(1)%keeps_gradient .or. dtype /= dtype_float32) return
      if (name%math == math_fp32) return
      if (all_direct(name, steps)) return
      do i = 1, size(steps)
         if (max(steps(i)%x%extent(3), steps(i)%y%extent(3)) > most_rows) return
         do operation = conv_forward, conv_filter
            if (i == 1 .and. operation == conv_data) cycle
            last = has_plan(device, name, request_of(steps(i), operation, multiplied_as(dtype, name%math)), error)
            if (allocated(error) .or. .not. last) return
         end do
      end do
      dtype = multiplied_as(dtype, name%math)
   end subroutine find_form

   !> Whether our own kernels do all of it, which are faster
   pure logical function all_direct(name, steps)
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> The sequence's convolutions, first to last
      type(conv_step_type), intent(in) :: steps(:)
      integer :: i, operation
      all_direct = .true.
      do i = 1, size(steps)
         do operation = conv_forward, conv_filter
            if (i == 1 .and. operation == conv_data) cycle
            all_direct = all_direct .and. is_direct(name, operation, steps(i)%conv, steps(i)%x%dtype, &
               & steps(i)%x%extent, steps(i)%w%extent, steps(i)%y%extent)
         end do
      end do
   end function all_direct

   pure function request_of(step, operation, dtype) result(request)
      !> A convolution of the sequence
      type(conv_step_type), intent(in) :: step
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Element type inside, of cnn_core_kinds
      integer, intent(in) :: dtype
      type(conv_request_type) :: request
      request = conv_request_type(operation=operation, dtype=dtype, layout=layout_nhwc, conv=step%conv, &
         & x=step%x%extent(:4), w=step%w%extent(:4), y=step%y%extent(:4))
      if (operation /= conv_forward) return
      request%bias = step%bias%extent(1) > 0
      request%relu = step%relu
   end function request_of

   !> y of all steps, those between in the sequence's form
   subroutine forward_nhwc(device, name, steps, dtype, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> The sequence's convolutions, first to last
      type(conv_step_type), intent(in) :: steps(:)
      !> Inside
      integer, intent(in) :: dtype
      type(error_type), allocatable, intent(out) :: error
      type(boundary_type) :: x, y, w(size(steps)), bias(size(steps))
      type(places_type) :: places
      type(tensor_type) :: between, from, to
      type(conv_request_type) :: request
      integer :: i, last

      last = size(steps)
      call lay_out()
      call device%reserve_scratch(int(places%bytes, c_size_t), places%base, error)
      if (allocated(error)) return
      places%bytes = 0
      call lay_out()
      call bring_in(device, x, between%address, error)
      if (allocated(error)) return
      from = x%inside
      do i = 1, last
         call bring_in(device, w(i), between%address, error)
         if (allocated(error)) return
         call bring_in(device, bias(i), between%address, error)
         if (allocated(error)) return
         to = steps(i)%y
         if (i == last) to = y%inside
         request = request_of(steps(i), conv_forward, dtype)
         if (request%bias) then
            call run(device, name, request, [from%address, w(i)%inside%address, to%address, &
               & bias(i)%inside%address], error)
         else
            call run(device, name, request, [from%address, w(i)%inside%address, to%address], error)
         end if
         if (allocated(error)) return
         from = to
      end do
      call bring_out(device, y, between%address, error)

   contains

      subroutine lay_out()
         integer :: k
         call places%place(x, steps(1)%x, dtype)
         call places%place(y, steps(last)%y, dtype)
         between = largest(x, y, dtype)
         do k = 1, last
            call places%place(w(k), steps(k)%w, dtype)
            call places%place(bias(k), steps(k)%bias, dtype)
            if (w(k)%inside%count() > between%count()) between = w(k)%inside
         end do
         if (dtype /= dtype_float32) between = places%room(between%extent, dtype)
      end subroutine lay_out

   end subroutine forward_nhwc

   !> dw of all steps and db of all but the last, from the gradient dy of the last output; the steps' outputs between
   !> are used up
   subroutine backward_nhwc(device, name, steps, dtype, dy, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> The sequence's convolutions, first to last
      type(conv_step_type), intent(in) :: steps(:)
      !> Element type inside, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Gradient of the last output (q, p, k, n), *device*
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      type(boundary_type) :: x, dz, w(size(steps)), dw(size(steps))
      type(places_type) :: places
      type(tensor_type) :: between, gradient, gradients(size(steps))
      integer :: i

      call lay_out()
      call device%reserve_scratch(int(places%bytes, c_size_t), places%base, error)
      if (allocated(error)) return
      places%bytes = 0
      call lay_out()
      call bring_in(device, x, between%address, error)
      if (allocated(error)) return
      call bring_in(device, dz, between%address, error)
      if (allocated(error)) return
      gradient = dz%inside
      do i = size(steps), 2, -1
         call filter_gradient(i, steps(i)%x)
         if (allocated(error)) return
         call bring_in(device, w(i), between%address, error)
         if (allocated(error)) return
         call backward_relu(device, name, request_of(steps(i), conv_data, dtype), w(i)%inside, gradient, steps(i)%x, &
            & gradients(i), steps(i - 1)%db, error)
         if (allocated(error)) return
         gradient = gradients(i)
      end do
      call filter_gradient(1, x%inside)

   contains

      subroutine filter_gradient(k, input)
         !> Number of the convolution
         integer, intent(in) :: k
         !> Input of the convolution in the sequence's form, *device*
         type(tensor_type), intent(in) :: input
         call run(device, name, request_of(steps(k), conv_filter, dtype), [input%address, dw(k)%inside%address, &
            & gradient%address], error)
         if (allocated(error)) return
         call bring_out(device, dw(k), between%address, error)
      end subroutine filter_gradient

      !> The gradient before step k goes where its output was, when that is large enough: nobody needs the output then
      subroutine lay_out()
         integer :: k
         call places%place(x, steps(1)%x, dtype)
         call places%place(dz, dy, dtype)
         between = largest(x, dz, dtype)
         do k = 1, size(steps)
            call places%place(w(k), steps(k)%w, dtype)
            call places%place(dw(k), steps(k)%dw, dtype)
            if (w(k)%inside%count() > between%count()) between = w(k)%inside
            if (k == 1) cycle
            if (k < size(steps) .and. steps(k)%y%count() >= steps(k)%x%count()) then
               gradients(k) = steps(k)%x
               gradients(k)%address = steps(k)%y%address
            else
               gradients(k) = places%room(steps(k)%x%extent, dtype)
            end if
         end do
         if (dtype /= dtype_float32) between = places%room(between%extent, dtype)
      end subroutine lay_out

   end subroutine backward_nhwc

   !> Of two tensors inside the one with more elements
   type(tensor_type) function largest(a, b, dtype)
      !> A tensor and what stands for it
      type(boundary_type), intent(in) :: a
      !> Another of the same kind
      type(boundary_type), intent(in) :: b
      !> Element type inside, of cnn_core_kinds
      integer, intent(in) :: dtype
      largest = a%inside
      if (b%inside%count() > largest%count()) largest = b%inside
      largest%dtype = dtype
   end function largest

end module cnn_cuda_operations_fused
