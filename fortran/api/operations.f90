! SPDX-License-Identifier: MIT
!> Single passes of operations of graphs, and of losses, on the caller's tensors: for benchmarks and tests.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_operations
   use, intrinsic :: iso_c_binding, only : c_double, c_f_pointer, c_int, c_int64_t
   use cnn_api_values, only : hand_over, pointer_to, tensor_at
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dtype_float64
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type, to_text
   use cnn_devices, only : open_device
   use cnn_operations_attributes, only : attributes_from, attributes_type
   use cnn_operations_loops_levels, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   use cnn_operations_losses, only : criterion_type
   use cnn_operations_operation, only : operands_type, operation_type
   use cnn_operations_registry, only : make_operation
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: operation_pass, loss_pass, accumulate_pass

   !> Numbers of a tensor in a table: address, rank, [w, h, c, n]
   integer, parameter :: columns = 6

contains

   !> A pass of an operation. The table has a row for each input, each gradient of an input, output, its gradient, mask,
   !> each parameter, each parameter's gradient, each number of the state, and, where a forward pass leaves numbers for
   !> the backward pass, those, float64, in this order
   subroutine operation_pass(device, kind, attributes, dtype, backward, inputs, rows, table, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Type of the operation in an exchange file
      character(len=*), intent(in) :: kind
      !> Its hyperparameters: `name=1,2` each, blanks between them
      character(len=*), intent(in) :: attributes
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> 1 for the backward pass, 0 for the forward pass
      integer(c_int), intent(in) :: backward
      !> Number of its inputs
      integer(c_int), intent(in) :: inputs
      !> Number of tensors
      integer(c_int), intent(in) :: rows
      !> Address of the table, int64: for each tensor its address (0: none), rank and extent
      integer(c_int64_t), intent(in) :: table
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      class(operation_type), allocatable :: operation
      type(operands_type) :: operands
      type(error_type), allocatable :: error
      call open_device(device, backend, error)
      if (.not. allocated(error)) call make_operation("operation", kind, operation, error)
      if (.not. allocated(error)) call prepare(operation, attributes, int(inputs), error)
      if (.not. allocated(error)) call find_operands(operation, int(dtype), int(inputs), int(rows), table, operands, &
         & error)
      if (.not. allocated(error)) then
         if (backward == 0) call operation%forward(backend, operands, error)
         if (backward /= 0) call operation%backward(backend, operands, error)
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine operation_pass

   !> A loss and its gradient with respect to the output
   subroutine loss_pass(device, kind, reduction, dtype, rank, extent, output, target, gradient, loss, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Type of the loss in an exchange file, with its settings
      character(len=*), intent(in) :: kind
      !> `mean` or `sum`
      character(len=*), intent(in) :: reduction
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Number of dimensions
      integer(c_int), intent(in) :: rank
      !> Of all three tensors, [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Address of the output
      integer(c_int64_t), intent(in) :: output
      !> Address of what it should be
      integer(c_int64_t), intent(in) :: target
      !> Address of the gradient
      integer(c_int64_t), intent(in) :: gradient
      !> The mean, or the sum
      real(c_double), intent(out) :: loss
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      class(backend_type), allocatable :: backend
      type(criterion_type) :: criterion
      type(error_type), allocatable :: error
      loss = 0.0_c_double
      call criterion%set(kind, reduction, error)
      if (.not. allocated(error)) call open_device(device, backend, error)
      if (.not. allocated(error)) call criterion%compute(backend, tensor_at(output, dtype, extent), &
         & tensor_at(target, dtype, extent), int(rank), tensor_at(gradient, dtype, extent), loss, error)
      if (allocated(backend) .and. .not. allocated(error)) then
         if (backend%queues) call backend%read_loss(loss, error)
      end if
      if (allocated(backend)) then
         call criterion%release(backend)
         ! The total of a loss, which backends keep from loss to loss
         call backend%close()
      end if
      call hand_over(error, ierr, errmsg)
   end subroutine loss_pass

   !> y = y + x in host memory, as graphs add up gradients
   subroutine accumulate_pass(dtype, extent, x, y, ierr, errmsg)
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Of both tensors, [w, h, c, n]
      integer(c_int), intent(in) :: extent(4)
      !> Address of what is added
      integer(c_int64_t), intent(in) :: x
      !> Address of what it is added to
      integer(c_int64_t), intent(in) :: y
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      type(loops_type) :: loops
      loops = loops_of(int(dtype))
      call loops%accumulate(tensor_at(x, dtype, extent), tensor_at(y, dtype, extent))
      call hand_over(error, ierr, errmsg)
   end subroutine accumulate_pass

   !> Hyperparameters and names of inputs
   subroutine prepare(operation, text, inputs, error)
      !> A new operation
      class(operation_type), intent(inout) :: operation
      !> `name=1,2` each, blanks between them
      character(len=*), intent(in) :: text
      !> Number of its inputs
      integer, intent(in) :: inputs
      !> What is missing, unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      type(attributes_type) :: given
      given = attributes_from(text)
      given%node = operation%name
      allocate (operation%inputs(inputs), source=name_type("input"))
      call operation%read(given, error)
      if (allocated(error)) return
      call given%check_known(error)
      if (.not. allocated(operation%parameters)) allocate (operation%parameters(0))
      if (.not. allocated(operation%state)) allocate (operation%state(0))
   end subroutine prepare

   !> The tensors of a table
   subroutine find_operands(operation, dtype, inputs, rows, table, operands, error)
      !> With its hyperparameters
      class(operation_type), intent(in) :: operation
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Number of its inputs
      integer, intent(in) :: inputs
      !> Number of tensors
      integer, intent(in) :: rows
      !> Address of the table
      integer(c_int64_t), intent(in) :: table
      !> All of them
      type(operands_type), intent(out) :: operands
      !> Another number of tensors, or an output of another shape
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), pointer, contiguous :: numbers(:, :)
      type(tensor_type) :: tensors(rows)
      type(shape_type) :: shapes(inputs), y
      integer :: i, parameters, behind, last
      parameters = size(operation%parameters)
      behind = 2*inputs + 3
      last = behind + 2*parameters + size(operation%state)
      if (rows /= last + merge(1, 0, operation%kept_numbers() > 0)) then
         call fail(error, "operation "//operation%kind//": another number of tensors than it takes")
         return
      end if
      call c_f_pointer(pointer_to(table), numbers, [columns, rows])
      do i = 1, rows
         tensors(i) = tensor_at(numbers(1, i), int(dtype, c_int), int(numbers(3:, i)))
      end do
      do i = 1, inputs
         shapes(i) = shape_of(int(numbers(3:2 + numbers(2, i), i)))
      end do
      call operation%find_shape(shapes, y, error)
      if (allocated(error)) return
      operands%rank = int(numbers(2, 1))
      operands%x = tensors(:inputs)
      operands%dx = tensors(inputs + 1:2*inputs)
      operands%y = tensors(2*inputs + 1)
      operands%dy = tensors(2*inputs + 2)
      operands%mask = tensors(behind)
      operands%w = tensors(behind + 1:behind + parameters)
      operands%dw = tensors(behind + parameters + 1:behind + 2*parameters)
      operands%state = tensors(behind + 2*parameters + 1:last)
      if (rows > last) then
         operands%kept = tensors(rows)
         operands%kept%dtype = dtype_float64
         if (operands%kept%count() /= operation%kept_numbers()) then
            call fail(error, "operation "//operation%kind//": "//to_text(operands%kept%count())// &
               & " numbers to keep, expected "//to_text(operation%kept_numbers()))
            return
         end if
      end if
      if (any(operands%y%extent /= y%extent)) call fail(error, "operation "//operation%kind//": its output has the "// &
         & "shape "//y%text()//", and no other")
   end subroutine find_operands

end module cnn_api_operations
