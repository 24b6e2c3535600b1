! SPDX-License-Identifier: MIT
!> Layers of Kolmogorov-Arnold networks (KAN): sums of learned functions, each of one feature.
module cnn_operations_spline
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : spline_backward_call, spline_call, spline_gradients_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Of each feature its SiLU and a spline, with factors for each output, summed over the features. Splines are sums of
   !> B-splines on `grid` intervals from `low` to `high` and `order` more on each side.
   !> Source: Z. Liu et al., KAN: Kolmogorov-Arnold Networks, https://arxiv.org/abs/2404.19756, equations 2.10 to 2.12
   type, extends(operation_type), public :: spline_type
      integer :: in_features = 1, out_features = 1
      integer :: grid = 5
      !> Degree of the polynomials
      integer :: order = 3
      real(dp) :: low = -1.0_dp, high = 1.0_dp
      !> Whether each spline has a factor besides its coefficients
      logical :: has_scale = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => spline_read
      procedure :: find_shape => spline_shape
      procedure :: forward => spline_forward
      procedure :: backward => spline_backward
   end type spline_type

contains

   subroutine spline_read(self, given, error)
      class(spline_type), intent(inout) :: self
      !> in_features, out_features, grid, order, low, high, scale_spline
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("in_features", self%in_features, error)
      if (.not. allocated(error)) call given%get_integer("out_features", self%out_features, error)
      if (.not. allocated(error)) call given%get_integer("grid", self%grid, error, 5)
      if (.not. allocated(error)) call given%get_integer("order", self%order, error, 3)
      if (.not. allocated(error)) call given%get_real("low", self%low, error, -1.0_dp, signed=.true.)
      if (.not. allocated(error)) call given%get_real("high", self%high, error, 1.0_dp, signed=.true.)
      if (.not. allocated(error)) call given%get_flag("scale_spline", self%has_scale, error, .true.)
      if (allocated(error)) return
      associate (extent => [self%grid + self%order, self%in_features, self%out_features])
         if (self%order < 2 .or. self%order > 5) then
            call self%refuse("order "//to_text(self%order), "2, 3, 4 or 5", error)
         else if (.not. (self%low < self%high .and. self%low >= -huge(1.0_dp) .and. self%high <= huge(1.0_dp))) then
            call self%refuse("a grid from "//to_text(self%low)//" to "//to_text(self%high), &
               & "finite numbers, low below high", error)
         else if (product(real(extent, dp)) > huge(1)) then
            call self%refuse("coefficients "//to_text(extent(3:1:-1)), "fewer than 2**31 of them", error)
         else
            self%parameters = [parameter_shape_type("coefficient", shape_of(extent)), &
               & parameter_shape_type("scale_base", shape_of(extent(2:)))]
            if (self%has_scale) self%parameters = [self%parameters, &
               & parameter_shape_type("scale_spline", shape_of(extent(2:)))]
         end if
      end associate
   end subroutine spline_read

   subroutine spline_shape(self, shapes, y, error)
      class(spline_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With out_features in the place of in_features
      type(shape_type), intent(out) :: y
      !> Another number of features
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank < 2 .or. shapes(1)%extent(1) /= self%in_features) then
         call self%refuse("input "//shapes(1)%text(), to_text(self%in_features)//" features in its last axis", error)
         return
      end if
      y = shapes(1)
      y%extent(1) = self%out_features
   end subroutine spline_shape

   subroutine spline_forward(self, backend, operands, error)
      class(spline_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: w(3)
      w(:size(operands%w)) = operands%w
      call self%run(backend, spline_call(operands%x(1), w(1), w(2), w(3), [self%order, self%grid], self%low, &
         & self%high, operands%y), error)
   end subroutine spline_forward

   subroutine spline_backward(self, backend, operands, error)
      class(spline_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: w(3), dw(3)
      w(:size(operands%w)) = operands%w
      dw(:size(operands%dw)) = operands%dw
      call self%run(backend, spline_gradients_call(operands%x(1), w(1), w(3), operands%dy, [self%order, self%grid], &
         & self%low, self%high, dw(3), dw(2), dw(1)), error)
      if (allocated(error) .or. .not. operands%dx(1)%is_allocated()) return
      call self%run(backend, spline_backward_call(operands%x(1), w(1), w(2), w(3), operands%dy, [self%order, &
         & self%grid], self%low, self%high, operands%dx(1)), error)
   end subroutine spline_backward

end module cnn_operations_spline
