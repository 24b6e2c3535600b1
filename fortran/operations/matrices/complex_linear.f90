! SPDX-License-Identifier: MIT
!> Channels mixed by a complex matrix at each place, as layers do that learn in the frequencies of a Fourier transform.
!>
!> torch's (n, channels, places, 2) is (2, places, channels, n) here, of real and imaginary parts. All channels of all
!> images are a matrix for each place, and so is the weight: the output is x w, and with the conjugate transposes
!> dx = dy w^H and dw = x^H dy.
!>
!> Source.  Z. Li et al., Fourier Neural Operator for Parametric Partial Differential Equations, ICLR 2021
module cnn_operations_matrices_complex_linear
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : complex_product_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Learns a weight (2, places, out_channels, in_channels)
   type, extends(operation_type), public :: complex_linear_type
      integer :: in_channels = 1, out_channels = 1, places = 1
   contains
      procedure, nopass :: reads_y => no
      procedure :: read => mix_read
      procedure :: find_shape => mix_shape
      procedure :: forward => mix_forward
      procedure :: backward => mix_backward
   end type complex_linear_type

contains

   subroutine mix_read(self, given, error)
      class(complex_linear_type), intent(inout) :: self
      !> in_channels, out_channels, places
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("in_channels", self%in_channels, error)
      if (.not. allocated(error)) call given%get_integer("out_channels", self%out_channels, error)
      if (.not. allocated(error)) call given%get_integer("places", self%places, error)
      if (allocated(error)) return
      if (2.0_dp*self%in_channels*self%out_channels*self%places > huge(1)) then
         call self%refuse("weights "//to_text([self%in_channels, self%out_channels, self%places, 2]), &
            & "fewer than 2**31 numbers", error)
         return
      end if
      self%parameters = [parameter_shape_type("weight", shape_of([2, self%places, self%out_channels, &
         & self%in_channels]))]
   end subroutine mix_read

   subroutine mix_shape(self, shapes, y, error)
      class(complex_linear_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With the other number of channels
      type(shape_type), intent(out) :: y
      !> Other than pairs at so many places of so many channels
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (y%rank /= 4) then
         call self%refuse("input "//y%text(), "four dimensions", error)
      else if (any(y%extent(:3) /= [2, self%places, self%in_channels])) then
         call self%refuse("input "//y%text(), "a shape (n, "//to_text(self%in_channels)//", "// &
            & to_text(self%places)//", 2)", error)
      else
         y%extent(3) = self%out_channels
      end if
   end subroutine mix_shape

   subroutine mix_forward(self, backend, operands, error)
      class(complex_linear_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x and the weight
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, complex_product_call(operands%x(1), operands%w(1), .false., .false., operands%y), error)
   end subroutine mix_forward

   subroutine mix_backward(self, backend, operands, error)
      class(complex_linear_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and the weight
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (operands%dx(1)%is_allocated()) call self%run(backend, complex_product_call(operands%dy, operands%w(1), &
         & .false., .true., operands%dx(1)), error)
      if (.not. allocated(error)) call self%run(backend, complex_product_call(operands%x(1), operands%dy, &
         & .true., .false., operands%dw(1)), error)
   end subroutine mix_backward

end module cnn_operations_matrices_complex_linear
