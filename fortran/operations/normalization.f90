! SPDX-License-Identifier: MIT
!> Operations that normalise by a mean and a variance.
module cnn_operations_normalization
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : batch_norm_backward_call, batch_norm_call, row_norm_backward_call, row_norm_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : extent_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Each channel by a mean and a variance: in training by those of the batch (the variance divided by n), else by the
   !> running ones, the state. Training changes them to (1 - momentum)*old + momentum*batch's, of the variance divided
   !> by n - 1, as torch does. What its forward pass normalised by is kept for the backward pass: of each channel the
   !> mean, and in the other half 1 / sqrt(variance + eps).
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
      procedure :: kept_numbers => norm_kept
      procedure :: forward => norm_forward
      procedure :: backward => norm_backward
      procedure, private :: by_batch
   end type batch_norm2d_type

   !> Rows of numbers that lie one behind the other, each by its own mean and variance (divided by n)
   type, abstract, extends(operation_type) :: row_norm_type
      real(dp) :: eps = 1.0e-5_dp
      !> Whether there are factors and shifts
      logical :: affine = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure(form_), deferred :: form
      procedure :: forward => row_forward
      procedure :: backward => row_backward
   end type row_norm_type

   !> The last of torch's axes together
   type, extends(row_norm_type), public :: layer_norm_type
      !> Their extents, in Fortran order
      integer, allocatable :: lengths(:)
   contains
      procedure :: read => layer_read
      procedure :: find_shape => layer_shape
      procedure :: form => layer_form
   end type layer_norm_type

   !> The channels of each group, of each image by itself
   type, extends(row_norm_type), public :: group_norm_type
      integer :: num_groups = 1
      integer :: num_channels = 1
   contains
      procedure :: read => group_read
      procedure :: find_shape => group_shape
      procedure :: form => group_form
   end type group_norm_type

   abstract interface
      !> How many numbers of a row have one factor, how many factors a row has, and after how many rows these come again
      pure function form_(self, x, rank) result(form)
         import :: row_norm_type, tensor_type
         implicit none
         class(row_norm_type), intent(in) :: self
         !> Its input
         type(tensor_type), intent(in) :: x
         !> Number of its dimensions
         integer, intent(in) :: rank
         integer :: form(3)
      end function form_
   end interface

contains

   subroutine norm_read(self, given, error)
      class(batch_norm2d_type), intent(inout) :: self
      !> num_features, eps, momentum, track_running_stats, training
      type(attributes_type), intent(inout) :: given
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
      class(batch_norm2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> Another number of channels, or channels of one number
      type(error_type), allocatable, intent(out) :: error
      associate (x => shapes(1))
         if (.not. any(x%rank == [4, 5]) .or. x%extent(max(x%rank, 2) - 1) /= self%num_features) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%num_features)//", h, w)", error)
         else if (self%by_batch() .and. product(real(x%extent, dp)) <= self%num_features) then
            call self%refuse("input "//x%text(), "more than one number in each channel", error)
         else
            y = x
         end if
      end associate
   end subroutine norm_shape

   subroutine norm_forward(self, backend, operands, error)
      class(batch_norm2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight and bias, and from the state or the state from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: state(2)
      if (size(operands%state) == 2) state = operands%state
      call self%run(backend, batch_norm_call(as_images(operands%x(1), operands%rank), operands%w(1), operands%w(2), &
         & state(1), state(2), self%by_batch(), self%eps, self%momentum, operands%kept, &
         & as_images(operands%y, operands%rank)), error)
   end subroutine norm_forward

   subroutine norm_backward(self, backend, operands, error)
      class(batch_norm2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x, w and what the forward pass has kept
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, batch_norm_backward_call(as_images(operands%x(1), operands%rank), operands%w(1), &
         & operands%kept, as_images(operands%dy, operands%rank), self%by_batch(), operands%dw(1), operands%dw(2), &
         & as_images(operands%dx(1), operands%rank)), error)
   end subroutine norm_backward

   !> Volumes as images of all rows of all planes; images as they are
   pure type(tensor_type) function as_images(x, rank)
      !> (w, h, c, n), or (w, h, d, c, n)
      type(tensor_type), intent(in) :: x
      !> Number of its dimensions
      integer, intent(in) :: rank
      as_images = x
      if (rank == 5) as_images%extent = extent_of([x%extent(1), x%extent(2)*x%extent(3), x%extent(4:5)])
   end function as_images

   !> Mean and scale of each channel; both begin where any array of a GPU may, at a multiple of 16 bytes
   pure integer function norm_kept(self)
      class(batch_norm2d_type), intent(in) :: self
      norm_kept = 2*(self%num_features + mod(self%num_features, 2))
   end function norm_kept

   !> Whether mean and variance are the batch's, which they always are where there are no running ones
   pure logical function by_batch(self)
      class(batch_norm2d_type), intent(in) :: self
      by_batch = self%training .and. .not. (self%evaluates .and. self%changes_state)
   end function by_batch

   subroutine row_forward(self, backend, operands, error)
      class(row_norm_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight and bias
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: w(2)
      w(:size(operands%w)) = operands%w
      call self%run(backend, row_norm_call(operands%x(1), w(1), w(2), self%form(operands%x(1), operands%rank), &
         & self%eps, operands%y), error)
   end subroutine row_forward

   subroutine row_backward(self, backend, operands, error)
      class(row_norm_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: w(2), dw(2)
      w(:size(operands%w)) = operands%w
      dw(:size(operands%dw)) = operands%dw
      call self%run(backend, row_norm_backward_call(operands%x(1), w(1), operands%dy, self%form(operands%x(1), &
         & operands%rank), self%eps, dw(1), dw(2), operands%dx(1)), error)
   end subroutine row_backward

   subroutine layer_read(self, given, error)
      class(layer_norm_type), intent(inout) :: self
      !> normalized_shape, eps, elementwise_affine, bias
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      type(parameter_shape_type) :: parameters(2)
      logical :: bias
      call given%get_list("normalized_shape", self%lengths, error, 3)
      if (.not. allocated(error)) call given%get_real("eps", self%eps, error, 1.0e-5_dp)
      if (.not. allocated(error)) call given%get_flag("elementwise_affine", self%affine, error, .true.)
      if (.not. allocated(error)) call given%get_flag("bias", bias, error, .true.)
      if (allocated(error)) return
      self%lengths = self%lengths(size(self%lengths):1:-1)
      if (.not. self%affine) return
      parameters%name = [character(len=12) :: "weight", "bias"]
      parameters%shape = shape_of(self%lengths)
      allocate (self%parameters, source=parameters(:merge(2, 1, bias)))
   end subroutine layer_read

   subroutine layer_shape(self, shapes, y, error)
      class(layer_norm_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> Other last axes, or no axis before them
      type(error_type), allocatable, intent(out) :: error
      type(shape_type) :: last
      y = shapes(1)
      last = shape_of(self%lengths)
      if (y%rank > last%rank .and. all(y%extent(:last%rank) == self%lengths)) return
      call self%refuse("input "//y%text(), last%text()//" behind another axis", error)
   end subroutine layer_shape

   pure function layer_form(self, x, rank) result(form)
      class(layer_norm_type), intent(in) :: self
      !> Its input
      type(tensor_type), intent(in) :: x
      !> Number of its dimensions
      integer, intent(in) :: rank
      integer :: form(3)
      associate (unused => [rank, x%dtype])
      end associate
      form = [1, product(self%lengths), 1]
      ! Without factors all of a row are treated alike
      if (.not. self%affine) form = form([2, 1, 3])
   end function layer_form

   subroutine group_read(self, given, error)
      class(group_norm_type), intent(inout) :: self
      !> num_groups, num_channels, eps, affine
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("num_groups", self%num_groups, error)
      if (.not. allocated(error)) call given%get_integer("num_channels", self%num_channels, error)
      if (.not. allocated(error)) call given%get_real("eps", self%eps, error, 1.0e-5_dp)
      if (.not. allocated(error)) call given%get_flag("affine", self%affine, error, .true.)
      if (allocated(error)) return
      if (mod(self%num_channels, self%num_groups) /= 0) then
         call self%refuse(to_text(self%num_channels)//" channels in "//to_text(self%num_groups)//" groups", &
            & "a multiple of the groups", error)
      else if (self%affine) then
         allocate (self%parameters, source=[parameter_shape_type("weight", shape_of([self%num_channels])), &
            & parameter_shape_type("bias", shape_of([self%num_channels]))])
      end if
   end subroutine group_read

   subroutine group_shape(self, shapes, y, error)
      class(group_norm_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> Another number of channels
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (y%rank >= 2) then
         if (y%extent(y%rank - 1) == self%num_channels) return
      end if
      call self%refuse("input "//y%text(), to_text(self%num_channels)//" channels", error)
   end subroutine group_shape

   pure function group_form(self, x, rank) result(form)
      class(group_norm_type), intent(in) :: self
      !> Its input
      type(tensor_type), intent(in) :: x
      !> Number of its dimensions
      integer, intent(in) :: rank
      integer :: form(3)
      form = [product(x%extent(:rank - 2)), self%num_channels/self%num_groups, self%num_groups]
      if (.not. self%affine) form = [form(1)*form(2), 1, 1]
   end function group_form

end module cnn_operations_normalization
