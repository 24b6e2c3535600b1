! SPDX-License-Identifier: MIT
!> The graphs of a training step: what is computed in one plan, in which layout and types.
!>
!>     call build_graph(request, builder, handle, address)
!>
!> Types.   Tensors in memory are of the request's type; sums, and what lies between two operations, are float32, or
!>          float64 with float64 tensors.
!> Source.  cuDNN 9 developer guide, graph API: supported graph patterns.
module cnn_cuda_plans_graph
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr
   use cnn_cuda_bindings_cudnn_types, only : compute_type, cudnn_dtype
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_graph_operations, only : add_operation, convolution_description, convolution_operation, &
      & operation_graph, reduction_operation, relu_backward_operation, relu_operation, tensor
   use cnn_cuda_plans_request, only : conv_bias, conv_data, conv_filter, conv_forward, conv_request_type
   implicit none
   private

   public :: build_graph, graph_ids

   !> Names in the variant pack; x is dx in data gradients, w is dw in filter gradients and db in bias gradients
   integer, parameter, public :: id_x = 1, id_w = 2, id_y = 3, id_bias = 4, id_mask = 5
   !> Tensors that are never in memory
   integer, parameter :: id_first_virtual = 6

contains

   !> The operation graph, not yet a plan; the builder's error says whether it stands
   subroutine build_graph(request, builder, handle, address)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: builder
      !> Handle of cuDNN, or null when only a description of the GPU is there
      type(c_ptr), intent(in) :: handle
      !> The finalized graph; null after an error
      type(c_ptr), intent(out) :: address
      type(c_ptr) :: operations(3)
      integer :: last
      select case (request%operation)
       case (conv_forward)
         call build_forward(request, builder, operations, last)
       case (conv_data)
         call build_data(request, builder, operations, last)
       case (conv_filter)
         call build_filter(request, builder, operations, last)
       case default
         call build_bias(request, builder, operations, last)
      end select
      address = operation_graph(builder, handle, operations(:last))
   end subroutine build_graph

   !> The names of the tensors in memory, in the order x, w, y, bias or mask, as far as the request has them
   pure function graph_ids(request) result(ids)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      integer, allocatable :: ids(:)
      ids = [id_x, id_w, id_y]
      if (request%operation == conv_bias) ids = [id_w, id_y]
      if (request%bias) ids = [ids, id_bias]
      if (request%mask) ids = [ids, id_mask]
   end function graph_ids

   subroutine build_forward(request, b, operations, last)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Descriptors of the operations, in order
      type(c_ptr), intent(out) :: operations(:)
      !> How many there are
      integer, intent(out) :: last
      type(c_ptr) :: x, w, from, to, bias, conv
      integer :: i
      integer(c_int) :: compute

      compute = compute_type(request%dtype)
      last = 1 + count([request%bias, request%relu])
      x = stored(request, b, "x", id_x, request%x)
      w = stored(request, b, "w", id_w, request%w)
      conv = convolution_description(b, request%conv, compute)
      to = step_result(1)
      operations(1) = convolution_operation(b, conv_forward, conv, compute, x, w, to)
      i = 1
      if (request%bias) then
         i = i + 1
         bias = stored(request, b, "bias", id_bias, [1, 1, request%y(3), 1])
         from = to
         to = step_result(i)
         operations(i) = add_operation(b, compute, from, bias, to)
      end if
      if (request%relu) then
         i = i + 1
         from = to
         to = step_result(i)
         operations(i) = relu_operation(b, compute, from, to)
      end if

   contains

      !> In memory after the last operation only
      function step_result(number) result(it)
         !> Number of the operation, from 1
         integer, intent(in) :: number
         type(c_ptr) :: it
         if (number == last) then
            it = stored(request, b, "y", id_y, request%y)
         else
            it = between(request, b, id_first_virtual + number, request%y)
         end if
      end function step_result

   end subroutine build_forward

   subroutine build_data(request, b, operations, last)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Descriptors of the operations, in order
      type(c_ptr), intent(out) :: operations(:)
      !> How many there are
      integer, intent(out) :: last
      type(c_ptr) :: dx, w, dy, mask, unmasked, conv
      integer(c_int) :: compute

      compute = compute_type(request%dtype)
      dx = stored(request, b, "dx", id_x, request%x)
      w = stored(request, b, "w", id_w, request%w)
      dy = stored(request, b, "dy", id_y, request%y)
      conv = convolution_description(b, request%conv, compute)
      if (.not. request%mask) then
         operations(1) = convolution_operation(b, conv_data, conv, compute, dx, w, dy)
         last = 1
         return
      end if
      mask = stored(request, b, "mask", id_mask, request%x)
      unmasked = between(request, b, id_first_virtual, request%x)
      operations(1) = convolution_operation(b, conv_data, conv, compute, unmasked, w, dy)
      operations(2) = relu_backward_operation(b, compute, mask, unmasked, dx)
      last = 2
   end subroutine build_data

   subroutine build_filter(request, b, operations, last)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Descriptors of the operations, in order
      type(c_ptr), intent(out) :: operations(:)
      !> How many there are
      integer, intent(out) :: last
      type(c_ptr) :: x, dw, dy, conv
      integer(c_int) :: compute

      compute = compute_type(request%dtype)
      x = stored(request, b, "x", id_x, request%x)
      dw = stored(request, b, "dw", id_w, request%w)
      dy = stored(request, b, "dy", id_y, request%y)
      conv = convolution_description(b, request%conv, compute)
      operations(1) = convolution_operation(b, conv_filter, conv, compute, x, dw, dy)
      last = 1
   end subroutine build_filter

   subroutine build_bias(request, b, operations, last)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> Descriptors of the operations, in order
      type(c_ptr), intent(out) :: operations(:)
      !> How many there are
      integer, intent(out) :: last
      type(c_ptr) :: dy, db
      integer(c_int) :: compute

      compute = compute_type(request%dtype)
      dy = stored(request, b, "dy", id_y, request%y)
      db = tensor(b, "db", id_w, compute, [1, 1, request%y(3), 1], request%layout, .false.)
      operations(1) = reduction_operation(b, compute, dy, db)
      last = 1
   end subroutine build_bias

   !> A tensor in memory
   function stored(request, b, what, id, extent) result(it)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> For messages
      character(len=*), intent(in) :: what
      !> An `id_...`
      integer, intent(in) :: id
      !> Extents (w, h, c, n), of a filter (s, r, c/groups, k)
      integer, intent(in) :: extent(4)
      type(c_ptr) :: it
      it = tensor(b, what, id, cudnn_dtype(request%dtype), extent, request%layout, .false.)
   end function stored

   !> What one operation hands to the next, in the type of the sums
   function between(request, b, id, extent) result(it)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Where the descriptors are made, and errors are kept
      type(graph_builder_type), intent(inout) :: b
      !> `id_first_virtual`, or above
      integer, intent(in) :: id
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      type(c_ptr) :: it
      it = tensor(b, "between two operations", id, compute_type(request%dtype), extent, request%layout, .true.)
   end function between

end module cnn_cuda_plans_graph
