! SPDX-License-Identifier: MIT
!> A CUDA device: cuDNN for convolutions, our kernels for the rest, everything queued on one stream.
!>
!> What waits for the device is `copy_in`, `copy_out`, `read_loss`, `wait`, `release`, a workspace that grows, and
!> algorithms that are measured. The GPU itself, with its handles and buffers, is a cnn_cuda_device_type that all
!> networks of the process share; this type adds the options of one of them.
module cnn_cuda_backend
   use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
   use cnn_core_backend, only : backend_type, backward_step_by_step, forward_step_by_step, no_primitive, &
      & one_after_the_other
   use cnn_core_calls, only : class_entropy_call, cross_entropy_call, pair_loss_call, primitive_type
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_device_name, only : device_name_type, math_fp32, math_names
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float64, dtype_name
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : extent_of, max_rank, tensor_type
   use cnn_cuda_device_graph_capture, only : captured_graph_type
   use cnn_cuda_device_memory, only : allocate_tensor, clear_tensor, copy_from_host, copy_to_host, free_tensor
   use cnn_cuda_device_prefetch, only : feeder_type
   use cnn_cuda_device_registry, only : open_cuda_device
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_operations_convolution, only : backward_data, backward_filter, forward
   use cnn_cuda_operations_direct, only : direct_masked
   use cnn_cuda_operations_fused, only : backward_nhwc, find_form, forward_nhwc
   use cnn_cuda_operations_pointwise, only : bias_gradient, convert, relu_forward
   use cnn_cuda_operations_primitives, only : compute
   use cnn_cuda_operations_training, only : loss_of_graph, mse, read_loss, relu_backward, update
   use cnn_cuda_plans_direct, only : is_direct
   use cnn_cuda_plans_request, only : conv_data
   implicit none
   private

   type, extends(backend_type), public :: cuda_type
      type(device_name_type) :: options
      type(cuda_device_type), pointer :: device => null()
      !> Sum of the last loss, and the factor that makes it the loss
      type(tensor_type), private :: total
      real(dp), private :: scale = 1.0_dp
      type(captured_graph_type), private :: captured
      type(feeder_type), private :: feeder
   contains
      procedure :: open => cuda_open
      procedure :: allocate => cuda_allocate
      procedure :: release => cuda_release
      procedure :: clear => cuda_clear
      procedure :: copy_in => cuda_copy_in
      procedure :: copy_out => cuda_copy_out
      procedure :: conv_forward => cuda_conv_forward
      procedure :: conv_backward_data => cuda_conv_backward_data
      procedure :: conv_backward_filter => cuda_conv_backward_filter
      procedure :: conv_backward_bias => cuda_conv_backward_bias
      procedure :: conv_backward_relu => cuda_conv_backward_relu
      procedure :: forward_sequence => cuda_forward_sequence
      procedure :: backward_sequence => cuda_backward_sequence
      procedure :: sequence_algorithm => cuda_sequence_algorithm
      procedure :: find_storage_format => cuda_find_storage_format
      procedure :: relu_forward => cuda_relu_forward
      procedure :: relu_backward => cuda_relu_backward
      procedure :: compute => cuda_compute
      procedure :: mse => cuda_mse
      procedure :: other_loss => cuda_other_loss
      procedure :: read_loss => cuda_read_loss
      procedure :: update => cuda_update
      procedure :: convert => cuda_convert
      procedure :: start_capture => cuda_start_capture
      procedure :: end_capture => cuda_end_capture
      procedure :: replay => cuda_replay
      procedure :: feed => cuda_feed
      procedure :: await_feed => cuda_await_feed
      procedure :: release_feed => cuda_release_feed
      procedure :: close => cuda_close
      procedure :: use_stream => cuda_use_stream
      procedure :: wait => cuda_wait
      procedure, private :: begin
      procedure, private :: begin_loss
   end type cuda_type

contains

   !> The GPU of this name, opened for the process when nobody has yet
   subroutine cuda_open(self, name, error)
      class(cuda_type), intent(inout) :: self
      !> Ordinal and options of the device
      type(device_name_type), intent(in) :: name
      !> Says that there is no such GPU, or that a library is missing
      type(error_type), allocatable, intent(out) :: error
      self%options = name
      self%stores_16_bits = .true.
      self%works_in_place = .true.
      self%queues = .true.
      self%captures = name%capture
      if (name%math /= math_fp32) self%math = math_names(name%math)
      call open_cuda_device(name%ordinal, self%device, error)
   end subroutine cuda_open

   !> The GPU becomes the thread's, for work on a tensor that has memory; followed by `leave` in any case
   subroutine begin(self, tensor, error)
      class(cuda_type), intent(in) :: self
      !> Tensor that is worked on
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: failure
      call self%device%enter(error)
      if (allocated(error)) return
      call self%require(tensor, failure)
      if (allocated(failure)) call move_alloc(failure, error)
   end subroutine begin

   subroutine cuda_allocate(self, dtype, extent, tensor, error)
      class(cuda_type), intent(inout) :: self
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Elements along each dimension, in Fortran order
      integer, intent(in) :: extent(max_rank)
      !> The new tensor; without memory after an error
      type(tensor_type), intent(out) :: tensor
      type(error_type), allocatable, intent(out) :: error
      tensor%dtype = dtype
      tensor%extent = extent
      call self%device%enter(error)
      if (.not. allocated(error)) call allocate_tensor(self%device, tensor, error)
      if (tensor%is_allocated()) self%live_tensors = self%live_tensors + 1
      call self%device%leave_idle(error)
      ! A caller that is told of an error keeps nothing
      if (allocated(error)) call self%release(tensor)
   end subroutine cuda_allocate

   !> There is nobody to tell of a failure here; one that matters comes back from the next call
   subroutine cuda_release(self, tensor)
      class(cuda_type), intent(inout) :: self
      !> Tensor whose memory is given back; empty afterwards
      type(tensor_type), intent(inout) :: tensor
      type(error_type), allocatable :: error
      if (.not. tensor%is_allocated()) return
      call self%device%enter(error)
      call free_tensor(self%device, tensor, error)
      self%live_tensors = self%live_tensors - 1
      call self%device%leave_idle(error)
   end subroutine cuda_release

   subroutine cuda_clear(self, tensor, error)
      class(cuda_type), intent(in) :: self
      !> Tensor that becomes zero
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%begin(tensor, error)
      if (.not. allocated(error)) call clear_tensor(self%device, tensor, error)
      call self%device%leave(error)
   end subroutine cuda_clear

   subroutine cuda_copy_in(self, host, tensor, error)
      class(cuda_type), intent(in) :: self
      !> Host memory of `tensor%bytes()` bytes
      type(c_ptr), intent(in) :: host
      !> Tensor that is overwritten
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%begin(tensor, error)
      if (.not. allocated(error)) call copy_from_host(self%device, host, tensor, error)
      call self%device%leave(error)
   end subroutine cuda_copy_in

   subroutine cuda_copy_out(self, tensor, host, error)
      class(cuda_type), intent(in) :: self
      !> Tensor that is copied
      type(tensor_type), intent(in) :: tensor
      !> Host memory of `tensor%bytes()` bytes, is overwritten
      type(c_ptr), intent(in) :: host
      type(error_type), allocatable, intent(out) :: error
      call self%begin(tensor, error)
      if (.not. allocated(error)) call copy_to_host(self%device, tensor, host, error)
      call self%device%leave(error)
   end subroutine cuda_copy_out

   subroutine cuda_conv_forward(self, step, error)
      class(cuda_type), intent(in) :: self
      !> Convolution with bias, where that is not empty, and ReLU; its `y` is overwritten
      type(conv_step_type), intent(in) :: step
      type(error_type), allocatable, intent(out) :: error
      call self%begin(step%x, error)
      if (.not. allocated(error)) call forward(self%device, self%options, step%conv, step%x, step%w, step%bias, &
         & step%relu, step%y, error)
      call self%device%leave(error)
   end subroutine cuda_conv_forward

   subroutine cuda_conv_backward_data(self, conv, w, dy, dx, error)
      class(cuda_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (w, h, c, n), is overwritten
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      call self%begin(dy, error)
      if (.not. allocated(error)) call backward_data(self%device, self%options, conv, w, dy, dx, error)
      call self%device%leave(error)
   end subroutine cuda_conv_backward_data

   subroutine cuda_conv_backward_filter(self, conv, x, dy, dw, error)
      class(cuda_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
      type(tensor_type), intent(in) :: dw
      type(error_type), allocatable, intent(out) :: error
      call self%begin(x, error)
      if (.not. allocated(error)) call backward_filter(self%device, self%options, conv, x, dy, dw, error)
      call self%device%leave(error)
   end subroutine cuda_conv_backward_filter

   subroutine cuda_conv_backward_bias(self, dy, db, error)
      class(cuda_type), intent(in) :: self
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the bias (k, 1, 1, 1), is overwritten
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      call self%begin(dy, error)
      if (.not. allocated(error)) call bias_gradient(self%device, dy, db, error)
      call self%device%leave(error)
   end subroutine cuda_conv_backward_bias

   !> The gradient with respect to `a` needs a place before the mask is applied: a is the mask. The kernel may put the
   !> result there
   subroutine cuda_conv_backward_relu(self, conv, w, dy, a, db, error)
      class(cuda_type), intent(inout) :: self
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
      call self%begin(dy, error)
      if (.not. allocated(error)) call compute(error)
      call self%device%leave(error)

   contains

      subroutine compute(error)
         !> Why the device could not do it
         type(error_type), allocatable, intent(out) :: error
         type(tensor_type) :: da
         if (is_direct(self%options, conv_data, conv, dy%dtype, a%extent, w%extent, dy%extent)) then
            call direct_masked(self%device, conv, w, dy, a, db, error)
            return
         end if
         da = a
         call self%device%reserve_scratch(int(a%bytes(), c_size_t), da%address, error)
         if (allocated(error)) return
         call backward_data(self%device, self%options, conv, w, dy, da, error)
         if (allocated(error)) return
         call relu_backward(self%device, a, da, a, db, error)
      end subroutine compute

   end subroutine cuda_conv_backward_relu

   subroutine cuda_find_storage_format(self, steps, dtype, opaque, error)
      class(cuda_type), intent(inout) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      !> Element type of what is kept, of cnn_core_kinds
      integer, intent(out) :: dtype
      !> Whether only the device can read it
      logical, intent(out) :: opaque
      type(error_type), allocatable, intent(out) :: error
      opaque = .false.
      dtype = steps(1)%x%dtype
      call self%device%enter(error)
      if (.not. allocated(error)) call find_form(self%device, self%options, steps, opaque, dtype, error)
      call self%device%leave(error)
   end subroutine cuda_find_storage_format

   !> With channels last if what lies between the steps is kept so, which `find_storage_format` has said
   subroutine cuda_forward_sequence(self, steps, error)
      class(cuda_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      type(error_type), allocatable, intent(out) :: error
      if (.not. steps(1)%opaque) then
         call forward_step_by_step(self, steps, error)
         return
      end if
      call self%begin(steps(1)%x, error)
      if (.not. allocated(error)) call forward_nhwc(self%device, self%options, steps, steps(1)%y%dtype, error)
      call self%device%leave(error)
   end subroutine cuda_forward_sequence

   subroutine cuda_backward_sequence(self, steps, dy, error)
      class(cuda_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> Gradient with respect to the last output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      if (.not. steps(1)%opaque) then
         call backward_step_by_step(self, steps, dy, error)
         return
      end if
      call self%begin(dy, error)
      if (.not. allocated(error)) call backward_nhwc(self%device, self%options, steps, steps(1)%y%dtype, dy, error)
      call self%device%leave(error)
   end subroutine cuda_backward_sequence

   function cuda_sequence_algorithm(self, steps) result(text)
      class(cuda_type), intent(in) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      character(len=:), allocatable :: text
      text = one_after_the_other(self, steps)
      if (steps(1)%opaque) text = text//", channels last in "//dtype_name(steps(1)%y%dtype)
   end function cuda_sequence_algorithm

   subroutine cuda_relu_forward(self, z, a, error)
      class(cuda_type), intent(in) :: self
      !> Input of the ReLU
      type(tensor_type), intent(in) :: z
      !> Output of the ReLU, is overwritten; may be z
      type(tensor_type), intent(in) :: a
      type(error_type), allocatable, intent(out) :: error
      call self%begin(z, error)
      if (.not. allocated(error)) call relu_forward(self%device, z, a, error)
      call self%device%leave(error)
   end subroutine cuda_relu_forward

   subroutine cuda_relu_backward(self, z, da, dz, db, error)
      class(cuda_type), intent(in) :: self
      !> Input of the ReLU, or its output: both are positive at the same places
      type(tensor_type), intent(in) :: z
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: da
      !> Gradient with respect to the input, is overwritten; may be da
      type(tensor_type), intent(in) :: dz
      !> Sums of dz over n, h and w (c, 1, 1, 1), is overwritten; empty when not wanted
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      call self%begin(z, error)
      if (.not. allocated(error)) call relu_backward(self%device, z, da, dz, db, error)
      call self%device%leave(error)
   end subroutine cuda_relu_backward

   subroutine cuda_compute(self, primitive, error)
      class(cuda_type), intent(in) :: self
      !> Its tensors are in the device's memory; the last one has some
      class(primitive_type), intent(in) :: primitive
      type(error_type), allocatable, intent(out) :: error
      call self%device%enter(error)
      if (.not. allocated(error)) call compute(self%device, primitive, error)
      call self%device%leave(error)
   end subroutine cuda_compute

   subroutine cuda_mse(self, y, target, scale, dy, error)
      class(cuda_type), intent(inout) :: self
      !> Output of the network
      type(tensor_type), intent(in) :: y
      !> Wanted output, of the same shape
      type(tensor_type), intent(in) :: target
      !> Factor of the sum of squares: 1, or 1/N for the mean
      real(dp), intent(in) :: scale
      !> Gradient of the loss with respect to y, is overwritten
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      call self%begin_loss(y, scale, error)
      if (.not. allocated(error)) call mse(self%device, y, target, scale, dy, self%total, error)
      call self%device%leave(error)
   end subroutine cuda_mse

   subroutine cuda_other_loss(self, primitive, error)
      class(cuda_type), intent(inout) :: self
      !> Its tensors are in the device's memory
      class(primitive_type), intent(in) :: primitive
      type(error_type), allocatable, intent(out) :: error
      select type (p => primitive)
       type is (pair_loss_call)
         call self%begin_loss(p%dy, p%scale, error)
         if (.not. allocated(error)) call loss_of_graph(self%device, "pair_loss", [p%y, p%t], 0, [p%f], &
            & [p%scale, p%setting], p%dy, self%total, error)
       type is (cross_entropy_call)
         call self%begin_loss(p%dy, p%scale, error)
         if (.not. allocated(error)) call loss_of_graph(self%device, "cross_entropy", [p%y, p%t], p%axis, &
            & [integer ::], [p%scale], p%dy, self%total, error)
       type is (class_entropy_call)
         call self%begin_loss(p%dy, p%scale, error)
         if (.not. allocated(error)) call loss_of_graph(self%device, "class_entropy", [p%y, p%t, p%weights], p%axis, &
            & [merge(1, 0, p%classes), p%ignored], [p%scale, p%smoothing], p%dy, self%total, error)
       class default
         call no_primitive(self, primitive, error)
         return
      end select
      call self%device%leave(error)
   end subroutine cuda_other_loss

   !> `begin`, with a place for the loss
   subroutine begin_loss(self, y, scale, error)
      class(cuda_type), intent(inout) :: self
      !> Output of the network
      type(tensor_type), intent(in) :: y
      !> Factor that makes the sum the loss
      real(dp), intent(in) :: scale
      type(error_type), allocatable, intent(out) :: error
      call self%begin(y, error)
      if (.not. (allocated(error) .or. self%total%is_allocated())) then
         self%total = tensor_type(dtype=dtype_float64, extent=extent_of([1]))
         call allocate_tensor(self%device, self%total, error)
      end if
      self%scale = scale
   end subroutine begin_loss

   subroutine cuda_read_loss(self, loss, error)
      class(cuda_type), intent(in) :: self
      !> Loss of the last `mse`
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      loss = 0.0_dp
      call self%device%enter(error)
      if (.not. allocated(error)) call read_loss(self%device, self%total, loss, error)
      loss = self%scale*loss
      call self%device%leave(error)
   end subroutine cuda_read_loss

   subroutine cuda_update(self, sgd, first, w, g, v, error)
      class(cuda_type), intent(in) :: self
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
      call self%begin(w, error)
      if (.not. allocated(error)) call update(self%device, sgd, first, w, g, v, error)
      call self%device%leave(error)
   end subroutine cuda_update

   subroutine cuda_convert(self, from, to, error)
      class(cuda_type), intent(in) :: self
      !> Tensor that is read
      type(tensor_type), intent(in) :: from
      !> Tensor of the same shape that is overwritten
      type(tensor_type), intent(in) :: to
      type(error_type), allocatable, intent(out) :: error
      call self%begin(from, error)
      if (.not. allocated(error)) call convert(self%device, from, to, error)
      call self%device%leave(error)
   end subroutine cuda_convert

   subroutine cuda_start_capture(self, error)
      class(cuda_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: ignored
      logical :: has_started
      call self%device%enter(error)
      if (.not. allocated(error)) call self%captured%start(self%device, error)
      has_started = .not. allocated(error)
      call self%device%leave_idle(error)
      ! A caller that is told of an error does not stop it
      if (has_started .and. allocated(error)) call self%end_capture(ignored)
   end subroutine cuda_start_capture

   subroutine cuda_end_capture(self, error)
      class(cuda_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: failure, ignored
      call self%device%enter(error)
      ! It has to be stopped
      if (allocated(error)) call self%device%enter(ignored)
      call self%captured%stop(self%device, failure)
      if (.not. allocated(error)) call move_alloc(failure, error)
      call self%device%leave_idle(error)
   end subroutine cuda_end_capture

   subroutine cuda_replay(self, done, error)
      class(cuda_type), intent(inout) :: self
      !> Whether there was a captured graph that still holds
      logical, intent(out) :: done
      type(error_type), allocatable, intent(out) :: error
      done = self%captured%is_current(self%device)
      if (.not. done) return
      call self%device%enter(error)
      if (.not. allocated(error)) call self%captured%replay(self%device, error)
      call self%device%leave(error)
   end subroutine cuda_replay

   subroutine cuda_feed(self, hosts, tensors, error)
      class(cuda_type), intent(inout) :: self
      !> Host memory for each tensor, free to change on return
      type(c_ptr), intent(in) :: hosts(:)
      !> Tensors that are filled
      type(tensor_type), intent(in) :: tensors(:)
      type(error_type), allocatable, intent(out) :: error
      call self%device%enter(error)
      if (.not. allocated(error)) call self%feeder%copy(self%device, hosts, tensors, error)
      call self%device%leave_idle(error)
   end subroutine cuda_feed

   subroutine cuda_await_feed(self, error)
      class(cuda_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%device%enter(error)
      if (.not. allocated(error)) call self%feeder%await(self%device, error)
      call self%device%leave(error)
   end subroutine cuda_await_feed

   subroutine cuda_release_feed(self, error)
      class(cuda_type), intent(inout) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%device%enter(error)
      if (.not. allocated(error)) call self%feeder%release(self%device, error)
      call self%device%leave_idle(error)
   end subroutine cuda_release_feed

   !> There is nobody to tell of a failure here
   subroutine cuda_close(self)
      class(cuda_type), intent(inout) :: self
      type(error_type), allocatable :: error
      if (.not. associated(self%device)) return
      call self%device%enter(error)
      call self%captured%drop(self%device)
      call self%feeder%close(self%device)
      call free_tensor(self%device, self%total, error)
      call self%device%leave_idle(error)
   end subroutine cuda_close

   subroutine cuda_use_stream(self, stream, own, error)
      class(cuda_type), intent(in) :: self
      !> A `cudaStream_t`; null for the default stream
      type(c_ptr), intent(in) :: stream
      !> Whether the device's own stream is meant, whatever `stream` is
      logical, intent(in) :: own
      type(error_type), allocatable, intent(out) :: error
      call self%device%use_stream(stream, own, error)
   end subroutine cuda_use_stream

   subroutine cuda_wait(self, error)
      class(cuda_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      call self%device%enter(error)
      if (.not. allocated(error)) call self%device%synchronize(error)
      call self%device%leave_idle(error)
   end subroutine cuda_wait

end module cnn_cuda_backend
