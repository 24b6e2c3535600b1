! SPDX-License-Identifier: MIT
!> Attention of a sequence to itself: softmax(scale q k^T) v, without the matrix of all weights in memory.
!>
!> torch's (n, heads, length, features) is (features, length, heads, n) here. All weights of some rows are found
!> together, and found again in the backward pass: short sequences several at once, long ones some rows after others.
!> Of a causal one, rows at the beginning have no weights of the keys at the end, and nothing is computed of those.
!>
!> With weights p and their gradient dp = dy v^T it is dv = p^T dy, ds = scale p (dp - sum(p dp)), dq = ds k and
!> dk = ds^T q.
!>
!> Source.  A. Vaswani et al., Attention Is All You Need, NIPS 2017
module cnn_operations_matrices_attention
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : accumulate_call, attention_backward_call, attention_weights_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : part_of, tensor_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_matrices_matmul, only : multiply
   use cnn_operations_operation, only : no, operands_type, operation_type
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   !> Weights that are found together: they stay in the cache of a processor, and are enough for a device
   integer(i8), parameter :: most_in_host_memory = 2_i8**18, most_on_device = 2_i8**24
   !> Parts in which the rows of a causal one are worked on in host memory, and how many rows a part has at least
   integer, parameter :: parts = 4, least_rows = 32
   !> Bytes to which parts of the memory are aligned
   integer(i8), parameter :: line = 64_i8

   !> Three inputs: queries, keys and values
   type, extends(operation_type), public :: attention_type
      logical :: is_causal = .false.
      !> Of the scores; 0: one over the square root of the features
      real(dp) :: scale = 0.0_dp
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: arity => three
      procedure :: read => attention_read
      procedure :: find_shape => attention_shape
      procedure :: scratch_bytes => attention_scratch
      procedure :: forward => attention_forward
      procedure :: backward => attention_backward
      procedure, private :: find_weights
      procedure, private :: block_backward
   end type attention_type

   !> Which rows are worked on
   type :: block_type
      !> Sequences before them, how many there are, rows of these before them, how many, and keys of which they have
      !> weights
      integer :: before = 0, sequences = 0, first = 0, rows = 0, keys = 0
      !> Whether they are all rows
      logical :: is_whole = .true.
   end type block_type

contains

   !> Number of inputs
   pure integer function three()
      three = 3
   end function three

   subroutine attention_read(self, given, error)
      class(attention_type), intent(inout) :: self
      !> is_causal, scale
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_flag("is_causal", self%is_causal, error, .false.)
      if (.not. allocated(error)) call given%get_real("scale", self%scale, error, 0.0_dp)
   end subroutine attention_read

   subroutine attention_shape(self, shapes, y, error)
      class(attention_type), intent(in) :: self
      !> Of queries, keys (n, ..., length, features) and values (n, ..., length, width)
      type(shape_type), intent(in) :: shapes(:)
      !> That of the values
      type(shape_type), intent(out) :: y
      !> Lengths, features, or what is before them differ
      type(error_type), allocatable, intent(out) :: error
      y = shapes(3)
      if (y%rank < 3 .or. any(shapes(:2)%rank /= y%rank)) then
         call refuse_shapes(self, shapes, error)
      else if (any(shapes(1)%extent /= shapes(2)%extent) .or. any(shapes(1)%extent(2:) /= y%extent(2:))) then
         call refuse_shapes(self, shapes, error)
      end if
   end subroutine attention_shape

   !> The error of inputs that are no queries, keys and values
   subroutine refuse_shapes(self, shapes, error)
      class(attention_type), intent(in) :: self
      !> Of the inputs
      type(shape_type), intent(in) :: shapes(:)
      !> Names them
      type(error_type), allocatable, intent(out) :: error
      call self%refuse("the shapes "//shapes(1)%text()//", "//shapes(2)%text()//" and "//shapes(3)%text(), &
         & "twice (n, ..., length, features) and (n, ..., length, width)", error)
   end subroutine refuse_shapes

   !> What the weights of all sequences are multiplied by
   pure real(dp) function scale_of(self, features)
      class(attention_type), intent(in) :: self
      !> Of a query
      integer, intent(in) :: features
      scale_of = self%scale
      if (.not. abs(scale_of) > 0.0_dp) scale_of = 1.0_dp/sqrt(real(features, dp))
   end function scale_of

   !> How many rows are worked on together, and of how many sequences
   pure subroutine divide(self, in_host_memory, length, sequences, rows, together)
      class(attention_type), intent(in) :: self
      !> Where tensors are
      logical, intent(in) :: in_host_memory
      !> Rows of a sequence
      integer, intent(in) :: length
      !> All of them
      integer, intent(in) :: sequences
      !> At once
      integer, intent(out) :: rows
      !> At once; 1 where not all rows are
      integer, intent(out) :: together
      integer(i8) :: most
      most = merge(most_in_host_memory, most_on_device, in_host_memory)
      together = int(max(1_i8, min(int(sequences, i8), most/int(length, i8)**2)))
      rows = int(max(1_i8, min(int(length, i8), most/length)))
      ! Rows at the beginning have no weights of the keys at the end
      if (self%is_causal .and. in_host_memory) rows = min(rows, max(least_rows, (length + parts - 1)/parts))
      if (rows < length) together = 1
   end subroutine divide

   pure integer(i8) function attention_scratch(self, in_host_memory, x, y)
      class(attention_type), intent(in) :: self
      !> Whether tensors are in host memory
      logical, intent(in) :: in_host_memory
      !> Queries, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      integer :: rows, together
      call divide(self, in_host_memory, x%extent(2), product(x%extent(3:)), rows, together)
      attention_scratch = bytes_of(x%dtype)*(2_i8*x%extent(2)*rows*together + &
         & int(max(x%extent(1), y%extent(1)), i8)*x%extent(2)) + 3*line
   end function attention_scratch

   !> The next rows, after those that are given; the first of all, where there are none yet
   subroutine advance(self, in_host_memory, x, block, is_over)
      class(attention_type), intent(in) :: self
      !> Where tensors are
      logical, intent(in) :: in_host_memory
      !> Queries
      type(tensor_type), intent(in) :: x
      !> Becomes the next one
      type(block_type), intent(inout) :: block
      !> There is none
      logical, intent(out) :: is_over
      integer :: length, rows, sequences, together
      length = x%extent(2)
      sequences = product(x%extent(3:))
      call divide(self, in_host_memory, length, sequences, rows, together)
      block%first = block%first + block%rows
      if (block%first >= length) then
         block%first = 0
         block%before = block%before + block%sequences
      end if
      is_over = block%before >= sequences
      block%rows = min(rows, length - block%first)
      block%sequences = min(together, sequences - block%before)
      block%is_whole = rows == length
      block%keys = length
      if (self%is_causal) block%keys = block%first + block%rows
   end subroutine advance

   !> Rows of the sequences of a block
   type(tensor_type) function rows_of(tensor, block, first, rows)
      !> (numbers, length, ...)
      type(tensor_type), intent(in) :: tensor
      !> Which sequences
      type(block_type), intent(in) :: block
      !> Rows before them
      integer, intent(in) :: first
      !> How many
      integer, intent(in) :: rows
      rows_of = part_of(tensor, bytes_of(tensor%dtype)*tensor%extent(1)*(int(block%before, i8)*tensor%extent(2) + &
         & first), [tensor%extent(1), rows, block%sequences])
   end function rows_of

   !> A part of the memory to work in, for weights
   type(tensor_type) function work_of(operands, block, number)
      !> Of the pass
      type(operands_type), intent(in) :: operands
      !> Of which rows
      type(block_type), intent(in) :: block
      !> Which part, from 0
      integer, intent(in) :: number
      integer(i8) :: bytes
      bytes = bytes_of(operands%x(1)%dtype)*int(operands%x(1)%extent(2), i8)*block%rows*block%sequences
      work_of = part_of(operands%scratch, number*((bytes + line - 1_i8)/line*line), &
         & [block%keys, block%rows, block%sequences])
      work_of%dtype = operands%x(1)%dtype
   end function work_of

   !> The weights of a block
   subroutine find_weights(self, backend, operands, block, weights, error)
      class(attention_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Queries and keys
      type(operands_type), intent(in) :: operands
      !> Which rows
      type(block_type), intent(in) :: block
      !> Are overwritten
      type(tensor_type), intent(in) :: weights
      type(error_type), allocatable, intent(out) :: error
      associate (x => operands%x)
         call multiply(self, backend, rows_of(x(1), block, block%first, block%rows), rows_of(x(2), block, 0, &
            & block%keys), .false., .true., weights, error)
         if (.not. allocated(error)) call self%run(backend, attention_weights_call(block%first, self%is_causal, &
            & scale_of(self, x(1)%extent(1)), weights), error)
      end associate
   end subroutine find_weights

   subroutine attention_forward(self, backend, operands, error)
      class(attention_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(block_type) :: block
      type(tensor_type) :: weights
      logical :: is_over
      do
         call advance(self, backend%in_host_memory, operands%x(1), block, is_over)
         if (is_over) exit
         weights = work_of(operands, block, 0)
         call self%find_weights(backend, operands, block, weights, error)
         if (.not. allocated(error)) call multiply(self, backend, weights, rows_of(operands%x(3), block, 0, &
            & block%keys), .false., .false., rows_of(operands%y, block, block%first, block%rows), error)
         if (allocated(error)) return
      end do
   end subroutine attention_forward

   subroutine attention_backward(self, backend, operands, error)
      class(attention_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy and x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(block_type) :: block
      integer :: i
      logical :: is_over
      do
         call advance(self, backend%in_host_memory, operands%x(1), block, is_over)
         if (is_over) exit
         if (.not. block%is_whole .and. block%first == 0) then
            ! What comes of the rows is added up
            do i = 2, 3
               call backend%clear(rows_of(operands%dx(i), block, 0, operands%dx(i)%extent(2)), error)
               if (allocated(error)) return
            end do
         end if
         call self%block_backward(backend, operands, block, error)
         if (allocated(error)) return
      end do
   end subroutine attention_backward

   !> What comes of the rows of a block
   subroutine block_backward(self, backend, operands, block, error)
      class(attention_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Of the pass
      type(operands_type), intent(in) :: operands
      !> Which rows
      type(block_type), intent(in) :: block
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dy, gradient, q, weights
      weights = work_of(operands, block, 0)
      gradient = work_of(operands, block, 1)
      q = rows_of(operands%x(1), block, block%first, block%rows)
      dy = rows_of(operands%dy, block, block%first, block%rows)
      call self%find_weights(backend, operands, block, weights, error)
      if (.not. allocated(error)) call multiply(self, backend, dy, rows_of(operands%x(3), block, 0, block%keys), &
         & .false., .true., gradient, error)
      if (.not. allocated(error)) call add_up(self, backend, operands, block, 3, weights, dy, error)
      if (.not. allocated(error)) call self%run(backend, attention_backward_call(weights, &
         & scale_of(self, q%extent(1)), gradient), error)
      if (.not. allocated(error)) call multiply(self, backend, gradient, rows_of(operands%x(2), block, 0, block%keys), &
         & .false., .false., rows_of(operands%dx(1), block, block%first, block%rows), error)
      if (.not. allocated(error)) call add_up(self, backend, operands, block, 2, gradient, q, error)
   end subroutine block_backward

   !> The gradient of keys or values: the transpose of a times b, of all rows
   subroutine add_up(self, backend, operands, block, input, a, b, error)
      class(attention_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Of the pass
      type(operands_type), intent(in) :: operands
      !> Which rows
      type(block_type), intent(in) :: block
      !> 2 or 3
      integer, intent(in) :: input
      !> Numbers of each row for each key
      type(tensor_type), intent(in) :: a
      !> Numbers of each row
      type(tensor_type), intent(in) :: b
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: found, part
      integer(i8) :: bytes
      part = rows_of(operands%dx(input), block, 0, block%keys)
      if (block%is_whole) then
         call multiply(self, backend, a, b, .true., .false., part, error)
         return
      end if
      bytes = bytes_of(a%dtype)*int(operands%x(1)%extent(2), i8)*block%rows*block%sequences
      found = part_of(operands%scratch, 2*((bytes + line - 1_i8)/line*line), part%extent(:3))
      found%dtype = part%dtype
      call multiply(self, backend, a, b, .true., .false., found, error)
      if (.not. allocated(error)) call self%run(backend, accumulate_call(found, part), error)
   end subroutine add_up

end module cnn_operations_matrices_attention
