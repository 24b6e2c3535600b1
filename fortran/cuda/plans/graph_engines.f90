! SPDX-License-Identifier: MIT
!> What cuDNN offers to compute a graph with, and which of it a device's options allow.
!>
!> Notes.   Each engine says of itself what its arithmetic is. math=fp32 takes none with tensor cores, whose products of
!>          float32 are TF32; transforms=no none with FFT or Winograd; deterministic=yes none that is not; compile=no
!>          none that is compiled when its plan is made. One engine does not say that it is Winograd's.
!> Device.  Heuristics and plans are for the handle's GPU, or for one that a device-properties descriptor tells of: then
!>          no GPU is needed.
!> Source.  cuDNN 9 backend API reference: cudnnBackendNumericalNote_t, cudnnBackendBehaviorNote_t.
module cnn_cuda_plans_graph_engines
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr
   use cnn_core_device_name, only : device_name_type, math_fp32
   use cnn_core_kinds, only : i8
   use cnn_cuda_bindings_cudnn_graph_enums, only : CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, &
      & CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_ATTR_ENGINEHEUR_MODE, &
      & CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, &
      & CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &
      & CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &
      & CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &
      & CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &
      & CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, &
      & CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, &
      & CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, &
      & CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, &
      & CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_TYPE_BEHAVIOR_NOTE, &
      & CUDNN_TYPE_HEUR_MODE, CUDNN_TYPE_NUMERICAL_NOTE
   use cnn_cuda_plans_graph_builder, only : graph_builder_type
   use cnn_cuda_plans_request, only : conv_filter
   implicit none
   private

   public :: allowed, describe_device, find_engines, make_plan

   !> Configurations that a heuristic is asked for
   integer, parameter :: most_engines = 40
   !> Notes that one engine may have
   integer, parameter :: most_notes = 32
   !> Of filter gradients the engine that runs Winograd's kernels and has no note of it: cuDNN 9.19 on an H200, by the
   !> names of its kernels
   integer(i8), parameter :: silent_winograd = 17

   type, public :: engine_type
      !> With its settings; the builder's
      type(c_ptr) :: configuration = c_null_ptr
      !> cuDNN's number for it
      integer(i8) :: number = -1
      logical :: tensor_cores = .false., transforms = .false., deterministic = .true.
      !> Sums in less than what was asked for
      logical :: short_sums = .false.
      !> Compiled by cuDNN when the plan is made, which takes NVRTC and the driver
      logical :: compiled_later = .false.
   end type engine_type

contains

   !> A GPU that need not be there, from cuDNN's description of it in JSON
   function describe_device(b, json) result(it)
      !> Where the descriptor is made
      type(graph_builder_type), intent(inout) :: b
      !> cuDNN's device properties
      character(len=*), intent(in) :: json
      type(c_ptr) :: it
      it = b%descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device properties")
      call b%set(it, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json)
      call b%finalize(it)
   end function describe_device

   !> What a heuristic (CUDNN_HEUR_MODE_...) offers for a graph, the best first; none where cuDNN has none, or after an
   !> error of the heuristic itself
   subroutine find_engines(b, graph, operation, device, mode, engines)
      !> Where the descriptors are made
      type(graph_builder_type), intent(inout) :: b
      !> A finalized operation graph
      type(c_ptr), intent(in) :: graph
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Properties of a GPU; null for the one that is the thread's
      type(c_ptr), intent(in) :: device
      !> A CUDNN_HEUR_MODE_...
      integer(c_int), intent(in) :: mode
      !> Engines with configurations that live as long as the builder's descriptors
      type(engine_type), allocatable, intent(out) :: engines(:)
      type(engine_type) :: engine
      type(c_ptr) :: heuristic, configurations(most_engines)
      integer :: i, found

      allocate (engines(0))
      found = 0
      heuristic = b%descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a heuristic")
      call b%set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, [graph])
      call b%set_enum(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
      if (c_associated(device)) call b%set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, [device])
      call b%finalize(heuristic)
      do i = 1, most_engines
         configurations(i) = b%descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration")
      end do
      call b%get_descriptors(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, configurations, found)
      if (b%refused() .or. .not. b%ok()) return
      do i = 1, found
         engine = engine_of(b, operation, configurations(i))
         if (b%ok()) engines = [engines, engine]
         ! One that does not say what its arithmetic is, is none
         call b%set_aside()
      end do
   end subroutine find_engines

   !> An engine and its notes
   function engine_of(b, operation, configuration) result(engine)
      !> Where the descriptors are made
      type(graph_builder_type), intent(inout) :: b
      !> `conv_forward`, `conv_data` or `conv_filter`
      integer, intent(in) :: operation
      !> Configuration of the engine, finalized
      type(c_ptr), intent(in) :: configuration
      type(engine_type) :: engine
      type(c_ptr) :: address
      integer(c_int) :: notes(most_notes)
      integer :: count

      engine%configuration = configuration
      address = b%descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine")
      call b%get_descriptors(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, [address], count)
      engine%number = b%get_integer(address, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
      call b%get_enums(address, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes, count)
      associate (said => notes(:count))
         engine%tensor_cores = any(said == CUDNN_NUMERICAL_NOTE_TENSOR_CORE .or. &
            & said == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
         engine%transforms = any(said == CUDNN_NUMERICAL_NOTE_FFT .or. said == CUDNN_NUMERICAL_NOTE_WINOGRAD .or. &
            & said == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 .or. said == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 .or. &
            & said == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) .or. &
            & (operation == conv_filter .and. engine%number == silent_winograd)
         engine%deterministic = .not. any(said == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
         engine%short_sums = any(said == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      end associate
      call b%get_enums(address, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, notes, count)
      engine%compiled_later = any(notes(:count) == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
   end function engine_of

   !> Whether the options of a device allow an engine
   pure logical function allowed(engine, name)
      !> An engine with what its notes say
      type(engine_type), intent(in) :: engine
      !> The options: math, deterministic, transforms, compile
      type(device_name_type), intent(in) :: name
      allowed = .not. engine%short_sums .and. (name%compile .or. .not. engine%compiled_later)
      if (name%math == math_fp32) allowed = allowed .and. .not. engine%tensor_cores
      if (name%deterministic) allowed = allowed .and. engine%deterministic
      if (.not. name%transforms) allowed = allowed .and. .not. engine%transforms
   end function allowed

   !> A plan of this engine and the workspace it needs; the caller destroys it. Null where cuDNN cannot make it, or
   !> cannot compile it, which is no error: there are other engines
   subroutine make_plan(b, engine, device, handle, plan, workspace)
      !> Where the plan is made
      type(graph_builder_type), intent(inout) :: b
      !> An engine with its configuration
      type(engine_type), intent(in) :: engine
      !> Properties of a GPU that need not be there; null where `handle` is given
      type(c_ptr), intent(in) :: device
      !> Handle of cuDNN, for the thread's GPU; null where `device` is given
      type(c_ptr), intent(in) :: handle
      !> Null where there is none
      type(c_ptr), intent(out) :: plan
      !> Bytes of device memory
      integer(i8), intent(out) :: workspace

      workspace = 0
      plan = c_null_ptr
      if (.not. b%ok()) return
      plan = b%descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan")
      if (c_associated(handle)) call b%set_handle(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
      if (c_associated(device)) call b%set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, [device])
      call b%set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, [engine%configuration])
      call b%finalize(plan)
      workspace = b%get_integer(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
      if (b%ok()) then
         call b%keep(plan)
      else
         ! The builder's, which destroys it
         call b%forget_error()
         plan = c_null_ptr
         workspace = 0
      end if
   end subroutine make_plan

end module cnn_cuda_plans_graph_engines
