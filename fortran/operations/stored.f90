! SPDX-License-Identifier: MIT
!> What is learned by itself, as another operation's operand, and what is taken from tables by indices.
module cnn_operations_stored
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : gather_rows_backward_call, gather_rows_call, spread_call, sum_to_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float64, i8, sp
   use cnn_core_tensor, only : as_vector, extent_of, max_rank, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type, largest
   use cnn_operations_moves, only : fortran_axis, moving_type, part_type, read_axis
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type, two, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> The same numbers for each image. The input says how many images there are
   type, extends(operation_type), public :: stored_type
      !> Torch's, of one image
      integer, allocatable :: extents(:)
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => stored_read
      procedure :: find_shape => stored_shape
      procedure :: forward => stored_forward
      procedure :: backward => stored_backward
   end type stored_type

   !> The numbers of these indices of a dimension, torch's `index_select`
   type, extends(moving_type), public :: index_select_type
      integer :: dim = 1
      !> From 0
      integer, allocatable :: indices(:)
   contains
      procedure :: read => select_read
      procedure :: find_shape => select_shape
      procedure :: parts => select_parts
   end type index_select_type

   !> Rows of a table of its own, which whole numbers choose: torch's `Embedding`
   type, extends(operation_type), public :: embedding_type
      !> Rows, and the numbers of each
      integer :: num_embeddings = 1, embedding_dim = 1
      !> The row, from 0, that is not learned; -1: all are
      integer :: padding_idx = -1
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => embedding_read
      procedure :: find_shape => embedding_shape
      procedure :: forward => embedding_forward
      procedure :: backward => embedding_backward
   end type embedding_type

   !> Rows of tables that are another operation's output, one for each image
   type, extends(operation_type), public :: gather_rows_type
      !> The row, from 0, that has no gradient; -1: all have
      integer :: padding_idx = -1
   contains
      procedure, nopass :: arity => two
      procedure, nopass :: reads_y => no
      procedure :: read => gather_read
      procedure :: find_shape => gather_shape
      procedure :: forward => gather_forward
      procedure :: backward => gather_backward
   end type gather_rows_type

   !> Most indices, and the last that there may be
   integer, parameter :: most = 4096, last = largest - 1

contains

   subroutine stored_read(self, given, error)
      class(stored_type), intent(inout) :: self
      !> shape
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_list("shape", self%extents, error, max_rank - 1, lowest=-1)
      if (allocated(error)) return
      if (any(self%extents < 1)) then
         call self%refuse("shape "//to_text(self%extents), "integers from 1 on", error)
      else if (product(real(self%extents, dp)) > huge(1)) then
         call self%refuse("weights "//to_text(self%extents), "fewer than 2**31 of them", error)
      else
         self%parameters = [parameter_shape_type("weight", shape_of(self%extents(size(self%extents):1:-1)))]
      end if
   end subroutine stored_read

   subroutine stored_shape(self, shapes, y, error)
      class(stored_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, and the extents)
      type(shape_type), intent(out) :: y
      !> A scalar has no images
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank < 1) then
         call self%refuse("a scalar", "one dimension or more", error)
      else
         y = shape_of([self%extents(size(self%extents):1:-1), shapes(1)%extent(shapes(1)%rank)])
      end if
   end subroutine stored_shape

   subroutine stored_forward(self, backend, operands, error)
      class(stored_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from the parameter
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call self%run(backend, spread_call(operands%w(1), 1.0_dp, operands%y), error)
   end subroutine stored_forward

   !> The network's input has no part in it
   subroutine stored_backward(self, backend, operands, error)
      class(stored_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dw from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (operands%dx(1)%is_allocated()) call backend%clear(operands%dx(1), error)
      if (.not. allocated(error)) call self%run(backend, sum_to_call(operands%dy, 1.0_dp, operands%dw(1)), error)
   end subroutine stored_backward

   subroutine select_read(self, given, error)
      class(index_select_type), intent(inout) :: self
      !> dim, indices
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_axis(given, "dim", self%dim, error)
      if (.not. allocated(error)) call given%get_list("indices", self%indices, error, most, 0, last)
   end subroutine select_read

   subroutine select_shape(self, shapes, y, error)
      class(index_select_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With as many indices as there are in the list
      type(shape_type), intent(out) :: y
      !> No such dimension, the batch, or an index that it has not
      type(error_type), allocatable, intent(out) :: error
      integer :: axis
      y = shapes(1)
      axis = fortran_axis(self%dim, y%rank)
      if (axis == 0 .or. axis == y%rank) then
         call self%refuse("dimension "//to_text(self%dim)//" of "//to_text(y%rank), "another than the batch", error)
      else if (maxval(self%indices) >= y%extent(axis)) then
         call self%refuse("index "//to_text(maxval(self%indices)), "one below "//to_text(y%extent(axis)), error)
      else
         y%extent(axis) = size(self%indices)
      end if
   end subroutine select_shape

   !> Indices that are equally far from each other are one part
   pure function select_parts(self, rank, x, y) result(parts)
      class(index_select_type), intent(in) :: self
      !> Dimensions of the input
      integer, intent(in) :: rank
      !> Its extents
      integer, intent(in) :: x(max_rank)
      !> Extents of the output
      integer, intent(in) :: y(max_rank)
      type(part_type), allocatable :: parts(:)
      integer :: axis, first, i, n, step
      associate (unused => x)
      end associate
      axis = fortran_axis(self%dim, rank)
      allocate (parts(size(self%indices)))
      n = 0
      first = 1
      do while (first <= size(self%indices))
         step = 1
         i = first + 1
         if (i <= size(self%indices)) step = self%indices(i) - self%indices(first)
         do while (i <= size(self%indices))
            if (step == 0 .or. self%indices(i) - self%indices(i - 1) /= step) exit
            i = i + 1
         end do
         n = n + 1
         parts(n)%extents = y
         parts(n)%adds = .true.
         parts(n)%extents(axis) = i - first
         parts(n)%step(axis) = merge(step, 1, i - first > 1)
         parts(n)%first_x(axis) = self%indices(first)
         parts(n)%first_y(axis) = first - 1
         first = i
      end do
      parts = parts(:n)
   end function select_parts

   subroutine embedding_read(self, given, error)
      class(embedding_type), intent(inout) :: self
      !> num_embeddings, embedding_dim, padding_idx
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("num_embeddings", self%num_embeddings, error)
      if (.not. allocated(error)) call given%get_integer("embedding_dim", self%embedding_dim, error)
      if (.not. allocated(error)) call given%get_index("padding_idx", self%padding_idx, error, -1)
      if (allocated(error)) return
      if (real(self%num_embeddings, dp)*self%embedding_dim > huge(1)) then
         call self%refuse("weights "//to_text([self%num_embeddings, self%embedding_dim]), "fewer than 2**31 of them", &
            & error)
         return
      end if
      call check_row(self, self%padding_idx, self%num_embeddings, error)
      self%parameters = [parameter_shape_type("weight", shape_of([self%embedding_dim, self%num_embeddings]))]
   end subroutine embedding_read

   !> Refuse a row that there is not
   subroutine check_row(self, row, rows, error)
      class(operation_type), intent(in) :: self
      !> From 0; -1: none
      integer, intent(in) :: row
      !> Of the table
      integer, intent(in) :: rows
      type(error_type), allocatable, intent(out) :: error
      if (row < -1 .or. row >= rows) call self%refuse("padding_idx "//to_text(row), &
         & "one from 0 to "//to_text(rows - 1)//", or -1", error)
   end subroutine check_row

   subroutine embedding_shape(self, shapes, y, error)
      class(embedding_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> The same, with the numbers of a row for each
      type(shape_type), intent(out) :: y
      !> No images, or no room for another dimension
      type(error_type), allocatable, intent(out) :: error
      call rows_shape(self, shapes(1), self%embedding_dim, y, error)
   end subroutine embedding_shape

   !> The shape of whole numbers, each with a row
   subroutine rows_shape(self, x, width, y, error)
      class(operation_type), intent(in) :: self
      !> Of the numbers
      type(shape_type), intent(in) :: x
      !> Numbers of a row
      integer, intent(in) :: width
      !> With one dimension more
      type(shape_type), intent(out) :: y
      !> No images, or no room for it
      type(error_type), allocatable, intent(out) :: error
      if (x%rank < 1 .or. x%rank >= max_rank) then
         call self%refuse("input "//x%text(), "1 to "//to_text(max_rank - 1)//" dimensions", error)
      else
         y = shape_of([width, x%extent(:x%rank)])
      end if
   end subroutine rows_shape

   subroutine embedding_forward(self, backend, operands, error)
      class(embedding_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x and the table
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call gather(self, backend, operands%x(1), tables(operands%w(1), 1), operands%y, error)
   end subroutine embedding_forward

   !> The rows that numbers choose
   subroutine gather(self, backend, x, w, y, error)
      class(operation_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> The numbers
      type(tensor_type), intent(in) :: x
      !> Tables (width, rows, tables)
      type(tensor_type), intent(in) :: w
      !> Is overwritten
      type(tensor_type), intent(in) :: y
      !> A number that is no row's; on a device, which does not wait for it, such a row is NaN
      type(error_type), allocatable, intent(out) :: error
      real(sp), pointer, contiguous :: narrow(:)
      real(dp), pointer, contiguous :: wide(:)
      integer(i8) :: wrong
      if (backend%in_host_memory) then
         if (x%dtype == dtype_float64) then
            call as_vector(x, wide)
            wrong = first_wrong(wide, w%extent(2))
            if (wrong > 0) call refuse_number(self, wide(wrong), wrong, w%extent(2), error)
         else
            call as_vector(x, narrow)
            wrong = first_wrong(real(narrow, dp), w%extent(2))
            if (wrong > 0) call refuse_number(self, real(narrow(wrong), dp), wrong, w%extent(2), error)
         end if
      end if
      if (.not. allocated(error)) call self%run(backend, gather_rows_call(x, w, y), error)
   end subroutine gather

   !> Which number is no row's, the first of them; 0: none
   pure integer(i8) function first_wrong(x, rows)
      !> All of them
      real(dp), intent(in) :: x(:)
      !> Of the table
      integer, intent(in) :: rows
      integer(i8) :: i
      first_wrong = 0
      do i = 1, size(x, kind=i8)
         if (x(i) >= 0.0_dp .and. x(i) < rows .and. .not. x(i) > aint(x(i))) cycle
         first_wrong = i
         return
      end do
   end function first_wrong

   !> The error of a number that is no row's
   subroutine refuse_number(self, x, place, rows, error)
      class(operation_type), intent(in) :: self
      !> The number
      real(dp), intent(in) :: x
      !> Where it is, from 1
      integer(i8), intent(in) :: place
      !> Of the table
      integer, intent(in) :: rows
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: found
      found = to_text(x)
      if (abs(x) < largest) then
         if (.not. abs(x - anint(x)) > 0.0_dp) found = to_text(nint(x))
      end if
      call self%refuse("number "//to_text(place)//" of its input is "//found, &
         & "a whole number from 0 to "//to_text(rows - 1), error)
   end subroutine refuse_number

   !> The numbers have no gradient
   subroutine embedding_backward(self, backend, operands, error)
      class(embedding_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dw from x and dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      if (operands%dx(1)%is_allocated()) call backend%clear(operands%dx(1), error)
      if (.not. allocated(error)) call self%run(backend, gather_rows_backward_call(operands%x(1), operands%dy, &
         & self%padding_idx, tables(operands%dw(1), 1)), error)
   end subroutine embedding_backward

   !> Rows as those of a number of tables
   pure type(tensor_type) function tables(rows, count)
      !> (width, rows) or (width, rows, tables)
      type(tensor_type), intent(in) :: rows
      !> How many tables
      integer, intent(in) :: count
      tables = rows
      tables%extent = extent_of([rows%extent(:2), count])
   end function tables

   subroutine gather_read(self, given, error)
      class(gather_rows_type), intent(inout) :: self
      !> padding_idx
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_index("padding_idx", self%padding_idx, error, -1)
   end subroutine gather_read

   subroutine gather_shape(self, shapes, y, error)
      class(gather_rows_type), intent(in) :: self
      !> Of the tables (n, rows, width), and of the numbers (n, ...)
      type(shape_type), intent(in) :: shapes(:)
      !> (n, ..., width)
      type(shape_type), intent(out) :: y
      !> Other tables, or other images
      type(error_type), allocatable, intent(out) :: error
      associate (w => shapes(1), x => shapes(2))
         if (w%rank /= 3) then
            call self%refuse("tables "//w%text(), "a shape (n, rows, numbers of a row)", error)
            return
         end if
         call rows_shape(self, x, w%extent(1), y, error)
         if (allocated(error)) return
         if (x%extent(x%rank) /= w%extent(3)) then
            call self%refuse("tables "//w%text()//" and numbers "//x%text(), "as many images", error)
         else
            call check_row(self, self%padding_idx, w%extent(2), error)
         end if
      end associate
   end subroutine gather_shape

   subroutine gather_forward(self, backend, operands, error)
      class(gather_rows_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from the tables and the numbers
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call gather(self, backend, operands%x(2), operands%x(1), operands%y, error)
   end subroutine gather_forward

   subroutine gather_backward(self, backend, operands, error)
      class(gather_rows_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from the numbers and dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      call backend%clear(operands%dx(2), error)
      if (.not. allocated(error)) call self%run(backend, gather_rows_backward_call(operands%x(2), operands%dy, &
         & self%padding_idx, operands%dx(1)), error)
   end subroutine gather_backward

end module cnn_operations_stored
