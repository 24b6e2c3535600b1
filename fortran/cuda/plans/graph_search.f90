! SPDX-License-Identifier: MIT
!> The search for plans of cuDNN's graph API: what its heuristics offer, and the device's options allow.
!>
!> No plan.  Where cuDNN offers none, or does not know the graph, that is no error.
!> Time.     A plan takes milliseconds to make; of engines that are compiled meanwhile, many seconds, at most one is
!>           tried for each request, and none unless the options allow it.
!> Source.   cuDNN 9 backend API reference: engine heuristics.
module cnn_cuda_plans_graph_search
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_graph_enums, only : CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK
   use cnn_cuda_plans_graph, only : build_graph
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_graph_engines, only : allowed, engine_type, find_engines, make_plan
   use cnn_cuda_plans_graph_plan, only : free_graph_plan, graph_plan_type
   use cnn_cuda_plans_request, only : conv_names, conv_request_type
   implicit none
   private

   public :: find_graph_plans

   !> What is looked for, and what is found so far
   type :: search_type
      type(c_ptr) :: handle = c_null_ptr, device = c_null_ptr
      type(device_name_type) :: name
      integer :: operation = 0, most = 1
      type(graph_plan_type), allocatable :: plans(:)
      !> An engine was compiled
      logical :: has_compiled = .false.
      !> Engines that cuDNN offered, and those of them that the options allow
      integer :: offered = 0, permitted = 0
      !> The smallest workspace beyond the limit, in bytes
      integer(i8) :: least = huge(0_i8)
   contains
      procedure :: is_over
   end type search_type

contains

   !> Plans for the request that the options allow, at most `most`, the best first by cuDNN's heuristics; the caller
   !> frees them. None after an error, which is one only where no other engine has a plan
   subroutine find_graph_plans(dnn, handle, device, name, request, most, plans, lack, error)
      !> cuDNN, open
      type(cudnn_type), intent(inout), target :: dnn
      !> Handle of cuDNN, for the current device; null where `device` is given
      type(c_ptr), intent(in) :: handle
      !> Descriptor of a GPU that need not be there; null where `handle` is given
      type(c_ptr), intent(in) :: device
      !> The options that say what is allowed
      type(device_name_type), intent(in) :: name
      !> What is to be computed
      type(conv_request_type), intent(in) :: request
      !> How many plans
      integer, intent(in) :: most
      !> To be freed by `free_graph_plan`
      type(graph_plan_type), allocatable, intent(out) :: plans(:)
      !> Why there is none, where cuDNN did not fail
      character(len=:), allocatable, intent(out) :: lack
      !> Why there is none, where cuDNN failed
      type(error_type), allocatable, intent(out) :: error
      type(graph_builder_type) :: builder
      type(search_type) :: search
      type(error_type), allocatable :: ignored
      type(c_ptr) :: graph
      integer(c_int), parameter :: modes(2) = [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK]
      integer :: i

      search = search_type(handle=handle, device=device, name=name, operation=request%operation, most=most)
      allocate (search%plans(0))
      call builder%open(dnn)
      call build_graph(request, builder, handle, graph)
      if (builder%ok()) then
         do i = 1, size(modes)
            if (.not. search%is_over()) call add_plans(builder, graph, modes(i), search)
            ! What one heuristic fails at the other may do
            call builder%set_aside()
         end do
      end if
      call builder%set_aside()
      if (size(search%plans) == 0 .and. allocated(builder%aside)) error = builder%aside
      lack = lack_of(search)
      call move_alloc(search%plans, plans)
      call builder%close(ignored)
   end subroutine find_graph_plans

   !> Of what one heuristic offers
   subroutine add_plans(builder, graph, mode, search)
      !> Where the descriptors are made
      type(graph_builder_type), intent(inout) :: builder
      !> Descriptor of the operation graph, finalized
      type(c_ptr), intent(in) :: graph
      !> A CUDNN_HEUR_MODE_...
      integer(c_int), intent(in) :: mode
      !> The plans are added to it
      type(search_type), intent(inout) :: search
      type(engine_type), allocatable :: engines(:)
      type(graph_plan_type) :: plan
      integer :: i

      call find_engines(builder, graph, search%operation, search%device, mode, engines)
      call builder%set_aside()
      search%offered = search%offered + size(engines)
      do i = 1, size(engines)
         if (search%is_over()) return
         if (.not. allowed(engines(i), search%name)) cycle
         search%permitted = search%permitted + 1
         if (engines(i)%compiled_later .and. search%has_compiled) cycle
         search%has_compiled = search%has_compiled .or. engines(i)%compiled_later
         call make_plan(builder, engines(i), search%device, search%handle, plan%address, plan%workspace_bytes)
         if (.not. c_associated(plan%address)) cycle
         plan%engine = engines(i)
         if (plan%workspace_bytes > search%name%workspace_limit) then
            search%least = min(search%least, plan%workspace_bytes)
            call free_graph_plan(builder%dnn, plan)
         else
            search%plans = [search%plans, plan]
         end if
      end do
   end subroutine add_plans

   !> What was found instead of a plan
   function lack_of(search) result(text)
      !> The search, which is over
      type(search_type), intent(in) :: search
      character(len=:), allocatable :: text
      integer(i8), parameter :: mebibyte = 2_i8**20
      text = "no plan for this "//trim(conv_names(search%operation))//" that is allowed (math, deterministic, "// &
         & "transforms, compile) and fits into the workspace limit: found "//to_text(search%offered)// &
         & " offers, "//to_text(search%permitted)//" of them allowed"
      if (search%least < huge(search%least)) text = text//" (the smallest wants workspace="// &
         & to_text((search%least - 1)/mebibyte + 1)//")"
   end function lack_of

   !> Whether there are enough
   pure logical function is_over(self)
      class(search_type), intent(in) :: self
      is_over = size(self%plans) >= self%most
   end function is_over

end module cnn_cuda_plans_graph_search
