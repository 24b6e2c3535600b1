! SPDX-License-Identifier: MIT
!> The matrix product of two inputs.
!>
!> torch's a (m, k) is a(k, m) here, b (k, n) is b(n, k), and their product y(n, m). In host memory it is
!> computed as the convolutions of images of one pixel that it is: b is the kernels of n input and k output channels.
!> Elsewhere it is a primitive, with flags for the transposes of a and of b: libraries want matrices that are aligned.
module cnn_operations_matrices_matmul
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : matmul_call
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, i8
   use cnn_core_tensor, only : part_of, tensor_type
   use cnn_operations_operation, only : no, operands_type, operation_type, two
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   public :: multiply

   !> The last two axes of torch are matrices, those before them count them
   type, extends(operation_type), public :: matmul_type
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: arity => two
      procedure :: find_shape => matmul_shape
      procedure :: forward => matmul_forward
      procedure :: backward => matmul_backward
   end type matmul_type

contains

   subroutine matmul_shape(self, shapes, y, error)
      class(matmul_type), intent(in) :: self
      !> Of its two inputs, (..., m, k) and (..., k, n)
      type(shape_type), intent(in) :: shapes(:)
      !> (..., m, n)
      type(shape_type), intent(out) :: y
      !> Their inner extents, or numbers of matrices, differ
      type(error_type), allocatable, intent(out) :: error
      associate (a => shapes(1), b => shapes(2))
         if (a%rank < 2 .or. a%rank /= b%rank .or. a%extent(1) /= b%extent(2) .or. &
            & any(a%extent(3:) /= b%extent(3:))) then
            call self%refuse("the shapes "//a%text()//" of "//self%inputs(1)%text//" and "//b%text()//" of "// &
               & self%inputs(2)%text, "shapes (..., m, k) and (..., k, n)", error)
            return
         end if
         y = a
         y%extent(1) = b%extent(1)
      end associate
   end subroutine matmul_shape

   subroutine matmul_forward(self, backend, operands, error)
      class(matmul_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call multiply(self, backend, operands%x(1), operands%x(2), .false., .false., operands%y, error)
   end subroutine matmul_forward

   !> da = dy b^T, db = a^T dy
   subroutine matmul_backward(self, backend, operands, error)
      class(matmul_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call multiply(self, backend, operands%dy, operands%x(2), .false., .true., operands%dx(1), error)
      if (.not. allocated(error)) call multiply(self, backend, operands%x(1), operands%dy, .true., .false., &
         & operands%dx(2), error)
   end subroutine matmul_backward

   !> y = a b, a b^T or a^T b
   subroutine multiply(self, backend, a, b, turn_a, turn_b, y, error)
      !> Whose products they are
      class(operation_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Matrices
      type(tensor_type), intent(in) :: a
      !> As many
      type(tensor_type), intent(in) :: b
      !> Whether the transposes of a are meant, and those of b are not
      logical, intent(in) :: turn_a
      !> Whether the transposes of b are
      logical, intent(in) :: turn_b
      !> Is overwritten
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: step
      integer :: i
      if (.not. backend%in_host_memory) then
         call self%run(backend, matmul_call(a, b, turn_a, turn_b, y), error)
         return
      end if
      do i = 1, matrices(y)
         if (turn_a) then
            call backend%conv_backward_filter(conv_type(), matrix(b, i), matrix(a, i), matrix(y, i), error)
         else if (turn_b) then
            step%x = matrix(a, i)
            step%w = matrix(b, i)
            step%y = matrix(y, i)
            call backend%conv_forward(step, error)
         else
            call backend%conv_backward_data(conv_type(), matrix(b, i), matrix(a, i), matrix(y, i), error)
         end if
         if (allocated(error)) exit
      end do
      call self%name_node(error)
   end subroutine multiply

   !> Number of matrices
   pure integer function matrices(tensor)
      !> The last two of torch's axes are a matrix
      type(tensor_type), intent(in) :: tensor
      matrices = product(tensor%extent(3:))
   end function matrices

   !> A matrix as images of one pixel, whose channels are its columns; the same view is that of kernels of one tap
   type(tensor_type) function matrix(tensor, i)
      !> Matrices one behind the other
      type(tensor_type), intent(in) :: tensor
      !> Which one, from 1
      integer, intent(in) :: i
      matrix = part_of(tensor, (i - 1)*product(int(tensor%extent(:2), i8))*bytes_of(tensor%dtype), &
         & [1, 1, tensor%extent(:2)])
   end function matrix

end module cnn_operations_matrices_matmul
