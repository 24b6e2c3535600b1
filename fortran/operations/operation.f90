! SPDX-License-Identifier: MIT
!> What an operation of a graph is: its hyperparameters, shapes, parameters, and its two passes.
!>
!> An operation is one extension of this type, and one row of cnn_operations_registry. It overrides what is not as here:
!> one input, no hyperparameters, no parameters, an output of the input's shape, a backward pass that reads everything.
module cnn_operations_operation
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : primitive_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : name_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_primitives, only : compute
   use cnn_operations_shape, only : shape_type
   implicit none
   private

   public :: no, two, yes

   !> In place of the slope of a ReLU, which is not negative
   real(dp), parameter, public :: no_slope = -1.0_dp


   !> The name of a parameter, or of state, in an exchange file, and its shape
   type, public :: parameter_shape_type
      character(len=12) :: name = ""
      type(shape_type) :: shape
   end type parameter_shape_type

   !> What a pass reads and writes: inputs, parameters and output, and the gradients of the loss with respect to them;
   !> and the state, which a forward pass may change
   type, public :: operands_type
      type(tensor_type), allocatable :: x(:), w(:), dx(:), dw(:), state(:)
      type(tensor_type) :: y, dy
      !> Of 0 and 1, of y's shape, where the operation takes one
      type(tensor_type) :: mask
      !> What a forward pass leaves for the backward pass, `kept_numbers` of float64
      type(tensor_type) :: kept
      !> Memory that a pass may write into, of `scratch_bytes`; others use it, too
      type(tensor_type) :: scratch
      !> Number of dimensions of the first input
      integer :: rank = 0
      !> Of a ReLU: where the sums of its dx over all but the channels go, the gradient of a bias; empty: nowhere
      type(tensor_type) :: db
   end type operands_type

   type, abstract, public :: operation_type
      !> The node's name, and its type in an exchange file
      character(len=:), allocatable :: name, kind
      !> Its hyperparameters, as they were given
      type(attributes_type), allocatable :: attributes
      !> Whose outputs it takes; `input` is the network's
      type(name_type), allocatable :: inputs(:)
      !> What it learns, in the order of `w`; not allocated where that is nothing
      type(parameter_shape_type), allocatable :: parameters(:)
      !> What it keeps from step to step and does not learn, in the order of an operand's; not allocated where nothing
      type(parameter_shape_type), allocatable :: state(:)
      !> Whether a forward pass changes that
      logical :: changes_state = .false.
      !> Whether it computes as it does after training, though it was made for training
      logical :: evaluates = .false.
      !> The factor of negative numbers, where it is a ReLU
      real(dp) :: relu_slope = no_slope
   contains
      procedure, nopass :: arity => one
      procedure, nopass :: has_mask => no
      procedure, nopass :: reads_x => yes
      procedure, nopass :: reads_y => yes
      procedure, nopass :: reads_x_first => no
      procedure, nopass :: works_in_place => no
      procedure, nopass :: is_light => no
      procedure, nopass :: joins_channels => no
      procedure, nopass :: leaves_out_dx => no
      procedure :: read => read_nothing
      procedure :: find_shape => same_as_input
      procedure :: kept_numbers => nothing_kept
      procedure :: scratch_bytes => no_scratch
      procedure(pass_), deferred :: forward
      procedure(pass_), deferred :: backward
      procedure :: refuse
      procedure :: run
      procedure :: name_node
   end type operation_type

   abstract interface
      !> Forward: y, and what is kept, from x, w and state. Backward: dx and dw from dy, x, w and what was kept. What is
      !> found is overwritten
      subroutine pass_(self, backend, operands, error)
         import :: backend_type, error_type, operands_type, operation_type
         implicit none
         class(operation_type), intent(in) :: self
         class(backend_type), intent(in) :: backend
         !> In the device's memory, of the shapes that follow from the inputs'
         type(operands_type), intent(in) :: operands
         type(error_type), allocatable, intent(out) :: error
      end subroutine pass_
   end interface

contains

   !> Number of inputs; 0: two or more
   pure integer function one()
      one = 1
   end function one

   !> For operations of two inputs
   pure integer function two()
      two = 2
   end function two

   !> Whether it takes a mask; whether its backward pass reads the inputs, and the output, and the inputs for the last
   !> time before it writes their gradients; whether the output may lie where the first input does, and the gradient of
   !> the first input where that of the output does; whether it does little beside moving numbers, image by image, so
   !> that the output is rather found again than kept; whether that is the inputs one behind the other in each image;
   !> whether its backward pass leaves out the gradient of an input for which there is no memory
   pure logical function no()
      no = .false.
   end function no

   !> The same
   pure logical function yes()
      yes = .true.
   end function yes

   !> Its hyperparameters, of which it has none: any is unknown
   subroutine read_nothing(self, given, error)
      class(operation_type), intent(inout) :: self
      !> What the file has of it
      type(attributes_type), intent(inout) :: given
      !> What is missing, unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      given%node = self%name
      call given%check_known(error)
   end subroutine read_nothing

   !> The shape of the output, which is the input's
   subroutine same_as_input(self, shapes, y, error)
      class(operation_type), intent(in) :: self
      !> Of its inputs
      type(shape_type), intent(in) :: shapes(:)
      !> Of its output
      type(shape_type), intent(out) :: y
      !> It cannot take them
      type(error_type), allocatable, intent(out) :: error
      y = shapes(1)
      if (y%rank < 1) call self%refuse("a scalar", "one dimension or more", error)
   end subroutine same_as_input

   !> How many numbers of its forward pass it keeps for the backward pass
   pure integer function nothing_kept(self)
      class(operation_type), intent(in) :: self
      associate (unused => self)
      end associate
      nothing_kept = 0
   end function nothing_kept

   !> How much memory its passes work in
   pure integer(i8) function no_scratch(self, in_host_memory, x, y)
      class(operation_type), intent(in) :: self
      !> Whether tensors are in host memory
      logical, intent(in) :: in_host_memory
      !> Its first input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Its output
      type(tensor_type), intent(in) :: y
      associate (unused => [self%changes_state, in_host_memory], unused_too => [x%dtype, y%dtype])
      end associate
      no_scratch = 0_i8
   end function no_scratch

   !> The error of a node that cannot be what it is asked to be
   subroutine refuse(self, found, expected, error)
      class(operation_type), intent(in) :: self
      !> What does not fit
      character(len=*), intent(in) :: found
      !> What would
      character(len=*), intent(in) :: expected
      !> Both
      type(error_type), allocatable, intent(out) :: error
      call fail(error, "layer "//self%name//" ("//self%kind//"): "//found//", expected "//expected)
   end subroutine refuse

   !> Run a primitive
   subroutine run(self, backend, primitive, error)
      class(operation_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Its tensors are in the device's memory
      class(primitive_type), intent(in) :: primitive
      !> Names the node
      type(error_type), allocatable, intent(out) :: error
      call compute(backend, primitive, error)
      call self%name_node(error)
   end subroutine run

   !> Say which node an error is of
   subroutine name_node(self, error)
      class(operation_type), intent(in) :: self
      !> The message is made longer, where there is one
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) error%message = "layer "//self%name//" ("//self%kind//"): "//error%message
   end subroutine name_node

end module cnn_operations_operation
