! SPDX-License-Identifier: MIT
!> The plans of a device: found again by what was asked for, or made when it is the first time.
!>
!> Where cuDNN has no plan for a convolution, that is an error; where it has none for a fusion, its parts remain.
module cnn_cuda_device_plans
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : shape_text
   use cnn_cuda_device_plan_timing, only : find_fastest
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_graph, only : graph_ids
   use cnn_cuda_plans_graph_plan, only : conv_plan_type, free_graph_plan, graph_plan_type
   use cnn_cuda_plans_graph_search, only : find_graph_plans
   use cnn_cuda_plans_request, only : conv_request_type, layout_nhwc, request_key
   implicit none
   private

   public :: find_plan

   !> Plans of a graph that are measured: cuDNN offers the best first
   integer, parameter :: most_measured = 12

contains

   !> The number of the plan for a request; 0 when there is none, which for a convolution alone is an error
   subroutine find_plan(device, name, request, i, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> Number of the plan in `device%plans`
      integer, intent(out) :: i
      !> cuDNN has no plan for a convolution alone, or failed to give one; says what it offered
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: lack
      type(conv_plan_type) :: plan
      integer :: known

      plan%key = request_key(request, name)
      do known = 1, device%plan_count
         if (any(device%plans(known)%key /= plan%key)) cycle
         i = merge(known, 0, c_associated(device%plans(known)%graph%address))
         return
      end do
      i = 0
      call choose_graph(device, name, request, plan, lack, error)
      if (c_associated(plan%graph%address)) then
         i = device%plan_count + 1
      else if (has_parts(request)) then
         ! Nobody is told why: they are done one after the other
         if (allocated(error)) deallocate (error)
      else
         if (.not. allocated(error)) call fail(error, "cuDNN: "//lack)
         error%message = error%message//"; input "//shape_text(request%x)//", weight "//shape_text(request%w)
         return
      end if
      call keep_plan(device, plan)
   end subroutine find_plan

   !> Whether it can be done in another way: a fusion in its parts, and what has channels last without
   pure logical function has_parts(request)
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      has_parts = request%is_fused() .or. request%layout == layout_nhwc
   end function has_parts

   !> The first plan of the graph API that is offered, or the fastest of several, which are measured; null when there is
   !> none, or an error kept cuDNN from giving or running any
   subroutine choose_graph(device, name, request, plan, lack, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> A plan, whose graph plan is set, where there is one
      type(conv_plan_type), intent(inout) :: plan
      !> Why there is none, without an error
      character(len=:), allocatable, intent(out) :: lack
      !> Why no plan could be made or run
      type(error_type), allocatable, intent(out) :: error
      type(graph_plan_type), allocatable :: plans(:)
      integer(c_int) :: status
      integer :: i, best

      call find_graph_plans(device%dnn, device%dnn_handle, c_null_ptr, name, request, &
         & merge(most_measured, 1, name%measured), plans, lack, error)
      best = 0
      if (size(plans) > 1) call find_fastest(device, request, plans, graph_ids(request), best, error)
      ! One alone, or no room to try them: then what cuDNN expects to be the best
      if (best == 0 .and. .not. allocated(error)) best = min(1, size(plans))
      do i = 1, size(plans)
         if (i == best) cycle
         call free_graph_plan(device%dnn, plans(i))
      end do
      if (best > 0) plan%graph = plans(best)
      ! Plans that could not be made may leave an error to the next of the thread that asks
      if (best == 0) status = device%rt%get_last_error()
   end subroutine choose_graph

   subroutine keep_plan(device, plan)
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
