! SPDX-License-Identifier: MIT
!> Fetching rows of an image from memory while others are computed on: a little with each tile, so that the processor
!> does not wait for either.
module cnn_fetch_ahead
   use, intrinsic :: iso_c_binding, only : c_int64_t, c_ptr, c_null_ptr
   use cnn_kinds, only : i8
   use cnn_tensor, only : address_after
   implicit none
   private

   !> Bytes that are asked for at once
   integer(i8), parameter :: run_bytes = 1024_i8

   !> Rows to fetch: `rows` of `row_bytes` in each of `planes` planes
   type, public :: fetch_type
      type(c_ptr) :: address = c_null_ptr
      integer(i8) :: row_bytes = 0_i8, row_step = 0_i8, plane_step = 0_i8
      integer :: rows = 0, planes = 0
      logical :: to_write = .false.
      integer(i8), private :: next = 0_i8, runs = 0_i8, in_row = 1_i8, at_once = 0_i8
   contains
      procedure :: spread_over
      procedure :: some
   end type fetch_type

   interface
      !> cpu_instructions.c
      subroutine fetch(address, bytes) bind(C, name="cnn_fetch")
         import :: c_int64_t, c_ptr
         implicit none
         type(c_ptr), value :: address
         integer(c_int64_t), value :: bytes
      end subroutine fetch
      subroutine fetch_to_write(address, bytes) bind(C, name="cnn_fetch_to_write")
         import :: c_int64_t, c_ptr
         implicit none
         type(c_ptr), value :: address
         integer(c_int64_t), value :: bytes
      end subroutine fetch_to_write
   end interface

contains

   !> Begin; all of it is to be asked for in so many calls of `some`
   subroutine spread_over(self, calls)
      class(fetch_type), intent(inout) :: self
      integer(i8), intent(in) :: calls
      self%in_row = (self%row_bytes + run_bytes - 1)/run_bytes
      self%runs = self%in_row*self%rows*self%planes
      self%next = 0_i8
      self%at_once = (self%runs + max(calls, 1_i8) - 1)/max(calls, 1_i8)
   end subroutine spread_over

   !> Ask for the next part
   subroutine some(self)
      class(fetch_type), intent(inout) :: self
      integer(i8) :: last, row, begin, bytes
      type(c_ptr) :: address
      last = min(self%next + self%at_once, self%runs)
      do while (self%next < last)
         row = self%next/self%in_row
         begin = (self%next - row*self%in_row)*run_bytes
         bytes = min(run_bytes, self%row_bytes - begin)
         address = address_after(self%address, begin + mod(row, int(self%rows, i8))*self%row_step + &
            & row/self%rows*self%plane_step)
         if (self%to_write) then
            call fetch_to_write(address, bytes)
         else
            call fetch(address, bytes)
         end if
         self%next = self%next + 1
      end do
   end subroutine some

end module cnn_fetch_ahead
