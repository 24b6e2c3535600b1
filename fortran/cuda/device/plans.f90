! SPDX-License-Identifier: MIT
!> The plans of a device: found again by what was asked for, or made when it is the first time.
!>
!> A plan of the graph API is taken where cuDNN has one that the options allow. Else, and where the graph API fails, it
!> is one of the convolution calls, which know convolutions, and forward ones with bias and ReLU; for other fusions
!> there is none.
module cnn_cuda_device_plans
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, i8
   use cnn_core_tensor, only : address_after, aligned, shape_text
   use cnn_cuda_device_plan_timing, only : find_fastest
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_algorithm, only : choose_algorithm
   use cnn_cuda_plans_convolution, only : conv_plan_type, free_plan, make_plan
   use cnn_cuda_plans_graph, only : graph_ids
   use cnn_cuda_plans_graph_plan, only : free_graph_plan, graph_plan_type
   use cnn_cuda_plans_graph_search, only : find_graph_plans
   use cnn_cuda_plans_request, only : conv_bias, conv_request_type, layout_nchw, request_key
   implicit none
   private

   public :: find_plan

   !> Plans of a graph that are measured: cuDNN offers the best first
   integer, parameter :: most_measured = 12

contains

   !> The number of the plan for a request; 0 when there is none, which for a convolution alone is an error
   subroutine find_plan(device, name, request, i, error)
      !> An entered device, which keeps the plans
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Number of the plan in `device%plans`
      integer, intent(out) :: i
      !> A convolution that cuDNN has no plan for, or an error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: failure
      type(conv_plan_type) :: plan
      integer :: known

      plan%key = request_key(request, name)
      do known = 1, device%plan_count
         if (any(device%plans(known)%key /= plan%key)) cycle
         i = merge(known, 0, device%plans(known)%exists)
         return
      end do
      i = 0
      if (name%graphs) call choose_graph(device, name, request, plan, failure)
      plan%exists = c_associated(plan%graph%address)
      if (.not. plan%exists .and. has_call(request)) then
         call choose_call(device, name, request, plan, error)
         plan%exists = .true.
      end if
      if (allocated(error)) then
         ! Of an error of the graph API alone nobody is told: the calls remain, or the parts of what was fused
         if (allocated(failure)) error%message = error%message//"; before it "//failure%message
         error%message = error%message//"; input "//shape_text(request%x)//", weight "//shape_text(request%w)
         call free_plan(plan, device%dnn, device%graphs)
         return
      end if
      call keep_plan(device, plan)
      i = merge(device%plan_count, 0, plan%exists)
   end subroutine find_plan

   !> The first plan of the graph API that is offered, or the fastest of several, which are measured; null when there is
   !> none, or an error kept cuDNN from giving or running any
   subroutine choose_graph(device, name, request, plan, error)
      !> An entered device, which keeps the plans
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> A plan, whose graph plan is set, where there is one
      type(conv_plan_type), intent(inout) :: plan
      !> Why no plan could be made or run
      type(error_type), allocatable, intent(out) :: error
      type(graph_plan_type), allocatable :: plans(:)
      integer(c_int) :: status
      integer :: i, best

      call find_graph_plans(device%graphs, device%dnn_handle, c_null_ptr, name, request, &
         & merge(most_measured, 1, name%measured), plans, error)
      best = 0
      if (size(plans) > 1) call find_fastest(device, request, plans, graph_ids(request), best, error)
      ! One alone, or no room to try them: then what cuDNN expects to be the best
      if (best == 0 .and. .not. allocated(error)) best = min(1, size(plans))
      do i = 1, size(plans)
         if (i == best) cycle
         call free_graph_plan(device%graphs, plans(i))
      end do
      if (best > 0) plan%graph = plans(best)
      ! Plans that could not be made may leave an error to the next of the thread that asks
      if (best == 0) status = device%rt%get_last_error()
   end subroutine choose_graph

   !> Whether one of cuDNN's convolution calls does it
   pure logical function has_call(request)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      has_call = request%operation /= conv_bias .and. request%layout == layout_nchw .and. .not. request%mask .and. &
         & (request%bias .eqv. request%relu)
   end function has_call

   !> Descriptors and the algorithm; measuring needs memory for tensors, which may have none yet, and for the workspace
   subroutine choose_call(device, name, request, plan, error)
      !> An entered device, which keeps the plans
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> A plan whose descriptors, algorithm and workspace are set
      type(conv_plan_type), intent(inout) :: plan
      !> An error of cuDNN, no memory to measure with, or no algorithm that is allowed
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t) :: free, total, tensors, bytes
      type(c_ptr) :: base, at_w, at_y

      call make_plan(plan, device%dnn, request%dtype, name%math, request%conv, request%x, request%w, request%y, error)
      if (allocated(error)) return
      base = c_null_ptr
      tensors = 0_c_size_t
      bytes = 0_c_size_t
      if (name%measured) then
         call device%check(device%rt%mem_get_info(free, total), "cudaMemGetInfo", error)
         if (allocated(error)) return
         tensors = room(request%x, request%dtype) + room(request%w, request%dtype) + room(request%y, request%dtype)
         bytes = min(int(name%workspace_limit, c_size_t), free/2)
         call device%buffers%reserve_trial(device%rt, tensors + bytes, base, error)
         if (allocated(error)) return
      end if
      at_w = address_after(base, room(request%x, request%dtype))
      at_y = address_after(at_w, room(request%w, request%dtype))
      call choose_algorithm(plan, device%dnn, device%dnn_handle, request%operation, name, base, at_w, at_y, &
         & address_after(base, tensors), bytes, error)
      if (name%measured) call device%buffers%end_trial(device%rt)
   end subroutine choose_call

   !> Bytes that a tensor takes in the workspace
   pure integer(i8) function room(extent, dtype)
      !> Extents (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      room = aligned(product(int(extent, i8))*bytes_of(dtype))
   end function room

   subroutine keep_plan(device, plan)
      !> An entered device, which keeps the plans
      type(cuda_device_type), intent(inout) :: device
      !> The next one
      type(conv_plan_type), intent(in) :: plan
      type(conv_plan_type), allocatable :: larger(:)
      if (.not. allocated(device%plans)) allocate (device%plans(16))
      if (device%plan_count == size(device%plans)) then
         allocate (larger(2*size(device%plans)))
         larger(:device%plan_count) = device%plans
         call move_alloc(larger, device%plans)
      end if
      device%plan_count = device%plan_count + 1
      device%plans(device%plan_count) = plan
   end subroutine keep_plan

end module cnn_cuda_device_plans
