! SPDX-License-Identifier: MIT
!> What a device can do. The model is written on this and nothing else.
!>
!> A backend is one extension of this type, in a file of its own, chosen at run time by name.
!> Shapes and element types have been checked by the caller (`conv_type%output_extent`,
!> `network_type`); a backend reports what only it can know: no memory, a failed library call.
!> Work may be queued: only `copy_in`, `copy_out` and `read_loss` wait for the device.
!>
!> Letters.  n batch, c input channels, h w image, k output channels, r s kernel, p q output image.
module cnn_core_backend
   use, intrinsic :: iso_c_binding, only : c_ptr
   use cnn_core_calls, only : primitive_type, unpack
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, dtype_bfloat16, dtype_float16, dtype_float32, dtype_float64, dtype_name, &
      & dtype_none
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : max_rank, shape_text, tensor_type
   use cnn_core_text, only : to_text
   implicit none
   private

   public :: backward_step_by_step, forward_step_by_step, no_primitive, one_after_the_other

   type, abstract, public :: backend_type
      !> The device's name, for messages and files
      character(len=:), allocatable :: name
      !> Tensors allocated and not yet released: 0 at the end, or something leaked
      integer :: live_tensors = 0
      !> How float32 operands of convolutions are multiplied, when not as float32: tf32, fp16, bf16
      character(len=:), allocatable :: math
      !> Whether it takes float16 and bfloat16
      logical :: stores_16_bits = .false.
      !> Whether work can be captured and replayed
      logical :: captures = .false.
      !> Whether work is queued, so that to look at a number waits for all that is
      logical :: queues = .false.
      !> Whether tensors are in host memory
      logical :: in_host_memory = .false.
      !> Whether it has `conv_backward_relu`
      logical :: works_in_place = .false.
      !> Whether it has `conv_backward_leaky`, and `conv_forward` takes slopes
      logical :: has_slopes = .false.
      !> Whether `conv_forward` (without slopes) and the three gradients take channels_last tensors
      logical :: takes_channels_last = .false.
   contains
      procedure, non_overridable :: require
      procedure, non_overridable :: math_mode
      procedure, non_overridable :: supports
      procedure :: conv_backward_relu
      procedure :: conv_backward_leaky
      procedure :: compute
      procedure :: other_loss
      procedure :: forward_sequence => forward_step_by_step
      procedure :: backward_sequence => backward_step_by_step
      procedure :: sequence_algorithm => one_after_the_other
      procedure :: find_storage_format => as_they_are
      procedure :: start_capture => no_capture
      procedure :: end_capture => no_capture
      procedure :: replay => no_replay
      procedure :: feed => feed_now
      procedure :: await_feed => no_feed_to_wait_for
      procedure :: release_feed => no_feed_to_wait_for
      procedure :: close => close_backend
      procedure(allocate_), deferred :: allocate
      procedure(release_), deferred :: release
      procedure(clear_), deferred :: clear
      procedure(copy_in_), deferred :: copy_in
      procedure(copy_out_), deferred :: copy_out
      procedure(conv_forward_), deferred :: conv_forward
      procedure(conv_backward_data_), deferred :: conv_backward_data
      procedure(conv_backward_filter_), deferred :: conv_backward_filter
      procedure(conv_backward_bias_), deferred :: conv_backward_bias
      procedure(relu_forward_), deferred :: relu_forward
      procedure(relu_backward_), deferred :: relu_backward
      procedure(mse_), deferred :: mse
      procedure(read_loss_), deferred :: read_loss
      procedure(update_), deferred :: update
      procedure(convert_), deferred :: convert
      procedure(use_stream_), deferred :: use_stream
      procedure(wait_), deferred :: wait
   end type backend_type

   abstract interface
      !> A tensor with memory of its own; its values are undefined
      subroutine allocate_(self, dtype, extent, tensor, error)
         import :: backend_type, error_type, max_rank, tensor_type
         implicit none
         class(backend_type), intent(inout) :: self
         !> Element type, of cnn_core_kinds
         integer, intent(in) :: dtype
         !> Elements along each dimension, in Fortran order
         integer, intent(in) :: extent(max_rank)
         !> The new tensor; without memory after an error
         type(tensor_type), intent(out) :: tensor
         type(error_type), allocatable, intent(out) :: error
      end subroutine allocate_

      !> Give the memory of `allocate` back; nothing happens for an empty tensor
      subroutine release_(self, tensor)
         import :: backend_type, tensor_type
         implicit none
         class(backend_type), intent(inout) :: self
         !> Tensor whose memory is given back; empty afterwards
         type(tensor_type), intent(inout) :: tensor
      end subroutine release_

      !> Set all elements to zero
      subroutine clear_(self, tensor, error)
         import :: backend_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Tensor that becomes zero
         type(tensor_type), intent(in) :: tensor
         type(error_type), allocatable, intent(out) :: error
      end subroutine clear_

      !> Copy `tensor%bytes()` bytes from host memory, which is free to change on return
      subroutine copy_in_(self, host, tensor, error)
         import :: backend_type, c_ptr, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Host memory of `tensor%bytes()` bytes
         type(c_ptr), intent(in) :: host
         !> Tensor that is overwritten
         type(tensor_type), intent(in) :: tensor
         type(error_type), allocatable, intent(out) :: error
      end subroutine copy_in_

      !> Copy `tensor%bytes()` bytes to host memory, where they are on return
      subroutine copy_out_(self, tensor, host, error)
         import :: backend_type, c_ptr, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Tensor that is copied
         type(tensor_type), intent(in) :: tensor
         !> Host memory of `tensor%bytes()` bytes, is overwritten
         type(c_ptr), intent(in) :: host
         type(error_type), allocatable, intent(out) :: error
      end subroutine copy_out_

      !> y(n,k,p,q) = conv(x(n,c,h,w), w(k,c/groups,r,s)) + bias(k), then max(y, 0) with `relu`
      subroutine conv_forward_(self, step, error)
         import :: backend_type, conv_step_type, error_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Convolution with bias, where that is not empty, and ReLU; its `y` is overwritten
         type(conv_step_type), intent(in) :: step
         type(error_type), allocatable, intent(out) :: error
      end subroutine conv_forward_

      !> dx = gradient of the loss with respect to x; overwrites dx
      subroutine conv_backward_data_(self, conv, w, dy, dx, error)
         import :: backend_type, conv_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Stride, padding, dilation and groups
         type(conv_type), intent(in) :: conv
         !> Filters (s, r, c/groups, k)
         type(tensor_type), intent(in) :: w
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the input (w, h, c, n), is overwritten
         type(tensor_type), intent(in) :: dx
         type(error_type), allocatable, intent(out) :: error
      end subroutine conv_backward_data_

      !> dw = gradient with respect to w, summed over the batch; overwrites dw
      subroutine conv_backward_filter_(self, conv, x, dy, dw, error)
         import :: backend_type, conv_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Stride, padding, dilation and groups
         type(conv_type), intent(in) :: conv
         !> Input (w, h, c, n)
         type(tensor_type), intent(in) :: x
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
         type(tensor_type), intent(in) :: dw
         type(error_type), allocatable, intent(out) :: error
      end subroutine conv_backward_filter_

      !> db(k) = sum of dy over n, p, q; overwrites db
      subroutine conv_backward_bias_(self, dy, db, error)
         import :: backend_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Gradient with respect to the output (q, p, k, n)
         type(tensor_type), intent(in) :: dy
         !> Gradient with respect to the bias (k, 1, 1, 1), is overwritten
         type(tensor_type), intent(in) :: db
         type(error_type), allocatable, intent(out) :: error
      end subroutine conv_backward_bias_

      !> a = max(z, 0); NaN stays NaN
      subroutine relu_forward_(self, z, a, error)
         import :: backend_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Input of the ReLU
         type(tensor_type), intent(in) :: z
         !> Output of the ReLU, is overwritten; may be z
         type(tensor_type), intent(in) :: a
         type(error_type), allocatable, intent(out) :: error
      end subroutine relu_forward_

      !> dz = da where z > 0, else 0 (torch: the derivative at 0 is 0), and db(c) = sum of dz over n, h, w when
      !> `db` is not empty. `z` may be the ReLU's output: both are positive at the same places
      subroutine relu_backward_(self, z, da, dz, db, error)
         import :: backend_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Input of the ReLU, or its output: both are positive at the same places
         type(tensor_type), intent(in) :: z
         !> Gradient with respect to the output
         type(tensor_type), intent(in) :: da
         !> Gradient with respect to the input, is overwritten; may be da
         type(tensor_type), intent(in) :: dz
         !> Sums of dz over n, h and w (c, 1, 1, 1), is overwritten; empty when not wanted
         type(tensor_type), intent(in) :: db
         type(error_type), allocatable, intent(out) :: error
      end subroutine relu_backward_

      !> loss = scale * sum((y - target)**2), dy = 2*scale*(y - target); scale is 1 (sum) or 1/N (mean).
      !> The loss stays on the device until `read_loss`
      subroutine mse_(self, y, target, scale, dy, error)
         import :: backend_type, dp, error_type, tensor_type
         implicit none
         class(backend_type), intent(inout) :: self
         !> Output of the network
         type(tensor_type), intent(in) :: y
         !> Wanted output, of the same shape
         type(tensor_type), intent(in) :: target
         !> Factor of the sum of squares: 1, or 1/N for the mean
         real(dp), intent(in) :: scale
         !> Gradient of the loss with respect to y, is overwritten
         type(tensor_type), intent(in) :: dy
         type(error_type), allocatable, intent(out) :: error
      end subroutine mse_

      !> The loss of the last `mse` or `other_loss`; waits for the device
      subroutine read_loss_(self, loss, error)
         import :: backend_type, dp, error_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Loss of the last `mse`
         real(dp), intent(out) :: loss
         type(error_type), allocatable, intent(out) :: error
      end subroutine read_loss_

      !> One SGD step on w with gradient g, all parameters of a network in one vector; v is the momentum
      !> buffer (empty without momentum), set from g when `first`
      subroutine update_(self, sgd, first, w, g, v, error)
         import :: backend_type, error_type, sgd_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Learning rate, momentum, dampening, weight decay
         type(sgd_type), intent(in) :: sgd
         !> Whether this is the first step, which sets the momentum buffer
         logical, intent(in) :: first
         !> Parameters, updated in place
         type(tensor_type), intent(in) :: w
         !> Gradient of the loss with respect to the parameters
         type(tensor_type), intent(in) :: g
         !> Momentum buffer, updated in place; empty without momentum
         type(tensor_type), intent(in) :: v
         type(error_type), allocatable, intent(out) :: error
      end subroutine update_

      !> to = from, in another element type or the same
      subroutine convert_(self, from, to, error)
         import :: backend_type, error_type, tensor_type
         implicit none
         class(backend_type), intent(in) :: self
         !> Tensor that is read
         type(tensor_type), intent(in) :: from
         !> Tensor of the same shape that is overwritten
         type(tensor_type), intent(in) :: to
         type(error_type), allocatable, intent(out) :: error
      end subroutine convert_

      !> Queue work on this stream from now on, or on the device's `own`
      subroutine use_stream_(self, stream, own, error)
         import :: backend_type, c_ptr, error_type
         implicit none
         class(backend_type), intent(in) :: self
         !> A `cudaStream_t`; null for the default stream
         type(c_ptr), intent(in) :: stream
         !> Whether the device's own stream is meant, whatever `stream` is
         logical, intent(in) :: own
         type(error_type), allocatable, intent(out) :: error
      end subroutine use_stream_

      !> Wait for what is queued
      subroutine wait_(self, error)
         import :: backend_type, error_type
         implicit none
         class(backend_type), intent(in) :: self
         type(error_type), allocatable, intent(out) :: error
      end subroutine wait_
   end interface

contains

   !> A tensor that this device can work on, else an error
   subroutine require(self, tensor, error)
      class(backend_type), intent(in) :: self
      !> Tensor to be looked at
      type(tensor_type), intent(in) :: tensor
      !> Says that the tensor is empty
      type(error_type), allocatable, intent(out) :: error
      if (.not. tensor%is_allocated() .or. tensor%bytes() < 1) call fail(error, "device "//self%name// &
         & ": a "//dtype_name(tensor%dtype)//" tensor "//shape_text(tensor%extent)//" without memory")
   end subroutine require

   !> Through a convolution whose input `a` is the output of a ReLU: from the gradient dy of its output to that of the
   !> ReLU's input, which is the gradient with respect to a where a is positive, else 0, and takes the memory of a;
   !> db(c) = its sum over n, h, w when `db` is not empty. Only where the device `works_in_place`
   subroutine conv_backward_relu(self, conv, w, dy, a, db, error)
      class(backend_type), intent(inout) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Output of the ReLU and input of the convolution (w, h, c, n); becomes the gradient with respect to the ReLU's
      !> input
      type(tensor_type), intent(in) :: a
      !> Sums of that gradient over n, h and w (c, 1, 1, 1), is overwritten; empty when not wanted
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      call self%require(a, error)
      if (allocated(error)) return
      call fail(error, "device "//self%name//": cannot put the gradient of "// &
         & shape_text(dy%extent)//" through weight "//shape_text(w%extent)//", groups = "//to_text(conv%groups)// &
         & ", and bias "//shape_text(db%extent)//" into the memory of the output "//shape_text(a%extent))
   end subroutine conv_backward_relu

   !> The same of one convolution by itself, and where the ReLU may be leaky: with a slope that is positive the gradient
   !> is that times the one with respect to a where a is not positive
   subroutine conv_backward_leaky(self, conv, w, dy, a, slope, error)
      class(backend_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Output of the ReLU and input of the convolution (w, h, c, n); becomes the gradient with respect to the ReLU's
      !> input
      type(tensor_type), intent(in) :: a
      !> Of the ReLU
      real(dp), intent(in) :: slope
      type(error_type), allocatable, intent(out) :: error
      call self%require(a, error)
      if (allocated(error)) return
      call fail(error, "device "//self%name//": cannot put the gradient of "//shape_text(dy%extent)// &
         & " through weight "//shape_text(w%extent)//", groups = "//to_text(conv%groups)//", and slope "// &
         & to_text(slope)//" into the memory of the output "//shape_text(a%extent))
   end subroutine conv_backward_leaky

   !> Run a primitive. Only where tensors are not in host memory, where loops do it
   subroutine compute(self, primitive, error)
      class(backend_type), intent(in) :: self
      !> Its tensors are in the device's memory
      class(primitive_type), intent(in) :: primitive
      type(error_type), allocatable, intent(out) :: error
      call no_primitive(self, primitive, error)
   end subroutine compute

   !> As `mse`, a primitive that is a loss; the same holds
   subroutine other_loss(self, primitive, error)
      class(backend_type), intent(inout) :: self
      !> Its tensors are in the device's memory
      class(primitive_type), intent(in) :: primitive
      type(error_type), allocatable, intent(out) :: error
      call no_primitive(self, primitive, error)
   end subroutine other_loss

   subroutine no_primitive(self, primitive, error)
      class(backend_type), intent(in) :: self
      !> The call
      class(primitive_type), intent(in) :: primitive
      !> Names both
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: name
      type(tensor_type), allocatable :: tensors(:)
      integer, allocatable :: integers(:)
      real(dp), allocatable :: reals(:)
      call unpack(primitive, name, tensors, integers, reals)
      call fail(error, "device "//self%name//": no primitive "//name//" into "// &
         & shape_text(tensors(size(tensors))%extent))
   end subroutine no_primitive

   !> y of all steps
   subroutine forward_step_by_step(self, steps, error)
      class(backend_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(steps)
         call self%conv_forward(steps(i), error)
         if (allocated(error)) return
      end do
   end subroutine forward_step_by_step

   !> How `forward_sequence` and `backward_sequence` go about it, in words; only the extents of tensors matter
   function one_after_the_other(self, steps) result(text)
      class(backend_type), intent(in) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      character(len=:), allocatable :: text
      text = "on device "//self%name//", one after the other"
      if (size(steps) == 1) text = "on device "//self%name
   end function one_after_the_other

   !> How a memory-efficient network keeps what one convolution of a fused sequence hands to the next: in which element
   !> type, and whether so that only the device can read it; only the extents of tensors matter, and the type of x
   subroutine as_they_are(self, steps, dtype, opaque, error)
      class(backend_type), intent(inout) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      !> Element type of what is kept, of cnn_core_kinds
      integer, intent(out) :: dtype
      !> Whether only the device can read it
      logical, intent(out) :: opaque
      type(error_type), allocatable, intent(out) :: error
      dtype = dtype_none
      opaque = .false.
      if (size(steps) < 1) then
         call fail(error, "device "//self%name//": a fused sequence without a convolution")
      else
         dtype = steps(1)%x%dtype
      end if
   end subroutine as_they_are

   !> Where the device `captures`: from `start_capture` to `end_capture`, which follows in any case, work is not
   !> done but captured, for `replay` to do it as often as wanted. There is one captured graph for each backend, and
   !> every address is part of it
   subroutine no_capture(self, error)
      class(backend_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call fail(error, "device "//self%name//": captures nothing")
   end subroutine no_capture

   !> `done` is false where nothing was captured, or the device's own memory has moved since
   subroutine no_replay(self, done, error)
      class(backend_type), intent(inout) :: self
      !> Whether there was a captured graph that still holds
      logical, intent(out) :: done
      type(error_type), allocatable, intent(out) :: error
      done = .false.
      call fail(error, "device "//self%name//": has captured nothing")
   end subroutine no_replay

   !> Fill tensors from host memory, which is free to change on return, while queued work goes on: they are filled for
   !> work queued after `await_feed`, and the next `feed` waits for what is queued before `release_feed`
   subroutine feed_now(self, hosts, tensors, error)
      class(backend_type), intent(inout) :: self
      !> Host memory for each tensor, free to change on return
      type(c_ptr), intent(in) :: hosts(:)
      !> Tensors that are filled
      type(tensor_type), intent(in) :: tensors(:)
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      do i = 1, size(tensors)
         call self%copy_in(hosts(i), tensors(i), error)
         if (allocated(error)) return
      end do
   end subroutine feed_now

   subroutine no_feed_to_wait_for(self, error)
      class(backend_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%wait(error)
   end subroutine no_feed_to_wait_for

   !> Give back what is not a tensor, before the network's tensors are released, which is all that may follow. A device
   !> of only tensors has nothing else than its name
   subroutine close_backend(self)
      class(backend_type), intent(inout) :: self
      if (allocated(self%name)) deallocate (self%name)
   end subroutine close_backend

   !> From the gradient dy of the last output to dw of all steps and db of all but the last. Each x but the first's is
   !> the output of a ReLU, and is used up; where the first step needs the gradient, the second's x takes it, see
   !> `conv_backward_relu`
   subroutine backward_step_by_step(self, steps, dy, error)
      class(backend_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> Gradient with respect to the last output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: gradient
      integer :: i
      gradient = dy
      do i = size(steps), 2, -1
         associate (step => steps(i))
            call self%conv_backward_filter(step%conv, step%x, gradient, step%dw, error)
            if (allocated(error)) return
            call self%conv_backward_relu(step%conv, step%w, gradient, step%x, steps(i - 1)%db, error)
            if (allocated(error)) return
            gradient = step%x
         end associate
      end do
      call self%conv_backward_filter(steps(1)%conv, steps(1)%x, gradient, steps(1)%dw, error)
   end subroutine backward_step_by_step

   !> The arithmetic of convolutions on tensors of this element type, as exchange files record it
   function math_mode(self, dtype) result(mode)
      class(backend_type), intent(in) :: self
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      character(len=:), allocatable :: mode
      mode = "fp"//to_text(8*bytes_of(dtype))
      if (dtype == dtype_float32 .and. allocated(self%math)) mode = self%math
   end function math_mode

   !> Whether convolutions take tensors of this element type
   pure logical function supports(self, dtype)
      class(backend_type), intent(in) :: self
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      supports = dtype == dtype_float32 .or. dtype == dtype_float64 .or. &
         & (self%stores_16_bits .and. (dtype == dtype_float16 .or. dtype == dtype_bfloat16))
   end function supports

end module cnn_core_backend
