! SPDX-License-Identifier: MIT
!> The CPU: host memory, OpenMP, and the kernels of the best instruction set that the processor has.
!>
!> Convolution.  Directly, on packed rows (cpu/kernels/direct); of images of one pixel as the matrix product that it
!>               is; as im2col where cnn_cpu_plan_choice finds that packed rows would not fit.
!> Precision.    Products of one output pixel are summed in the tensor's own precision; sums over pixels (filter
!>               gradient, bias gradient, loss) are blocked, with float64 totals.
!> Determinism.  Results do not depend on the number of threads.
module cnn_cpu_backend
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_backend, only : backend_type, backward_step_by_step, forward_step_by_step, &
      & one_after_the_other
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, dtype_float64, dtype_name, i8
   use cnn_core_sgd, only : sgd_type
   use cnn_core_tensor, only : max_rank, shape_text, tensor_type
   use cnn_cpu_fused, only : backward_passes, depth_first_text, forward_passes
   use cnn_cpu_instruction_sets, only : avx2, choose_level
   use cnn_cpu_kernels_levels, only : is_compiled, kernels_of
   use cnn_cpu_kernels_memory, only : allocate_aligned, c_free, c_memmove, c_memset
   use cnn_cpu_kernels_table, only : kernels_type
   use cnn_cpu_plan_channel_lanes, only : outer_type
   use cnn_cpu_plan_channels_last, only : join_pixels, short_are_as_few
   use cnn_cpu_plan_choice, only : choose_backward, choose_filter, choose_forward, filter_channel_lanes, &
      & filter_channels_last, filter_im2col, filter_shifts_dy, read_lanes
   use cnn_cpu_plan_fused, only : sequence_type
   use cnn_cpu_plan_grid, only : backward_grid, forward_grid, grid_type
   use cnn_cpu_plan_product, only : data_gradient_product, filter_gradient_product, forward_product, &
      & is_filter_product, is_product
   use cnn_cpu_plan_task, only : conv_task_type, data_gradient_task, epilogue_type, filter_gradient_task, forward_task
   implicit none
   private

   public :: backward_relu_apart

   type, extends(backend_type), public :: cpu_type
      !> For float32 and float64; the same of an instruction set with half as long vectors, where they work as fast
      type(kernels_type), private :: kernels(2), short(2)
      !> What is in the vector lanes: see `read_lanes`
      integer, private :: lanes_wanted = 0
      real(dp), private :: loss = 0.0_dp
   contains
      procedure :: open => cpu_open
      procedure :: allocate => cpu_allocate
      procedure :: release => cpu_release
      procedure :: clear => cpu_clear
      procedure :: copy_in => cpu_copy_in
      procedure :: copy_out => cpu_copy_out
      procedure :: conv_forward => cpu_conv_forward
      procedure :: conv_backward_data => cpu_conv_backward_data
      procedure :: conv_backward_filter => cpu_conv_backward_filter
      procedure :: conv_backward_bias => cpu_conv_backward_bias
      procedure :: conv_backward_relu => cpu_conv_backward_relu
      procedure :: conv_backward_leaky => cpu_conv_backward_leaky
      procedure :: forward_sequence => cpu_forward_sequence
      procedure :: backward_sequence => cpu_backward_sequence
      procedure :: sequence_algorithm => cpu_sequence_algorithm
      procedure :: relu_forward => cpu_relu_forward
      procedure :: relu_backward => cpu_relu_backward
      procedure :: mse => cpu_mse
      procedure :: read_loss => cpu_read_loss
      procedure :: update => cpu_update
      procedure :: convert => cpu_convert
      procedure :: use_stream => cpu_use_stream
      procedure :: wait => cpu_wait
      procedure, private :: choose
      procedure, private :: choose_channels_last
   end type cpu_type

contains

   !> Choose the kernels for this processor
   subroutine cpu_open(self, error)
      class(cpu_type), intent(inout) :: self
      !> Says that the environment asks for kernels, or lanes, that do not exist
      type(error_type), allocatable, intent(out) :: error
      integer :: level
      self%works_in_place = .true.
      self%has_slopes = .true.
      self%takes_channels_last = .true.
      self%in_host_memory = .true.
      call choose_level(level, error)
      if (allocated(error)) return
      call read_lanes(self%lanes_wanted, error)
      if (allocated(error)) return
      call kernels_of(level, self%kernels(1), self%kernels(2))
      ! AVX-512 has vectors twice as long as AVX2, which has fused multiply-adds, too; below it there is none
      if (level > avx2 .and. is_compiled(avx2)) level = avx2
      call kernels_of(level, self%short(1), self%short(2))
   end subroutine cpu_open

   !> The kernels for a tensor that is what they need
   subroutine choose(self, tensor, kernels, error)
      class(cpu_type), intent(in) :: self
      !> Tensor that is worked on
      type(tensor_type), intent(in) :: tensor
      !> Kernels for its element type
      type(kernels_type), intent(out) :: kernels
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      kernels = self%kernels(merge(2, 1, tensor%dtype == dtype_float64))
   end subroutine choose

   !> The kernels for channels_last tensors: with short vectors, where long ones would leave many lanes empty
   subroutine choose_channels_last(self, groups, source, results, taps, tensor, kernels)
      class(cpu_type), intent(in) :: self
      !> Groups of channels
      integer, intent(in) :: groups
      !> Channels of the source in a group
      integer, intent(in) :: source
      !> Results in a group
      integer, intent(in) :: results
      !> Taps of a filter; 0 for a filter gradient
      integer, intent(in) :: taps
      !> Tensor that is worked on
      type(tensor_type), intent(in) :: tensor
      !> Kernels for its element type, which may change
      type(kernels_type), intent(inout) :: kernels
      integer :: kind
      kind = merge(2, 1, tensor%dtype == dtype_float64)
      if (short_are_as_few(groups, source, results, taps, kernels%lanes)) kernels = self%short(kind)
   end subroutine choose_channels_last

   subroutine cpu_allocate(self, dtype, extent, tensor, error)
      class(cpu_type), intent(inout) :: self
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Elements along each dimension, in Fortran order
      integer, intent(in) :: extent(max_rank)
      !> The new tensor; without memory after an error
      type(tensor_type), intent(out) :: tensor
      type(error_type), allocatable, intent(out) :: error
      tensor%dtype = dtype
      tensor%extent = extent
      tensor%address = allocate_aligned(tensor%bytes())
      if (tensor%is_allocated()) then
         self%live_tensors = self%live_tensors + 1
      else
         call fail(error, "no host memory for a "//dtype_name(dtype)//" tensor "//shape_text(extent))
      end if
   end subroutine cpu_allocate

   subroutine cpu_release(self, tensor)
      class(cpu_type), intent(inout) :: self
      !> Tensor whose memory is given back; empty afterwards
      type(tensor_type), intent(inout) :: tensor
      if (.not. tensor%is_allocated()) return
      call c_free(tensor%address)
      tensor%address = c_null_ptr
      self%live_tensors = self%live_tensors - 1
   end subroutine cpu_release

   subroutine cpu_clear(self, tensor, error)
      class(cpu_type), intent(in) :: self
      !> Tensor that becomes zero
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memset(tensor%address, 0_c_int, int(tensor%bytes(), c_size_t))
   end subroutine cpu_clear

   subroutine cpu_copy_in(self, host, tensor, error)
      class(cpu_type), intent(in) :: self
      !> Host memory of `tensor%bytes()` bytes
      type(c_ptr), intent(in) :: host
      !> Tensor that is overwritten
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memmove(tensor%address, host, int(tensor%bytes(), c_size_t))
   end subroutine cpu_copy_in

   subroutine cpu_copy_out(self, tensor, host, error)
      class(cpu_type), intent(in) :: self
      !> Tensor that is copied
      type(tensor_type), intent(in) :: tensor
      !> Host memory of `tensor%bytes()` bytes, is overwritten
      type(c_ptr), intent(in) :: host
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memmove(host, tensor%address, int(tensor%bytes(), c_size_t))
   end subroutine cpu_copy_out

   subroutine cpu_conv_forward(self, step, error)
      class(cpu_type), intent(in) :: self
      !> Convolution with bias, where that is not empty, and ReLU; its `y` is overwritten
      type(conv_step_type), intent(in) :: step
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      type(tensor_type) :: x, y
      type(grid_type) :: grid
      logical :: direct
      call self%choose(step%x, kernels, error)
      if (allocated(error)) return
      if (step%x%channels_last) then
         call self%choose_channels_last(step%conv%groups, step%w%extent(3), step%w%extent(4)/step%conv%groups, &
            & product(step%w%extent(1:2)), step%x, kernels)
         x = step%x
         y = step%y
         call join_pixels(step%conv, step%w, x, y)
         call forward_grid(step%conv, step%w%extent, y%extent, grid)
         call kernels%convolve_channels_last(grid, forward_task(step%conv%groups, x, step%w, y, &
            & epilogue_type(bias=step%bias, relu=step%relu)), error)
         return
      end if
      if (is_product(step%conv, step%x, step%w, self%lanes_wanted)) then
         call kernels%multiply_matrices(forward_product(step%x, step%w, step%bias, step%y), error)
         if (allocated(error)) return
         if (step%relu) call kernels%relu_forward(step%y, step%slope, step%y)
         return
      end if
      call choose_forward(step%conv, step%x, step%w, step%y, self%lanes_wanted, grid, direct)
      if (direct) then
         call convolve_directly(kernels, grid, forward_task(step%conv%groups, step%x, step%w, step%y, &
            & epilogue_type(bias=step%bias, relu=step%relu, slope=step%slope)), error)
      else
         call kernels%im2col_forward(step%conv, step%x, step%w, step%bias, step%y, error)
         if (allocated(error)) return
         if (step%relu) call kernels%relu_forward(step%y, step%slope, step%y)
      end if
   end subroutine cpu_conv_forward

   !> By the kernels that the grid was made for
   subroutine convolve_directly(kernels, grid, task, error)
      !> Kernels for the element type
      type(kernels_type), intent(in) :: kernels
      !> Bands, planes and taps, and what is in the vector lanes
      type(grid_type), intent(in) :: grid
      !> Tensors and epilogue of the convolution
      type(conv_task_type), intent(in) :: task
      type(error_type), allocatable, intent(out) :: error
      if (grid%channels_in_lanes) then
         call kernels%convolve_channels_last(grid, task, error)
      else
         call kernels%convolve(grid, task, error)
      end if
   end subroutine convolve_directly

   subroutine cpu_conv_backward_data(self, conv, w, dy, dx, error)
      class(cpu_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters (s, r, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input (w, h, c, n), is overwritten
      type(tensor_type), intent(in) :: dx
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      type(tensor_type) :: x, y
      type(grid_type) :: grid
      logical :: direct
      call self%choose(dy, kernels, error)
      if (allocated(error)) return
      if (dy%channels_last) then
         call self%choose_channels_last(conv%groups, w%extent(4)/conv%groups, w%extent(3), &
            & product(w%extent(1:2)), dy, kernels)
         x = dx
         y = dy
         call join_pixels(conv, w, x, y)
         call backward_grid(conv, w%extent, x%extent, grid)
         call kernels%convolve_channels_last(grid, data_gradient_task(conv%groups, w, y, x, epilogue_type()), error)
         return
      end if
      if (is_product(conv, dx, w, self%lanes_wanted)) then
         call kernels%multiply_matrices(data_gradient_product(w, dy, dx), error)
         return
      end if
      call choose_backward(conv, w, dy, dx, self%lanes_wanted, grid, direct)
      if (direct) then
         call convolve_directly(kernels, grid, data_gradient_task(conv%groups, w, dy, dx, epilogue_type()), error)
      else
         call kernels%im2col_backward_data(conv, w, dy, dx, error)
      end if
   end subroutine cpu_conv_backward_data

   subroutine cpu_conv_backward_relu(self, conv, w, dy, a, db, error)
      class(cpu_type), intent(inout) :: self
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
      type(kernels_type) :: kernels
      type(grid_type) :: grid
      logical :: direct
      call self%choose(dy, kernels, error)
      if (allocated(error)) return
      call choose_backward(conv, w, dy, a, self%lanes_wanted, grid, direct)
      if (direct) then
         call convolve_directly(kernels, grid, data_gradient_task(conv%groups, w, dy, a, &
            & epilogue_type(relu_mask=.true., bias_gradient=db)), error)
      else
         call backward_relu_apart(self, conv, w, dy, a, db, error)
      end if
   end subroutine cpu_conv_backward_relu

   !> The same in two steps, through a tensor of its own
   subroutine backward_relu_apart(self, conv, w, dy, a, db, error)
      class(cpu_type), intent(inout) :: self
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
      type(tensor_type) :: da
      call self%allocate(a%dtype, a%extent, da, error)
      if (.not. allocated(error)) call self%conv_backward_data(conv, w, dy, da, error)
      if (.not. allocated(error)) call self%relu_backward(a, da, a, db, error)
      call self%release(da)
   end subroutine backward_relu_apart

   subroutine cpu_conv_backward_leaky(self, conv, w, dy, a, slope, error)
      class(cpu_type), intent(in) :: self
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
      type(kernels_type) :: kernels
      type(grid_type) :: grid
      type(tensor_type) :: da
      logical :: direct
      call self%choose(dy, kernels, error)
      if (allocated(error)) return
      call choose_backward(conv, w, dy, a, self%lanes_wanted, grid, direct)
      if (direct) then
         call convolve_directly(kernels, grid, data_gradient_task(conv%groups, w, dy, a, &
            & epilogue_type(relu_mask=.true., slope=slope)), error)
         return
      end if
      da = a
      da%address = allocate_aligned(a%bytes())
      if (da%is_allocated()) then
         call kernels%im2col_backward_data(conv, w, dy, da, error)
         if (.not. allocated(error)) call kernels%relu_backward(a, da, slope, a)
         call c_free(da%address)
      else
         call fail(error, "no host memory for a gradient "//shape_text(a%extent))
      end if
   end subroutine cpu_conv_backward_leaky

   subroutine cpu_conv_backward_filter(self, conv, x, dy, dw, error)
      class(cpu_type), intent(in) :: self
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input (w, h, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters (s, r, c/groups, k), is overwritten
      type(tensor_type), intent(in) :: dw
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      type(tensor_type) :: joined_x, joined_dy
      type(grid_type) :: grid
      type(outer_type) :: plan
      integer :: algorithm
      call self%choose(x, kernels, error)
      if (allocated(error)) return
      if (x%channels_last) then
         call self%choose_channels_last(conv%groups, dw%extent(3), dw%extent(4)/conv%groups, 0, x, kernels)
         joined_x = x
         joined_dy = dy
         call join_pixels(conv, dw, joined_x, joined_dy)
         call forward_grid(conv, dw%extent, joined_dy%extent, grid)
         call kernels%correlate_channels_last(grid, conv, joined_x, joined_dy, dw, error)
         return
      end if
      if (is_filter_product(conv, x, dw, self%lanes_wanted)) then
         call kernels%multiply_matrices(filter_gradient_product(x, dy, dw), error)
         return
      end if
      call choose_filter(conv, x, dy, dw, self%lanes_wanted, algorithm, grid, plan)
      select case (algorithm)
       case (filter_channel_lanes)
         call kernels%correlate_outer(plan, x, dy, dw, error)
       case (filter_channels_last)
         call kernels%correlate_channels_last(grid, conv, x, dy, dw, error)
       case (filter_im2col)
         call kernels%im2col_backward_filter(conv, x, dy, dw, error)
       case default
         call kernels%correlate(grid, filter_gradient_task(conv%groups, x, dy, dw, algorithm == filter_shifts_dy), &
            & error)
      end select
   end subroutine cpu_conv_backward_filter

   subroutine cpu_forward_sequence(self, steps, error)
      class(cpu_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      type(sequence_type) :: sequence
      logical :: fits
      call forward_passes(steps, self%lanes_wanted, sequence, fits)
      if (fits) call self%choose(steps(1)%x, kernels, error)
      if (allocated(error)) return
      if (fits) then
         call kernels%run_sequence(sequence, error)
      else
         call forward_step_by_step(self, steps, error)
      end if
   end subroutine cpu_forward_sequence

   subroutine cpu_backward_sequence(self, steps, dy, error)
      class(cpu_type), intent(inout) :: self
      !> The convolutions, first to last; each takes the output of the one before
      type(conv_step_type), intent(in) :: steps(:)
      !> Gradient with respect to the last output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      type(sequence_type) :: sequence
      logical :: fits
      call backward_passes(steps, dy, self%lanes_wanted, sequence, fits)
      if (fits) call self%choose(dy, kernels, error)
      if (allocated(error)) return
      if (fits) then
         call kernels%run_sequence(sequence, error)
      else
         call backward_step_by_step(self, steps, dy, error)
      end if
   end subroutine cpu_backward_sequence

   function cpu_sequence_algorithm(self, steps) result(text)
      class(cpu_type), intent(in) :: self
      !> The convolutions, first to last; only the extents of their tensors matter, and the type of x
      type(conv_step_type), intent(in) :: steps(:)
      character(len=:), allocatable :: text
      text = depth_first_text(steps, self%lanes_wanted)
      if (len(text) == 0) text = one_after_the_other(self, steps)
   end function cpu_sequence_algorithm

   subroutine cpu_conv_backward_bias(self, dy, db, error)
      class(cpu_type), intent(in) :: self
      !> Gradient with respect to the output (q, p, k, n)
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the bias (k, 1, 1, 1), is overwritten
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      call self%choose(dy, kernels, error)
      if (allocated(error)) return
      if (dy%channels_last) then
         call kernels%bias_gradient_nhwc(dy, db, error)
      else
         call kernels%bias_gradient(dy, db)
      end if
   end subroutine cpu_conv_backward_bias

   subroutine cpu_relu_forward(self, z, a, error)
      class(cpu_type), intent(in) :: self
      !> Input of the ReLU
      type(tensor_type), intent(in) :: z
      !> Output of the ReLU, is overwritten; may be z
      type(tensor_type), intent(in) :: a
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      call self%choose(z, kernels, error)
      if (allocated(error)) return
      call kernels%relu_forward(z, 0.0_dp, a)
   end subroutine cpu_relu_forward

   subroutine cpu_relu_backward(self, z, da, dz, db, error)
      class(cpu_type), intent(in) :: self
      !> Input of the ReLU, or its output: both are positive at the same places
      type(tensor_type), intent(in) :: z
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: da
      !> Gradient with respect to the input, is overwritten; may be da
      type(tensor_type), intent(in) :: dz
      !> Sums of dz over n, h and w (c, 1, 1, 1), is overwritten; empty when not wanted
      type(tensor_type), intent(in) :: db
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      call self%choose(z, kernels, error)
      if (allocated(error)) return
      call kernels%relu_backward(z, da, 0.0_dp, dz)
      if (db%is_allocated()) call kernels%bias_gradient(dz, db)
   end subroutine cpu_relu_backward

   subroutine cpu_mse(self, y, target, scale, dy, error)
      class(cpu_type), intent(inout) :: self
      !> Output of the network
      type(tensor_type), intent(in) :: y
      !> Wanted output, of the same shape
      type(tensor_type), intent(in) :: target
      !> Factor of the sum of squares: 1, or 1/N for the mean
      real(dp), intent(in) :: scale
      !> Gradient of the loss with respect to y, is overwritten
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      type(kernels_type) :: kernels
      call self%choose(y, kernels, error)
      if (allocated(error)) return
      call kernels%mse(y, target, scale, self%loss, dy, error)
   end subroutine cpu_mse

   subroutine cpu_read_loss(self, loss, error)
      class(cpu_type), intent(in) :: self
      !> Loss of the last `mse`
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      loss = self%loss
      ! Nothing can go wrong here: an unallocated error is what the caller expects
      if (allocated(error)) deallocate (error)
   end subroutine cpu_read_loss

   subroutine cpu_update(self, sgd, first, w, g, v, error)
      class(cpu_type), intent(in) :: self
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
      type(kernels_type) :: kernels
      call self%choose(w, kernels, error)
      if (allocated(error)) return
      call kernels%sgd_update(sgd, first, w, g, v)
   end subroutine cpu_update

   subroutine cpu_convert(self, from, to, error)
      class(cpu_type), intent(in) :: self
      !> Tensor that is read
      type(tensor_type), intent(in) :: from
      !> Tensor of the same shape that is overwritten
      type(tensor_type), intent(in) :: to
      type(error_type), allocatable, intent(out) :: error
      if (from%dtype == to%dtype) then
         call self%copy_in(from%address, to, error)
      else
         call fail(error, "device "//self%name//": no conversion from "//dtype_name(from%dtype)//" to "// &
            & dtype_name(to%dtype))
      end if
   end subroutine cpu_convert

   !> There are none: all work is done when its call returns
   subroutine cpu_use_stream(self, stream, own, error)
      class(cpu_type), intent(in) :: self
      !> A `cudaStream_t`; null for the default stream
      type(c_ptr), intent(in) :: stream
      !> Whether the device's own stream is meant, whatever `stream` is
      logical, intent(in) :: own
      type(error_type), allocatable, intent(out) :: error
      if (.not. own .and. c_associated(stream)) call fail(error, "device "//self%name//": has no streams")
   end subroutine cpu_use_stream

   !> Nothing is ever queued
   subroutine cpu_wait(self, error)
      class(cpu_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      if (self%live_tensors < 0) call fail(error, "device "//self%name//": more tensors released than allocated")
   end subroutine cpu_wait

end module cnn_cpu_backend
