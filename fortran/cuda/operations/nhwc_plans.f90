! SPDX-License-Identifier: MIT
!> Plans of the graph API by what was asked for, for convolutions with channels last: whether there is one, and its run.
module cnn_cuda_operations_nhwc_plans
   use, intrinsic :: iso_c_binding, only : c_ptr, c_size_t
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_tensor, only : shape_text
   use cnn_cuda_device_plans, only : find_plan
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_graph, only : graph_ids
   use cnn_cuda_plans_graph_plan, only : run_graph_plan
   use cnn_cuda_plans_request, only : conv_names, conv_request_type
   implicit none
   private

   public :: has_plan, run

contains

   logical function has_plan(device, name, request, error)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed, with channels last
      type(conv_request_type), intent(in) :: request
      !> An error of the search for plans
      type(error_type), allocatable, intent(out) :: error
      integer :: i
      call find_plan(device, name, request, i, error)
      has_plan = i > 0
      if (has_plan) has_plan = device%plans(i)%may_fuse
   end function has_plan

   !> Queue the plan of a request; addresses in the order of `graph_ids`. With `refused` it is no error that cuDNN does
   !> not support it after all; it is not asked again then
   subroutine run(device, name, request, addresses, error, refused)
      type(cuda_device_type), intent(inout) :: device
      !> Options of the device
      type(device_name_type), intent(in) :: name
      !> What is to be computed, with channels last
      type(conv_request_type), intent(in) :: request
      !> Tensors, *device*, in the order of `graph_ids`
      type(c_ptr), intent(in) :: addresses(:)
      !> No plan any more, no memory for its workspace, or an error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      !> Nothing was queued
      logical, intent(out), optional :: refused
      type(c_ptr) :: workspace
      integer :: i

      if (present(refused)) refused = .false.
      call find_plan(device, name, request, i, error)
      if (allocated(error)) return
      if (i == 0) call fail(error, "no plan for the "// &
         & trim(conv_names(request%operation))//" of "//shape_text(request%x)//" any more")
      if (allocated(error)) return
      call device%reserve(int(device%plans(i)%graph%workspace_bytes, c_size_t), workspace, error)
      if (.not. allocated(error)) call run_graph_plan(device%dnn, device%dnn_handle, device%plans(i)%graph, &
         & graph_ids(request), addresses, workspace, error, refused)
      if (present(refused)) device%plans(i)%may_fuse = .not. refused
      if (allocated(error)) error%message = error%message//" ("//trim(conv_names(request%operation))// &
         & ", channels last)"
   end subroutine run

end module cnn_cuda_operations_nhwc_plans
