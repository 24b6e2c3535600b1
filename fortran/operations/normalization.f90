! SPDX-License-Identifier: MIT
!> Operations that normalise by a mean and a variance.
module cnn_operations_normalization
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32, sp
   use cnn_core_tensor, only : as_vector, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_loops, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   use cnn_operations_operation, only : operands_type, operation_type, parameter_shape_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Each channel by a mean and a variance: in training by those of the batch (the variance divided by n), else by the
   !> running ones, the state. Training changes them to (1 - momentum)*old + momentum*batch's, of the variance divided
   !> by n - 1, as torch does.
   !> Source: S. Ioffe and C. Szegedy, Batch Normalization, ICML 2015, algorithm 1 and section 3
   type, extends(operation_type), public :: batch_norm2d_type
      integer :: num_features = 1
      real(dp) :: eps = 1.0e-5_dp
      real(dp) :: momentum = 0.1_dp
      logical :: training = .true.
   contains
      procedure :: read => norm_read
      procedure :: find_shape => norm_shape
      procedure :: forward => norm_forward
      procedure :: backward => norm_backward
   end type batch_norm2d_type

contains

   subroutine norm_read(self, given, error)
      !> With its name
      class(batch_norm2d_type), intent(inout) :: self
      !> num_features, eps, momentum, track_running_stats, training
      type(attributes_type), intent(inout) :: given
      !> What is missing, or out of its range
      type(error_type), allocatable, intent(out) :: error
      type(shape_type) :: shape
      logical :: track
      call given%get_integer("num_features", self%num_features, error)
      if (.not. allocated(error)) call given%get_real("eps", self%eps, error, 1.0e-5_dp)
      if (.not. allocated(error)) call given%get_real("momentum", self%momentum, error, 0.1_dp)
      if (.not. allocated(error)) call given%get_flag("track_running_stats", track, error, .false.)
      if (.not. allocated(error)) call given%get_flag("training", self%training, error, .true.)
      if (allocated(error)) return
      if (.not. (self%training .or. track)) then
         call self%refuse("training 0 without running statistics", "track_running_stats 1", error)
         return
      end if
      shape = shape_of([self%num_features])
      self%parameters = [parameter_shape_type("weight", shape), parameter_shape_type("bias", shape)]
      if (track) self%state = [parameter_shape_type("running_mean", shape), parameter_shape_type("running_var", shape)]
      self%changes_state = track .and. self%training
   end subroutine norm_read

   subroutine norm_shape(self, shapes, y, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> Another number of channels, or channels of one number
      type(error_type), allocatable, intent(out) :: error
      associate (x => shapes(1))
         if (x%rank /= 4 .or. x%extent(3) /= self%num_features) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%num_features)//", h, w)", error)
         else if (self%training .and. all(x%extent([1, 2, 4]) == 1)) then
            call self%refuse("input "//x%text(), "more than one number in each channel", error)
         else
            y = x
         end if
      end associate
   end subroutine norm_shape

   subroutine norm_forward(self, backend, operands, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> y from x, weight and bias, and from the state or the state from x
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      real(dp) :: mean(self%num_features), variance(self%num_features), count
      call self%require(backend, operands%y, error)
      if (allocated(error)) return
      call find_statistics(self, operands, mean, variance)
      associate (to => operands)
         loops = loops_of(to%y%dtype)
         call loops%normalize(to%x(1), to%w(1), to%w(2), mean, 1.0_dp/sqrt(variance + self%eps), to%y)
         if (.not. self%changes_state) return
         count = real(to%x(1)%count()/self%num_features, dp)
         call average(to%state(1), self%momentum, mean)
         call average(to%state(2), self%momentum, variance*(count/(count - 1.0_dp)))
      end associate
   end subroutine norm_forward

   subroutine norm_backward(self, backend, operands, error)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> The device
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x, w and, where they are not the batch's, the state
      type(operands_type), intent(in) :: operands
      !> Tensors without memory
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      real(dp) :: mean(self%num_features), variance(self%num_features)
      call self%require(backend, operands%dy, error)
      if (allocated(error)) return
      call find_statistics(self, operands, mean, variance)
      associate (to => operands, scale => 1.0_dp/sqrt(variance + self%eps))
         loops = loops_of(to%dy%dtype)
         call loops%normalize_backward(to%x(1), to%w(1), to%dy, mean, scale, self%training, to%dx(1), to%dw(1), &
            & to%dw(2))
      end associate
   end subroutine norm_backward

   !> Mean and variance of each channel: of the batch, or the running ones
   subroutine find_statistics(self, operands, mean, variance)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      !> With x and the state
      type(operands_type), intent(in) :: operands
      !> Of each channel
      real(dp), intent(out) :: mean(:)
      !> Of each channel
      real(dp), intent(out) :: variance(:)
      type(loops_type) :: loops
      if (.not. self%training) then
         call read_vector(operands%state(1), mean)
         call read_vector(operands%state(2), variance)
      else
         loops = loops_of(operands%y%dtype)
         call loops%statistics(operands%x(1), mean, variance)
      end if
   end subroutine find_statistics

   !> (1 - momentum)*old + momentum*new, in place of old
   subroutine average(state, momentum, new)
      !> Old values, are overwritten
      type(tensor_type), intent(in) :: state
      !> Part of the new ones
      real(dp), intent(in) :: momentum
      !> As many
      real(dp), intent(in) :: new(:)
      real(sp), pointer, contiguous :: single(:)
      real(dp), pointer, contiguous :: double(:)
      if (state%dtype == dtype_float32) then
         call as_vector(state, single)
         single = real((1.0_dp - momentum)*single + momentum*new, sp)
      else
         call as_vector(state, double)
         double = (1.0_dp - momentum)*double + momentum*new
      end if
   end subroutine average

   !> The numbers of a tensor in host memory
   subroutine read_vector(tensor, values)
      !> Of either precision
      type(tensor_type), intent(in) :: tensor
      !> As many
      real(dp), intent(out) :: values(:)
      real(sp), pointer, contiguous :: single(:)
      real(dp), pointer, contiguous :: double(:)
      if (tensor%dtype == dtype_float32) then
         call as_vector(tensor, single)
         values = real(single, dp)
      else
         call as_vector(tensor, double)
         values = double
      end if
   end subroutine read_vector

end module cnn_operations_normalization
