! SPDX-License-Identifier: MIT
!> Plans of cuDNN's graph API, and their execution.
!>
!> Source.  cuDNN 9 backend API reference: execution plan, variant pack.
module cnn_cuda_plans_graph_plan
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_cuda_bindings_cudnn, only : is_unsupported
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_graph_enums, only : &
      & CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &
      & CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_graph_engines, only : engine_type
   use cnn_cuda_plans_request, only : key_length
   implicit none
   private

   public :: free_graph_plan, run_graph_plan

   !> Of a graph, in memory
   integer, parameter :: most_tensors = 4

   type, public :: graph_plan_type
      !> Null where there is none
      type(c_ptr) :: address = c_null_ptr
      integer(i8) :: workspace_bytes = 0
      type(engine_type) :: engine
      !> cuDNN's list of the tensors of the last run, and where these and the workspace were: a step has the same ones
      !> again and again
      type(c_ptr), private :: pack = c_null_ptr, packed(most_tensors + 1) = c_null_ptr
   end type graph_plan_type

   !> What is known of a request: its plan, where cuDNN has one
   type, public :: conv_plan_type
      !> Everything that the choice depends on
      integer(i8) :: key(key_length) = 0
      type(graph_plan_type) :: graph
      !> Whether a fused one may be tried: cuDNN has not refused to run it, and its parts are not faster
      logical :: may_fuse = .true.
      !> Whether a fused one was timed against its parts
      logical :: is_timed = .false.
   end type conv_plan_type

contains

   subroutine free_graph_plan(dnn, plan)
      !> cuDNN, open
      type(cudnn_type), intent(in) :: dnn
      !> A plan, without a plan afterwards
      type(graph_plan_type), intent(inout) :: plan
      integer(c_int) :: ignored
      if (c_associated(plan%pack)) ignored = dnn%backend_destroy_descriptor(plan%pack)
      if (c_associated(plan%address)) ignored = dnn%backend_destroy_descriptor(plan%address)
      plan%pack = c_null_ptr
      plan%address = c_null_ptr
   end subroutine free_graph_plan

   !> Queue the plan on the handle's stream; tensors by their names in the graph
   subroutine run_graph_plan(dnn, handle, plan, ids, addresses, workspace, error, refused)
      !> cuDNN, open
      type(cudnn_type), intent(inout), target :: dnn
      !> Handle of cuDNN, on whose stream it is queued
      type(c_ptr), intent(in) :: handle
      !> Addresses of the same tensors, *device*
      type(c_ptr), intent(in) :: addresses(:)
      !> Scratch memory, *device*, of the plan's `workspace_bytes`
      type(c_ptr), intent(in) :: workspace
      !> A plan that was made; it keeps the list of its tensors
      type(graph_plan_type), intent(inout) :: plan
      !> Names of the tensors in the graph
      integer, intent(in) :: ids(:)
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      !> cuDNN does not support it after all; without this argument that is an error
      logical, intent(out), optional :: refused
      integer(c_int) :: status

      if (present(refused)) refused = .false.
      if (.not. is_packed(plan, addresses, workspace)) then
         call pack_tensors(dnn, plan, ids, addresses, workspace, error)
         if (allocated(error)) return
      end if
      status = dnn%backend_execute(handle, plan%address, plan%pack)
      if (present(refused)) then
         refused = is_unsupported(status)
         if (refused) return
      end if
      call dnn%check(status, "graph: run a plan", error)
   end subroutine run_graph_plan

   !> Whether the plan's list names these
   pure logical function is_packed(plan, addresses, workspace)
      !> A plan that was made
      type(graph_plan_type), intent(in) :: plan
      !> Addresses of the same tensors, *device*
      type(c_ptr), intent(in) :: addresses(:)
      !> Scratch memory, *device*, of the plan's `workspace_bytes`
      type(c_ptr), intent(in) :: workspace
      integer :: i
      is_packed = c_associated(plan%pack) .and. &
         & (c_associated(plan%packed(most_tensors + 1), workspace) .or. plan%workspace_bytes == 0)
      do i = 1, size(addresses)
         is_packed = is_packed .and. c_associated(plan%packed(i), addresses(i))
      end do
   end function is_packed

   subroutine pack_tensors(dnn, plan, ids, addresses, workspace, error)
      !> cuDNN, open
      type(cudnn_type), intent(inout), target :: dnn
      !> A plan whose list of tensors is set
      type(graph_plan_type), intent(inout) :: plan
      !> Names of the tensors in the graph
      integer, intent(in) :: ids(:)
      !> Addresses of the same tensors, *device*
      type(c_ptr), intent(in) :: addresses(:)
      !> Scratch memory, *device*, of the plan's `workspace_bytes`
      type(c_ptr), intent(in) :: workspace
      !> An error of cuDNN
      type(error_type), allocatable, intent(out) :: error
      type(graph_builder_type) :: builder
      type(c_ptr) :: pack
      integer(c_int) :: ignored

      if (c_associated(plan%pack)) ignored = dnn%backend_destroy_descriptor(plan%pack)
      plan%pack = c_null_ptr
      call builder%open(dnn)
      pack = builder%descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "a variant pack")
      call builder%set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, int(ids, i8))
      call builder%set_addresses(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)
      call builder%set_addresses(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, [workspace])
      call builder%finalize(pack)
      if (builder%ok()) then
         call builder%keep(pack)
         plan%pack = pack
         plan%packed(:size(addresses)) = addresses
         plan%packed(most_tensors + 1) = workspace
      end if
      call builder%close(error)
   end subroutine pack_tensors

end module cnn_cuda_plans_graph_plan
