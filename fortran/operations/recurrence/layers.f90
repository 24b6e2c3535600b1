! SPDX-License-Identifier: MIT
!> Recurrent layers: what they make of their input, and of their output at the time before.
!>
!> The input z(gates*n, times, images) is what a linear layer makes of torch's input, with its weight_ih and bias_ih;
!> weight and bias are weight_hh and bias_hh. A time is a product with the output before, for all images, and a
!> primitive for the rest. The forward pass keeps nothing: the backward pass finds all products again, in one product of
!> all times, and the gates from these.
module cnn_operations_recurrence_layers
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : gru_cell_backward_call, gru_cell_call, lstm_cell_backward_call, lstm_cell_call, &
      & lstm_gates_call, primitive_type, rnn_cell_backward_call, rnn_cell_call, times_before_call
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : part_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : operands_type, operation_type, parameter_shape_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> Most parts of the memory that passes work in, and bytes of which each begins with a multiple: cuDNN wants 16
   integer(i8), parameter :: parts = 6, line = 64
   integer, parameter, public :: cell_rnn = 1, cell_gru = 2, cell_lstm = 3

   !> One direction of one layer
   type, extends(operation_type), public :: recurrent_type
      !> Which cell, and how many gates it has
      integer :: cell = cell_rnn, gates = 1
      !> Numbers of an output
      integer :: hidden_size = 1
      !> Of weight
      logical :: has_bias = .true.
      !> Whether the last time comes first
      logical :: reverse = .false.
      !> Of a plain cell, in the place of the tangent
      logical :: is_relu = .false.
   contains
      procedure :: read => recurrent_read
      procedure :: find_shape => recurrent_shape
      procedure :: scratch_bytes => recurrent_scratch
      procedure :: forward => recurrent_forward
      procedure :: backward => recurrent_backward
      procedure, private :: time_at, bias_of
      procedure, private :: find_products, cell_forward, cell_backward
   end type recurrent_type

   !> What passes work in: numbers of all times, and of one
   type :: work_type
      !> Outputs before, states, products with the weights, of all times
      type(tensor_type) :: before, states, products
      !> Products with the weights of one time, which may be their gradients; state and output, or gradients of them
      type(tensor_type) :: gates, state, output
   end type work_type

contains

   subroutine recurrent_read(self, given, error)
      class(recurrent_type), intent(inout) :: self
      !> hidden_size, bias, reverse, relu
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("hidden_size", self%hidden_size, error)
      if (.not. allocated(error)) call given%get_flag("bias", self%has_bias, error, .true.)
      if (.not. allocated(error)) call given%get_flag("reverse", self%reverse, error, .false.)
      if (.not. allocated(error) .and. self%cell == cell_rnn) call given%get_flag("relu", self%is_relu, error, .false.)
      if (allocated(error)) return
      associate (n => self%hidden_size, all_gates => self%gates*real(self%hidden_size, dp))
         if (all_gates*n > huge(1)) then
            call self%refuse("hidden_size "//to_text(n), "fewer than 2**31 weights", error)
            return
         end if
         self%parameters = [parameter_shape_type("weight", shape_of([n, self%gates*n]))]
         if (self%has_bias) self%parameters = [self%parameters, parameter_shape_type("bias", shape_of([self%gates*n]))]
      end associate
   end subroutine recurrent_read

   subroutine recurrent_shape(self, shapes, y, error)
      class(recurrent_type), intent(in) :: self
      !> Of its input, (n, times, gates*hidden_size)
      type(shape_type), intent(in) :: shapes(:)
      !> (n, times, hidden_size)
      type(shape_type), intent(out) :: y
      !> Another rank, or another number of gates
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (y%rank /= 3 .or. y%extent(1) /= self%gates*self%hidden_size) then
         call self%refuse("input "//y%text(), "a shape (n, times, "//to_text(self%gates*self%hidden_size)//")", error)
         return
      end if
      y%extent(1) = self%hidden_size
   end subroutine recurrent_shape

   pure integer(i8) function recurrent_scratch(self, in_host_memory, x, y)
      class(recurrent_type), intent(in) :: self
      !> Whether tensors are in host memory
      logical, intent(in) :: in_host_memory
      !> Its input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Its output
      type(tensor_type), intent(in) :: y
      integer(i8) :: of_all
      associate (unused => in_host_memory)
      end associate
      of_all = y%count()
      if (self%cell == cell_lstm) of_all = of_all + y%count()
      if (self%cell == cell_gru) of_all = of_all + x%count()
      recurrent_scratch = bytes_of(x%dtype)*(of_all + (x%count() + 2*y%count())/y%extent(2)) + parts*line
   end function recurrent_scratch

   !> Parts of the memory that a pass may write into
   function work_in(self, operands) result(work)
      class(recurrent_type), intent(in) :: self
      !> Of the pass
      type(operands_type), intent(in) :: operands
      type(work_type) :: work
      integer(i8) :: at
      integer :: x(3), y(3)
      at = 0_i8
      x = operands%x(1)%extent(:3)
      y = operands%y%extent(:3)
      call take(work%gates, x([1, 3]))
      call take(work%state, y([1, 3]))
      call take(work%output, y([1, 3]))
      call take(work%before, y)
      if (self%cell == cell_lstm) call take(work%states, y)
      if (self%cell == cell_gru) call take(work%products, x)

   contains

      !> The next one
      subroutine take(part, extent)
         !> Is found
         type(tensor_type), intent(out) :: part
         !> Of it
         integer, intent(in) :: extent(:)
         part = part_of(operands%scratch, at, extent)
         part%dtype = operands%y%dtype
         at = at + (bytes_of(part%dtype)*product(int(extent, i8)) + line - 1_i8)/line*line
      end subroutine take
   end function work_in

   !> The time that comes as number k
   pure integer function time_at(self, k, times)
      class(recurrent_type), intent(in) :: self
      !> From 1 on; of 0 there is none
      integer, intent(in) :: k
      !> How many there are
      integer, intent(in) :: times
      time_at = merge(times + 1 - k, k, self%reverse .and. k > 0)
   end function time_at

   !> Shifts of the gates, or nothing
   type(tensor_type) function bias_of(self, w)
      class(recurrent_type), intent(in) :: self
      !> Its parameters
      type(tensor_type), intent(in) :: w(:)
      if (self%has_bias) bias_of = w(2)
   end function bias_of

   subroutine recurrent_forward(self, backend, operands, error)
      class(recurrent_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      integer :: k, times
      work = work_in(self, operands)
      times = operands%y%extent(2)
      do k = 1, times
         if (k > 1) call self%find_products(backend, operands%w(1), work%output, work%gates, error)
         if (.not. allocated(error)) call self%cell_forward(backend, operands, work, k, error)
         if (allocated(error)) exit
      end do
   end subroutine recurrent_forward

   !> The output before times the weights
   subroutine find_products(self, backend, w, h, products, error)
      class(recurrent_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Weights
      type(tensor_type), intent(in) :: w
      !> Outputs, in Fortran's first axis
      type(tensor_type), intent(in) :: h
      !> Of all gates, are overwritten
      type(tensor_type), intent(in) :: products
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: step
      step%x = as_pixels(h)
      step%w = as_kernels(w)
      step%y = as_pixels(products)
      call backend%conv_forward(step, error)
      call self%name_node(error)
   end subroutine find_products

   !> A time of the forward pass
   subroutine cell_forward(self, backend, operands, work, k, error)
      class(recurrent_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Of the pass
      type(operands_type), intent(in) :: operands
      !> Products of this time are in `gates`
      type(work_type), intent(in) :: work
      !> Number of the time
      integer, intent(in) :: k
      type(error_type), allocatable, intent(out) :: error
      class(primitive_type), allocatable :: cell
      type(tensor_type) :: bias
      integer :: time
      bias = self%bias_of(operands%w)
      time = self%time_at(k, operands%y%extent(2))
      associate (z => operands%x(1), y => operands%y)
         select case (self%cell)
          case (cell_lstm)
            cell = lstm_cell_call(z, work%gates, bias, time, k == 1, y, work%state, work%output)
          case (cell_gru)
            cell = gru_cell_call(z, work%gates, bias, time, k == 1, y, work%output)
          case default
            cell = rnn_cell_call(z, work%gates, bias, self%is_relu, time, k == 1, y, work%output)
         end select
      end associate
      call self%run(backend, cell, error)
   end subroutine cell_forward

   subroutine recurrent_backward(self, backend, operands, error)
      class(recurrent_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x, y and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(work_type) :: work
      type(tensor_type) :: products
      integer :: k
      work = work_in(self, operands)
      associate (to => operands, dz => operands%dx(1))
         products = dz
         if (self%cell == cell_gru) products = work%products
         call self%run(backend, times_before_call(to%y, merge(-1, 1, self%reverse), work%before), error)
         if (.not. allocated(error) .and. self%cell /= cell_rnn) call self%find_products(backend, to%w(1), &
            & work%before, products, error)
         if (.not. allocated(error) .and. self%cell == cell_lstm) call self%run(backend, lstm_gates_call(to%x(1), &
            & self%bias_of(to%w), self%reverse, dz, work%states, work%state), error)
         do k = to%y%extent(2), 1, -1
            if (.not. allocated(error)) call self%cell_backward(backend, operands, work, k, error)
            if (.not. allocated(error) .and. k > 1) call backend%conv_backward_data(conv_type(), as_kernels(to%w(1)), &
               & as_pixels(work%gates), as_pixels(work%output), error)
            if (allocated(error)) return
         end do
         call backend%conv_backward_filter(conv_type(), as_pixels(work%before), as_pixels(products), &
            & as_kernels(to%dw(1)), error)
         if (.not. allocated(error) .and. self%has_bias) call backend%conv_backward_bias(as_pixels(products), &
            & to%dw(2), error)
      end associate
      call self%name_node(error)
   end subroutine recurrent_backward

   !> A time of the backward pass
   subroutine cell_backward(self, backend, operands, work, k, error)
      class(recurrent_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Of the pass
      type(operands_type), intent(in) :: operands
      !> What comes from the next time is in `output` and `state`
      type(work_type), intent(in) :: work
      !> Number of the time
      integer, intent(in) :: k
      type(error_type), allocatable, intent(out) :: error
      class(primitive_type), allocatable :: cell
      integer :: time, times
      logical :: is_last
      times = operands%y%extent(2)
      time = self%time_at(k, times)
      is_last = k == times
      associate (to => operands, dz => operands%dx(1))
         select case (self%cell)
          case (cell_lstm)
            cell = lstm_cell_backward_call(work%states, to%dy, work%output, time, self%time_at(k - 1, times), is_last, &
               & dz, work%gates, work%state)
          case (cell_gru)
            cell = gru_cell_backward_call(to%x(1), self%bias_of(to%w), work%before, to%dy, work%output, time, is_last, &
               & work%products, dz, work%gates, work%state)
          case default
            cell = rnn_cell_backward_call(to%y, to%dy, work%output, self%is_relu, time, is_last, dz, work%gates)
         end select
      end associate
      call self%run(backend, cell, error)
   end subroutine cell_backward

   !> Rows of numbers as images of one pixel, whose channels they are
   type(tensor_type) function as_pixels(tensor)
      !> Numbers in Fortran's first axis
      type(tensor_type), intent(in) :: tensor
      as_pixels = part_of(tensor, 0_i8, [1, 1, tensor%extent(1), product(tensor%extent(2:))])
   end function as_pixels

   !> Weights (in, out) as kernels of one tap
   type(tensor_type) function as_kernels(tensor)
      !> A matrix
      type(tensor_type), intent(in) :: tensor
      as_kernels = part_of(tensor, 0_i8, [1, 1, tensor%extent(:2)])
   end function as_kernels

end module cnn_operations_recurrence_layers
