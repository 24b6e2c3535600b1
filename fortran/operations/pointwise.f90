! SPDX-License-Identifier: MIT
!> Operations on each element by itself.
module cnn_operations_pointwise
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : copy_call, dropout_call, pointwise_backward_call, pointwise_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8, sp
   use cnn_core_tensor, only : same_memory, same_shape, shape_text, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   !> max(z, 0), by the device; the derivative at 0 is 0, as torch's
   type, extends(operation_type), public :: relu_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: works_in_place => yes
      procedure :: read => relu_read
      procedure :: forward => relu_forward
      procedure :: backward => relu_backward
   end type relu_type

   !> One of the functions of functions.inc; its derivative is found from the input
   type, extends(operation_type), public :: function_type
      !> Which: a number of cnn_operations_numbers
      integer(i8) :: number = 0
      !> Its hyperparameters, in the order of torch's arguments, and their values: torch's defaults until it is read
      character(len=16) :: settings(2) = ""
      real(dp) :: values(2) = 0.0_dp
      !> Whether these may be negative or infinite
      logical :: signed = .false.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure :: read => function_read
      procedure :: forward => function_forward
      procedure :: backward => function_backward
   end type function_type

   !> The same, whose derivative is found from the output
   type, extends(function_type), public :: function_of_output_type
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => yes
      procedure :: backward => output_backward
   end type function_of_output_type

   !> z where it is positive, else negative_slope * z, which devices compute with a convolution
   type, extends(function_of_output_type), public :: leaky_relu_type
   contains
      procedure :: read => leaky_read
   end type leaky_relu_type

   !> scale*z + shift: its derivative needs neither the input nor the output
   type, extends(function_type), public :: affine_type
   contains
      procedure, nopass :: reads_x => no
      procedure :: backward => affine_backward
   end type affine_type

   !> x / (1 - p) where the mask is 1, else 0; x after training
   type, extends(operation_type), public :: dropout_type
      real(dp) :: p = 0.0_dp
      !> Whether the mask has one number for each channel of an image
      logical :: of_channels = .false.
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: works_in_place => yes
      procedure, nopass :: has_mask => yes
      procedure :: read => dropout_read
      procedure :: find_shape => dropout_shape
      procedure :: forward => dropout_forward
      procedure :: backward => dropout_backward
   end type dropout_type

contains

   subroutine dropout_read(self, given, error)
      class(dropout_type), intent(inout) :: self
      !> p
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_real("p", self%p, error)
      if (allocated(error)) return
      if (self%p >= 1.0_dp) call self%refuse("p "//to_text(self%p), "a number from 0 on, below 1", error)
   end subroutine dropout_read

   subroutine dropout_shape(self, shapes, y, error)
      class(dropout_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same
      type(shape_type), intent(out) :: y
      !> A scalar, or of whole channels no images
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (self%of_channels .and. y%rank /= 4) then
         call self%refuse("input "//y%text(), "a shape (n, c, h, w)", error)
      else if (y%rank < 1) then
         call self%refuse("a scalar", "one dimension or more", error)
      end if
   end subroutine dropout_shape

   subroutine dropout_forward(self, backend, operands, error)
      class(dropout_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x and the mask
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call drop(self, backend, operands%x(1), operands%mask, operands%y, error)
   end subroutine dropout_forward

   subroutine dropout_backward(self, backend, operands, error)
      class(dropout_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and the mask
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call drop(self, backend, operands%dy, operands%mask, operands%dx(1), error)
   end subroutine dropout_backward

   subroutine drop(self, backend, x, mask, y, error)
      class(dropout_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> What is dropped or kept
      type(tensor_type), intent(in) :: x
      !> 0 and 1
      type(tensor_type), intent(in) :: mask
      !> What is kept, scaled; is overwritten
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: expected
      expected = x
      if (self%of_channels) expected%extent(:2) = 1
      if (self%evaluates) then
         if (.not. same_memory(x, y)) call self%run(backend, copy_call(x, y), error)
      else if (same_shape(expected, mask)) then
         call self%run(backend, dropout_call(x, mask, merge(product(x%extent(:2)), 1, self%of_channels), &
            & 1.0_dp/(1.0_dp - self%p), y), error)
      else
         call self%refuse("mask "//shape_text(mask%extent), "the shape "//shape_text(expected%extent), error)
      end if
   end subroutine drop

   subroutine relu_read(self, given, error)
      class(relu_type), intent(inout) :: self
      !> Nothing
      type(attributes_type), intent(inout) :: given
      !> Any is unknown
      type(error_type), allocatable, intent(out) :: error
      self%relu_slope = 0.0_dp
      given%node = self%name
      call given%check_known(error)
   end subroutine relu_read

   subroutine relu_forward(self, backend, operands, error)
      class(relu_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call backend%relu_forward(operands%x(1), operands%y, error)
      call self%name_node(error)
   end subroutine relu_forward

   subroutine relu_backward(self, backend, operands, error)
      class(relu_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and its sums from dy and y, which is positive where x is
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call backend%relu_backward(operands%y, operands%dy, operands%dx(1), operands%db, error)
      call self%name_node(error)
   end subroutine relu_backward

   subroutine function_read(self, given, error)
      class(function_type), intent(inout) :: self
      !> Its settings
      type(attributes_type), intent(inout) :: given
      !> Unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: default
      integer :: i
      given%node = self%name
      do i = 1, count(self%settings /= "")
         default = self%values(i)
         call given%get_real(trim(self%settings(i)), self%values(i), error, default, self%signed)
         if (allocated(error)) return
      end do
      call given%check_known(error)
   end subroutine function_read

   subroutine leaky_read(self, given, error)
      class(leaky_relu_type), intent(inout) :: self
      !> negative_slope
      type(attributes_type), intent(inout) :: given
      !> Out of its range
      type(error_type), allocatable, intent(out) :: error
      call function_read(self, given, error)
      ! With a slope of 0, in either precision, it is a ReLU, but for the sign of 0 and for infinities
      if (self%values(1) > tiny(1.0_sp)) self%relu_slope = self%values(1)
   end subroutine leaky_read

   subroutine function_forward(self, backend, operands, error)
      class(function_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, pointwise_call(operands%x(1), int(self%number), self%values, operands%y), error)
   end subroutine function_forward

   subroutine function_backward(self, backend, operands, error)
      class(function_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, pointwise_backward_call(operands%x(1), operands%dy, int(self%number), self%values, &
         & operands%dx(1)), error)
   end subroutine function_backward

   subroutine affine_backward(self, backend, operands, error)
      class(affine_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, pointwise_backward_call(operands%dy, operands%dy, int(self%number), self%values, &
         & operands%dx(1)), error)
   end subroutine affine_backward

   subroutine output_backward(self, backend, operands, error)
      class(function_of_output_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and y
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, pointwise_backward_call(operands%y, operands%dy, int(self%number), self%values, &
         & operands%dx(1)), error)
   end subroutine output_backward

end module cnn_operations_pointwise
