! SPDX-License-Identifier: MIT
!> Memory of the host, from the C library: aligned to cache lines, and scratch memory for the threads of one call.
module cnn_cpu_kernels_memory
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : i8
   use cnn_core_tensor, only : address_after
   use cnn_core_text, only : to_text
   !$ use omp_lib, only : omp_get_max_threads
   implicit none
   private

   public :: allocate_aligned, allocate_scratch, c_free, c_memmove, c_memset, give_back_scratch

   integer(c_size_t), parameter :: alignment = 64_c_size_t

   !> One piece of memory for each thread, until `release`; the next call may have it then
   type, public :: scratch_type
      type(c_ptr), private :: address = c_null_ptr
      integer(i8), private :: bytes = 0_i8
   contains
      procedure :: reserve
      procedure :: part
      procedure :: release
   end type scratch_type

   interface
      !> C11 <stdlib.h>; `bytes` is a multiple of `alignment`
      function aligned_alloc(alignment, bytes) result(address) bind(C, name="aligned_alloc")
         import :: c_ptr, c_size_t
         implicit none
         !> Alignment in bytes, a power of two
         integer(c_size_t), value :: alignment
         !> Size in bytes, a multiple of `alignment`
         integer(c_size_t), value :: bytes
         type(c_ptr) :: address
      end function aligned_alloc
      !> C <string.h>; the returned address is `to` and not needed, so it is called as a subroutine
      subroutine c_memmove(to, from, bytes) bind(C, name="memmove")
         import :: c_ptr, c_size_t
         implicit none
         !> Memory that is written
         type(c_ptr), value :: to
         !> Memory that is read; may overlap `to`
         type(c_ptr), value :: from
         !> Number of bytes
         integer(c_size_t), value :: bytes
      end subroutine c_memmove
      !> C <string.h>; called as a subroutine, as memmove
      subroutine c_memset(address, byte, bytes) bind(C, name="memset")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Memory that is written
         type(c_ptr), value :: address
         !> Value of each byte, 0 to 255
         integer(c_int), value :: byte
         !> Number of bytes
         integer(c_size_t), value :: bytes
      end subroutine c_memset
      !> See scratch_memory.c; null where there is no memory
      function take_scratch(bytes) result(address) bind(C, name="cnn_take_scratch")
         import :: c_ptr, c_size_t
         implicit none
         !> Size in bytes, a multiple of `alignment`
         integer(c_size_t), value :: bytes
         type(c_ptr) :: address
      end function take_scratch
      subroutine give_back_scratch(address) bind(C, name="cnn_give_back_scratch")
         import :: c_ptr
         implicit none
         !> Address from `allocate_scratch`, or null
         type(c_ptr), value :: address
      end subroutine give_back_scratch
      subroutine c_free(address) bind(C, name="free")
         import :: c_ptr
         implicit none
         !> Address from `aligned_alloc`, or null
         type(c_ptr), value :: address
      end subroutine c_free
   end interface

contains

   !> Memory for so many bytes, to be given back with `c_free`; a null address when there is none
   type(c_ptr) function allocate_aligned(bytes)
      !> Size in bytes
      integer(i8), intent(in) :: bytes
      allocate_aligned = aligned_alloc(alignment, (int(bytes, c_size_t) + alignment - 1)/alignment*alignment)
   end function allocate_aligned

   !> The same for what a call needs until its end, to be given back with `give_back_scratch`
   type(c_ptr) function allocate_scratch(bytes)
      !> Size in bytes
      integer(i8), intent(in) :: bytes
      allocate_scratch = take_scratch((int(bytes, c_size_t) + alignment - 1)/alignment*alignment)
   end function allocate_scratch

   !> At least so many bytes for every thread
   subroutine reserve(self, bytes, error)
      class(scratch_type), intent(inout) :: self
      !> Bytes for each thread
      integer(i8), intent(in) :: bytes
      !> Says that there is no memory
      type(error_type), allocatable, intent(out) :: error
      !> Between the pieces: threads do not write to one cache line, nor to lines that their caches mistake
      integer(i8), parameter :: apart = 4096_i8 + 64_i8
      integer :: threads
      threads = 1
      !$ threads = omp_get_max_threads()
      self%bytes = (bytes + alignment - 1)/alignment*alignment + apart
      self%address = allocate_scratch(self%bytes*threads)
      if (.not. c_associated(self%address)) call fail(error, "device cpu: no memory for "//to_text(threads)// &
         & " x "//to_text(int(min(self%bytes/1024, int(huge(1), i8))))//" KiB of scratch space")
   end subroutine reserve

   !> The piece of a thread, numbered from 1
   type(c_ptr) function part(self, thread)
      class(scratch_type), intent(in) :: self
      !> Number of the thread, from 1
      integer, intent(in) :: thread
      part = address_after(self%address, (thread - 1)*self%bytes)
   end function part

   subroutine release(self)
      class(scratch_type), intent(inout) :: self
      call give_back_scratch(self%address)
      self%address = c_null_ptr
   end subroutine release

end module cnn_cpu_kernels_memory
