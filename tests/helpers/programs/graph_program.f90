! SPDX-License-Identifier: MIT
!> Which plans cuDNN has for the graphs of a training step on a GPU that need not be there, for
!> tests/cuda/test_cudnn_graphs.py.
!>
!>     graph_program DEVICE.json < REQUESTS
!>
!> A request is a line: operation layout dtype math bias relu mask, then n c h w, k r s, stride, padding and dilation
!> in height and width, groups. The answer is a line, too: how many engines are offered and allowed, how many of these
!> become plans, the least workspace of one (-1: none), and of the first of them number, workspace, tensor cores, transforms, deterministic, compiled later.
program graph_program
   use, intrinsic :: iso_c_binding, only : c_associated, c_null_ptr, c_ptr
   use, intrinsic :: iso_fortran_env, only : input_unit
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_device_name, only : device_name_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_bindings_cudnn_graph_enums, only : CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK
   use cnn_cuda_plans_graph, only : build_graph
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_graph_engines, only : allowed, describe_device, engine_type, find_engines, make_plan
   use cnn_cuda_plans_graph_plan, only : free_graph_plan, graph_plan_type
   use cnn_cuda_plans_request, only : conv_request_type
   implicit none

   type(cudnn_type), target :: dnn
   type(error_type), allocatable :: error
   character(len=:), allocatable :: json

   call read_device(json)
   call dnn%load(error)
   if (allocated(error)) then
      print "(a)", "error: "//error%message
      stop
   end if
   call answer_requests()

contains

   subroutine read_device(text)
      character(len=:), allocatable, intent(out) :: text
      character(len=1000) :: path
      integer :: unit, length
      call get_command_argument(1, path)
      open (newunit=unit, file=path, access="stream", form="unformatted", status="old", action="read")
      inquire (unit, size=length)
      allocate (character(len=length) :: text)
      read (unit) text
      close (unit)
   end subroutine read_device

   subroutine answer_requests()
      type(conv_request_type) :: graph
      type(device_name_type) :: name
      integer :: status, n, c, h, w, k, r, s, stride(2), padding(2), dilation(2), groups
      ! All that is offered
      name%compile = .true.
      do
         read (input_unit, *, iostat=status) graph%operation, graph%layout, graph%dtype, name%math, graph%bias, &
            & graph%relu, graph%mask, n, c, h, w, k, r, s, stride, padding, dilation, groups
         if (status /= 0) return
         graph%conv = conv_type(stride_h=stride(1), stride_w=stride(2), pad_h=padding(1), pad_w=padding(2), &
            & dilation_h=dilation(1), dilation_w=dilation(2), groups=groups)
         graph%x = [w, h, c, n]
         graph%w = [s, r, c/groups, k]
         call graph%conv%output_extent(graph%x, graph%w, graph%y, error)
         if (.not. allocated(error)) call answer(graph, name)
         if (allocated(error)) print "(a)", "error: "//error%message
      end do
   end subroutine answer_requests

   subroutine answer(graph, name)
      type(conv_request_type), intent(in) :: graph
      type(device_name_type), intent(in) :: name
      type(graph_builder_type) :: builder
      type(engine_type), allocatable :: best(:), rest(:), engines(:)
      type(c_ptr) :: address, device
      type(graph_plan_type) :: plan
      integer(i8) :: workspace, least
      integer :: i, plans, permitted
      character(len=100) :: first

      call builder%open(dnn)
      device = describe_device(builder, json)
      call build_graph(graph, builder, c_null_ptr, address)
      call find_engines(builder, address, graph%operation, device, CUDNN_HEUR_MODE_A, best)
      call find_engines(builder, address, graph%operation, device, CUDNN_HEUR_MODE_FALLBACK, rest)
      engines = [best, rest]
      plans = 0
      least = huge(least)
      permitted = 0
      first = ""
      do i = 1, size(engines)
         if (.not. allowed(engines(i), name)) cycle
         permitted = permitted + 1
         call make_plan(builder, engines(i), device, c_null_ptr, plan%address, workspace)
         if (.not. builder%ok()) exit
         if (.not. c_associated(plan%address)) cycle
         plans = plans + 1
         least = min(least, workspace)
         associate (it => engines(i))
            if (plans == 1) write (first, "(i0, 1x, i0, 4(1x, l1))") it%number, workspace, it%tensor_cores, &
               & it%transforms, it%deterministic, it%compiled_later
         end associate
         call free_graph_plan(dnn, plan)
      end do
      call builder%close(error)
      if (.not. allocated(error)) print "(4(i0, 1x), a)", size(engines), permitted, plans, &
         & merge(-1_i8, least, plans == 0), trim(first)
   end subroutine answer

end program graph_program
