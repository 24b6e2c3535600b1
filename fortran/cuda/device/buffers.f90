! SPDX-License-Identifier: MIT
!> Memory that a CUDA device keeps for its own work: workspaces, and pinned memory for copies.
!>
!> Source.  CUDA runtime API reference: memory management.
module cnn_cuda_device_buffers
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : i8
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_cudart, only : cudart_type
   use cnn_cuda_bindings_signatures, only : cudaFree
   implicit none
   private

   !> Pieces of 16 MiB: large enough that the copies run at full speed
   integer(c_size_t), parameter :: staging_size = 2_c_size_t**24, loss_size = 8_c_size_t

   !> Device memory that grows
   type :: growing_type
      type(c_ptr) :: address = c_null_ptr
      integer(c_size_t) :: bytes = 0
   end type growing_type

   type, public :: buffers_type
      !> Pinned host memory for copies, and whether a copy from it may be under way
      type(c_ptr) :: staging = c_null_ptr
      integer(c_size_t) :: staging_bytes = 0
      logical :: staging_busy = .false.
      !> Pinned, too: eight bytes for a loss on its way
      type(c_ptr) :: loss = c_null_ptr
      !> Allocations alive
      integer :: live = 0
      !> How often memory below has moved: who has kept an address must ask
      integer :: moves = 0
      !> For one call at a time, for what several calls hand on, and for as long as plans are measured
      type(growing_type), private :: workspace, scratch, trial
   contains
      procedure :: open
      procedure :: close
      procedure :: reserve
      procedure :: reserve_scratch
      procedure :: reserve_trial
      procedure :: end_trial
   end type buffers_type

contains

   subroutine open(self, rt, error)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> No pinned memory
      type(error_type), allocatable, intent(out) :: error
      self%staging_bytes = staging_size
      call keep(rt%malloc_host(self%staging, staging_size), self%staging)
      if (allocated(error)) return
      call keep(rt%malloc_host(self%loss, loss_size), self%loss)

   contains

      subroutine keep(status, address)
         !> Status of the call that allocated
         integer(c_int), intent(in) :: status
         !> What it gave; null where it failed
         type(c_ptr), intent(inout) :: address
         call rt%check(status, "memory for the device's buffers", error)
         if (allocated(error)) then
            address = c_null_ptr
         else
            self%live = self%live + 1
         end if
      end subroutine keep

   end subroutine open

   subroutine close(self, rt)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      call give_back(rt, rt%free, self%workspace%address, self%live)
      call give_back(rt, rt%free, self%scratch%address, self%live)
      call self%end_trial(rt)
      call give_back(rt, rt%free_host, self%loss, self%live)
      call give_back(rt, rt%free_host, self%staging, self%live)
      self%workspace%bytes = 0
      self%scratch%bytes = 0
   end subroutine close

   !> A failure has nobody to hear it
   subroutine give_back(rt, free, address, live)
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> cudaFree, or cudaFreeHost
      procedure(cudaFree) :: free
      !> What is freed, or null; null afterwards
      type(c_ptr), intent(inout) :: address
      !> Allocations alive
      integer, intent(inout) :: live
      integer(c_int) :: ignored
      if (.not. c_associated(address)) return
      if (free(address) == 0) then
         live = live - 1
      else
         ignored = rt%get_last_error()
      end if
      address = c_null_ptr
   end subroutine give_back

   !> At least `bytes` bytes of device memory that nobody needs after the calls queued next
   subroutine reserve(self, rt, bytes, address, error)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Where they start, *device*; null after an error
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call grow(rt, bytes, self%workspace, self%live, self%moves, error)
      address = self%workspace%address
   end subroutine reserve

   !> The same once more, for what one convolution hands to the next: `reserve` leaves it alone
   subroutine reserve_scratch(self, rt, bytes, address, error)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Where they start, *device*; null after an error
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      call grow(rt, bytes, self%scratch, self%live, self%moves, error)
      address = self%scratch%address
   end subroutine reserve_scratch

   !> Memory to measure plans with, until `end_trial`: operands of each, and room for any of them, which is more than a
   !> step needs. The other memory stays where it is
   subroutine reserve_trial(self, rt, bytes, address, error)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Where they start, *device*; null after an error
      type(c_ptr), intent(out) :: address
      type(error_type), allocatable, intent(out) :: error
      integer :: moves
      moves = 0
      call grow(rt, bytes, self%trial, self%live, moves, error)
      address = self%trial%address
   end subroutine reserve_trial

   !> Give it back, after all work that is queued
   subroutine end_trial(self, rt)
      class(buffers_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      call give_back(rt, rt%free, self%trial%address, self%live)
      self%trial%bytes = 0
   end subroutine end_trial

   !> Only when it is too small: cudaFree waits for the device
   subroutine grow(rt, bytes, memory, live, moves, error)
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> How many bytes, at least
      integer(c_size_t), intent(in) :: bytes
      !> Grown to `bytes`, if it was smaller; what it held is lost
      type(growing_type), intent(inout) :: memory
      !> Allocations alive
      integer, intent(inout) :: live
      !> How often memory has moved
      integer, intent(inout) :: moves
      type(error_type), allocatable, intent(out) :: error
      if (bytes <= memory%bytes) return
      memory%bytes = 0
      moves = moves + 1
      call give_back(rt, rt%free, memory%address, live)
      call rt%check(rt%malloc(memory%address, bytes), "no memory for a workspace of "//to_text(int(bytes, i8))// &
         & " bytes (cudaMalloc)", error)
      if (allocated(error)) then
         memory%address = c_null_ptr
         return
      end if
      memory%bytes = bytes
      live = live + 1
   end subroutine grow

end module cnn_cuda_device_buffers
