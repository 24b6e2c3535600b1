! SPDX-License-Identifier: MIT
!> The fastest of several plans, by running each on memory of no other use, which is given back. Waits for the device.
!>
!> Time is the host's, from an idle stream until it is idle again: what launching costs is part of it.
module cnn_cuda_device_plan_timing
   use, intrinsic :: iso_c_binding, only : c_int, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, dtype_float32, i8
   use cnn_core_tensor, only : address_after, aligned
   use cnn_cuda_device_type, only : cuda_device_type
   use cnn_cuda_plans_graph, only : id_mask, id_w, id_x, id_y
   use cnn_cuda_plans_graph_plan, only : graph_plan_type, run_graph_plan
   use cnn_cuda_plans_request, only : conv_bias, conv_request_type
   implicit none
   private

   public :: find_fastest

   !> Runs of a plan that are timed together, after one that is not
   integer, parameter :: runs = 5

contains

   !> The number of the plan that took the shortest time; 0 when none of them runs, with the last one's error, and
   !> without an error when there is no room to try them
   subroutine find_fastest(device, request, plans, ids, best, error)
      !> An entered device; the host waits for it
      type(cuda_device_type), intent(inout) :: device
      !> What the plans compute
      type(conv_request_type), intent(in) :: request
      !> Plans for the same request
      type(graph_plan_type), intent(inout) :: plans(:)
      !> The tensors of the graph
      integer, intent(in) :: ids(:)
      !> Number of the fastest, from 1
      integer, intent(out) :: best
      !> That of the last plan, where none runs
      type(error_type), allocatable, intent(out) :: error
      type(error_type), allocatable :: failure
      type(c_ptr) :: base, addresses(size(ids))
      integer(c_size_t) :: offset
      integer(c_int) :: status
      integer(i8) :: ticks, least
      integer :: i

      best = 0
      offset = 0_c_size_t
      do i = 1, size(ids)
         offset = offset + room(request, ids(i))
      end do
      call device%buffers%reserve_trial(device%rt, offset + maxval(plans%workspace_bytes), base, error)
      if (allocated(error)) then
         deallocate (error)
         status = device%rt%get_last_error()
         return
      end if
      offset = 0_c_size_t
      do i = 1, size(ids)
         addresses(i) = address_after(base, offset)
         offset = offset + room(request, ids(i))
      end do
      least = huge(least)
      do i = 1, size(plans)
         call time_plan(device, plans(i), ids, addresses, address_after(base, offset), ticks, failure)
         if (allocated(failure)) then
            ! Else the next of the thread to ask would take it for its own
            status = device%rt%get_last_error()
            cycle
         end if
         if (ticks < least) best = i
         least = min(least, ticks)
      end do
      call device%buffers%end_trial(device%rt)
      if (best == 0) call move_alloc(failure, error)
   end subroutine find_fastest

   !> `ticks` of the system clock for `runs` runs
   subroutine time_plan(device, plan, ids, addresses, workspace, ticks, error)
      !> An entered device; the host waits for it
      type(cuda_device_type), intent(inout) :: device
      !> A plan that was made
      type(graph_plan_type), intent(inout) :: plan
      !> Names of the tensors in the graph
      integer, intent(in) :: ids(:)
      !> Addresses of the same tensors, *device*
      type(c_ptr), intent(in) :: addresses(:)
      !> Scratch memory, *device*
      type(c_ptr), intent(in) :: workspace
      !> The largest number after an error
      integer(i8), intent(out) :: ticks
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: start
      integer :: i

      ticks = huge(ticks)
      start = 0_i8
      do i = 0, runs
         call run_graph_plan(device%dnn, device%dnn_handle, plan, ids, addresses, workspace, error)
         if (allocated(error)) return
         ! The first run loads and compiles
         if (i > 0) cycle
         call device%synchronize(error)
         if (allocated(error)) return
         call system_clock(start)
      end do
      call device%synchronize(error)
      call system_clock(ticks)
      ticks = ticks - start
   end subroutine time_plan

   !> Bytes of a tensor of the request, aligned
   pure integer(c_size_t) function room(request, id)
      !> What is computed
      type(conv_request_type), intent(in) :: request
      !> Name of the tensor in the graph
      integer, intent(in) :: id
      integer :: extent(4)
      extent = 1
      select case (id)
       case (id_x, id_mask)
         extent = request%x
       case (id_w)
         extent = request%w
       case (id_y)
         extent = request%y
       case default
         extent(3) = request%y(3)
      end select
      ! The gradient of the bias: in the type of the sums
      if (request%operation == conv_bias .and. id == id_w) extent = [1, 1, request%y(3), 1]
      room = aligned(product(int(extent, i8))*max(bytes_of(request%dtype), bytes_of(dtype_float32)))
   end function room

end module cnn_cuda_device_plan_timing
