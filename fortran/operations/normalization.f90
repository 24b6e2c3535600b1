! SPDX-License-Identifier: MIT
!> Operations that normalise by a mean and a variance.
module cnn_operations_normalization
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type
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
      procedure, nopass :: reads_y => no
      procedure :: read => norm_read
      procedure :: find_shape => norm_shape
      procedure :: forward => norm_forward
      procedure :: backward => norm_backward
      procedure, private :: by_batch
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
         else if (self%by_batch() .and. all(x%extent([1, 2, 4]) == 1)) then
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
      type(tensor_type) :: state(2)
      call find_state(operands, state)
      call self%run(backend, "batch_norm", [operands%x(1), operands%w, state, operands%y], error, &
         & [merge(1, 0, self%by_batch())], [self%eps, self%momentum])
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
      type(tensor_type) :: state(2)
      call find_state(operands, state)
      call self%run(backend, "batch_norm_backward", [operands%x(1), operands%w(1), state, operands%dy, operands%dw, &
         & operands%dx(1)], error, [merge(1, 0, self%by_batch())], [self%eps])
   end subroutine norm_backward

   !> Whether mean and variance are the batch's, which they always are where there are no running ones
   pure logical function by_batch(self)
      !> The node
      class(batch_norm2d_type), intent(in) :: self
      by_batch = self%training .and. .not. (self%evaluates .and. self%changes_state)
   end function by_batch

   !> Running mean and variance; empty where there are none
   subroutine find_state(operands, state)
      !> Of the node
      type(operands_type), intent(in) :: operands
      !> Both
      type(tensor_type), intent(out) :: state(2)
      if (size(operands%state) == 2) state = operands%state
   end subroutine find_state

end module cnn_operations_normalization
