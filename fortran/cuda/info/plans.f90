! SPDX-License-Identifier: MIT
!> Which plan cuDNN's graph API has for one operation of a training step, in words; or that we have a kernel for it.
!>
!> For a GPU that is there, or for one that only its description in JSON tells of: then no GPU is needed, but cuDNN is.
module cnn_cuda_info_plans
   use, intrinsic :: iso_c_binding, only : c_null_ptr, c_ptr
   use cnn_core_device_name, only : device_name_type, parse_device
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_device_registry, only : open_cuda_device
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_direct, only : as_forward, by_forward, is_direct
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_graph_engines, only : describe_device
   use cnn_cuda_plans_graph_plan, only : free_graph_plan, graph_plan_type
   use cnn_cuda_plans_graph_search, only : find_graph_plans
   use cnn_cuda_plans_request, only : conv_request_type, layout_nchw, multiplied_as
   implicit none
   private

   public :: describe_plan

contains

   !> The plan that device `text` (as cuda,math=tf32) would take, as "engine 44, workspace 0 bytes"; empty without one.
   !> `json` describes another GPU; empty for the device's own
   subroutine describe_plan(text, json, request, plan_text, error)
      !> Name of the device with its options
      character(len=*), intent(in) :: text
      !> cuDNN's device properties of a GPU that need not be there, or empty
      character(len=*), intent(in) :: json
      !> One operation; its dtype is that of the tensors
      type(conv_request_type), intent(in) :: request
      !> For a reader
      character(len=:), allocatable, intent(out) :: plan_text
      !> Not a CUDA device, or its libraries or cuDNN fail
      type(error_type), allocatable, intent(out) :: error
      type(conv_request_type) :: asked
      type(device_name_type) :: name

      plan_text = ""
      call parse_device(text, name, error)
      if (allocated(error)) return
      asked = request
      if (by_forward(name, request)) asked = as_forward(request)
      asked%dtype = multiplied_as(request%dtype, name%math)
      if (asked%layout == layout_nchw .and. is_direct(name, asked%operation, asked%conv, request%dtype, asked%x, &
         & asked%w, asked%y)) then
         plan_text = "our own kernel"
         return
      end if
      ! Operands that are rounded for one convolution only are not fused with anything
      if (asked%layout == layout_nchw .and. asked%is_fused() .and. asked%dtype /= request%dtype) return
      if (name%kind /= "cuda") then
         call fail(error, "device "//text//": has no plans of cuDNN, expected cuda")
      else if (len(json) > 0) then
         call describe_far(name, json, asked, plan_text, error)
      else
         call describe_near(name, asked, plan_text, error)
      end if
      if (len(plan_text) > 0 .and. by_forward(name, request)) plan_text = plan_text//", as a forward pass"
   end subroutine describe_plan

   subroutine describe_near(name, request, plan_text, error)
      !> Kind, ordinal and options of the device
      type(device_name_type), intent(in) :: name
      !> One operation, in the type that is multiplied
      type(conv_request_type), intent(in) :: request
      !> For a reader; empty without a plan
      character(len=:), allocatable, intent(out) :: plan_text
      !> The device cannot be opened, or cuDNN fails
      type(error_type), allocatable, intent(out) :: error
      type(cuda_device_type), pointer :: device
      type(graph_plan_type), allocatable :: plans(:)
      character(len=:), allocatable :: lack

      plan_text = ""
      call open_cuda_device(name%ordinal, device, error)
      if (allocated(error)) return
      call device%enter(error)
      if (.not. allocated(error)) then
         call find_graph_plans(device%dnn, device%dnn_handle, c_null_ptr, name, request, 1, plans, lack, error)
         plan_text = words(device%dnn, plans)
      end if
      call device%leave_idle(error)
   end subroutine describe_near

   subroutine describe_far(name, json, request, plan_text, error)
      !> Kind, ordinal and options of the device
      type(device_name_type), intent(in) :: name
      !> cuDNN's device properties
      character(len=*), intent(in) :: json
      !> One operation, in the type that is multiplied
      type(conv_request_type), intent(in) :: request
      !> For a reader; empty without a plan
      character(len=:), allocatable, intent(out) :: plan_text
      !> No libraries, or cuDNN fails
      type(error_type), allocatable, intent(out) :: error
      type(cudnn_type), target :: dnn
      type(graph_builder_type) :: builder
      type(graph_plan_type), allocatable :: plans(:)
      character(len=:), allocatable :: lack
      type(error_type), allocatable :: failure
      type(c_ptr) :: device

      plan_text = ""
      call dnn%load(error)
      if (allocated(error)) return
      call builder%open(dnn)
      device = describe_device(builder, json)
      if (builder%ok()) then
         call find_graph_plans(dnn, c_null_ptr, device, name, request, 1, plans, lack, failure)
         plan_text = words(dnn, plans)
      end if
      call builder%close(error)
      if (allocated(failure)) call move_alloc(failure, error)
   end subroutine describe_far

   !> Of the plan, if there is one, which is given back
   function words(dnn, plans) result(text)
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> One at most, freed afterwards
      type(graph_plan_type), intent(inout) :: plans(:)
      character(len=:), allocatable :: text
      integer :: i
      text = ""
      do i = 1, size(plans)
         associate (engine => plans(i)%engine)
            text = "engine "//to_text(engine%number)//", workspace "// &
               & to_text(plans(i)%workspace_bytes)//" bytes"// &
               & trim(merge(", tensor cores            ", repeat(" ", 26), engine%tensor_cores))// &
               & trim(merge(", transforms              ", repeat(" ", 26), engine%transforms))// &
               & trim(merge(", not deterministic       ", repeat(" ", 26), .not. engine%deterministic))// &
               & trim(merge(", compiled when it is made", repeat(" ", 26), engine%compiled_later))
         end associate
         call free_graph_plan(dnn, plans(i))
      end do
   end function words

end module cnn_cuda_info_plans
