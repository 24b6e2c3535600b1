! SPDX-License-Identifier: MIT
!> The graphs of a training step: what is computed in one plan, for which shapes, in which layout and types.
!>
!>     graph%operation = conv_forward
!>     graph%relu = .true.
!>     ...
!>     call build(graph, builder, address)
!>
!> forward    y = conv(x, w), then + bias, then max(., 0)
!> data       dx from w and dy, then 0 where the mask is not positive: the gradient before the ReLU that gave the mask
!> filter     dw from x and dy
!> bias       db = sums of dy over n, h, w
!> Types.  Tensors in memory are of `dtype`; sums, bias and what lies between two operations are float32, or float64
!>         with float64 tensors.
!> Source.  cuDNN 9 developer guide, graph API: supported graph patterns.
module cnn_conv_graph
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr
   use cnn_conv_geometry, only : conv_type
   use cnn_conv_plan, only : compute_type, conv_data, conv_filter, conv_forward, cudnn_dtype
   use cnn_graph_builder, only : graph_builder_type
   use cnn_graph_operations, only : add_operation, convolution_description, data_operation, filter_operation, &
      & forward_operation, layout_nchw, operation_graph, reduction_operation, relu_backward_operation, &
      & relu_operation, tensor
   implicit none
   private

   public :: build_graph

   !> The operation that is no convolution, after those of cnn_conv_plan
   integer, parameter, public :: conv_bias = 4

   !> Names in the variant pack; x is dx in data gradients, w is dw in filter gradients and db in bias gradients
   integer, parameter, public :: id_x = 1, id_w = 2, id_y = 3, id_bias = 4, id_mask = 5
   !> Tensors that are never in memory
   integer, parameter :: id_first_virtual = 6

   type, public :: conv_graph_type
      integer :: operation = conv_forward
      integer :: dtype = 0
      integer :: layout = layout_nchw
      !> Of a forward convolution
      logical :: bias = .false., relu = .false.
      !> Of a data gradient
      logical :: mask = .false.
      type(conv_type) :: conv
      !> Extents [w, h, c, n]; of w [s, r, c, k], of db [1, 1, k, 1]
      integer :: x(4) = 0, w(4) = 0, y(4) = 0
   end type conv_graph_type

contains

   !> The operation graph, not yet a plan; the builder's error says whether it stands
   subroutine build_graph(graph, builder, address)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: builder
      type(c_ptr), intent(out) :: address
      select case (graph%operation)
       case (conv_forward)
         call build_forward(graph, builder, address)
       case (conv_data)
         call build_data(graph, builder, address)
       case (conv_filter)
         call build_filter(graph, builder, address)
       case default
         call build_bias(graph, builder, address)
      end select
   end subroutine build_graph

   subroutine build_forward(graph, b, address)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      type(c_ptr), intent(out) :: address
      type(c_ptr) :: x, w, from, to, bias, conv, operations(3)
      integer :: i, last
      integer(c_int) :: compute

      compute = compute_type(graph%dtype)
      last = 1 + count([graph%bias, graph%relu])
      x = stored(graph, b, "x", id_x, graph%x)
      w = stored(graph, b, "w", id_w, graph%w)
      conv = convolution_description(b, graph%conv, compute)
      to = step_result(1)
      operations(1) = forward_operation(b, conv, compute, x, w, to)
      i = 1
      if (graph%bias) then
         i = i + 1
         bias = stored(graph, b, "bias", id_bias, [1, 1, graph%y(3), 1])
         from = to
         to = step_result(i)
         operations(i) = add_operation(b, compute, from, bias, to)
      end if
      if (graph%relu) then
         i = i + 1
         from = to
         to = step_result(i)
         operations(i) = relu_operation(b, compute, from, to)
      end if
      address = operation_graph(b, operations(:last))

   contains

      !> In memory after the last operation only
      function step_result(number) result(it)
         integer, intent(in) :: number
         type(c_ptr) :: it
         if (number == last) then
            it = stored(graph, b, "y", id_y, graph%y)
         else
            it = between(graph, b, id_first_virtual + number, graph%y)
         end if
      end function step_result

   end subroutine build_forward

   subroutine build_data(graph, b, address)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      type(c_ptr), intent(out) :: address
      type(c_ptr) :: dx, w, dy, mask, unmasked, conv, operations(2)
      integer(c_int) :: compute

      compute = compute_type(graph%dtype)
      dx = stored(graph, b, "dx", id_x, graph%x)
      w = stored(graph, b, "w", id_w, graph%w)
      dy = stored(graph, b, "dy", id_y, graph%y)
      conv = convolution_description(b, graph%conv, compute)
      if (.not. graph%mask) then
         operations(1) = data_operation(b, conv, compute, dx, w, dy)
         address = operation_graph(b, operations(:1))
         return
      end if
      mask = stored(graph, b, "mask", id_mask, graph%x)
      unmasked = between(graph, b, id_first_virtual, graph%x)
      operations(1) = data_operation(b, conv, compute, unmasked, w, dy)
      operations(2) = relu_backward_operation(b, compute, mask, unmasked, dx)
      address = operation_graph(b, operations)
   end subroutine build_data

   subroutine build_filter(graph, b, address)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      type(c_ptr), intent(out) :: address
      type(c_ptr) :: x, dw, dy, conv, operations(1)
      integer(c_int) :: compute

      compute = compute_type(graph%dtype)
      x = stored(graph, b, "x", id_x, graph%x)
      dw = stored(graph, b, "dw", id_w, graph%w)
      dy = stored(graph, b, "dy", id_y, graph%y)
      conv = convolution_description(b, graph%conv, compute)
      operations(1) = filter_operation(b, conv, compute, x, dw, dy)
      address = operation_graph(b, operations)
   end subroutine build_filter

   subroutine build_bias(graph, b, address)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      type(c_ptr), intent(out) :: address
      type(c_ptr) :: dy, db, operations(1)
      integer(c_int) :: compute

      compute = compute_type(graph%dtype)
      dy = stored(graph, b, "dy", id_y, graph%y)
      db = tensor(b, "db", id_w, compute, [1, 1, graph%y(3), 1], graph%layout, .false.)
      operations(1) = reduction_operation(b, compute, dy, db)
      address = operation_graph(b, operations)
   end subroutine build_bias

   !> A tensor in memory
   function stored(graph, b, what, id, extent) result(it)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      character(len=*), intent(in) :: what
      integer, intent(in) :: id, extent(4)
      type(c_ptr) :: it
      it = tensor(b, what, id, cudnn_dtype(graph%dtype), extent, graph%layout, .false.)
   end function stored

   !> What one operation hands to the next, in the type of the sums
   function between(graph, b, id, extent) result(it)
      type(conv_graph_type), intent(in) :: graph
      type(graph_builder_type), intent(inout) :: b
      integer, intent(in) :: id, extent(4)
      type(c_ptr) :: it
      it = tensor(b, "between two operations", id, compute_type(graph%dtype), extent, graph%layout, .true.)
   end function between

end module cnn_conv_graph
