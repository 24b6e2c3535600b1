! SPDX-License-Identifier: MIT
!> The CPU: host memory, OpenMP, im2col and BLAS.
!>
!> Precision.  Products of one output pixel are summed by the BLAS in the tensor's own precision;
!> sums over pixels (filter gradient, bias gradient, loss) are blocked, with float64 totals.
!> Determinism.  Results do not depend on the number of threads.
module cnn_cpu
   use, intrinsic :: iso_c_binding, only : c_associated, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn_backend, only : backend_type
   use cnn_conv_geometry, only : conv_type
   use cnn_error, only : error_type, fail
   use cnn_kernels_f32, only : &
      & bias_f32 => bias_gradient, data_f32 => im2col_backward_data, filter_f32 => im2col_backward_filter, &
      & forward_f32 => im2col_forward, mse_f32 => mse, relu_backward_f32 => relu_backward, &
      & relu_forward_f32 => relu_forward, sgd_f32 => sgd_update
   use cnn_kernels_f64, only : &
      & bias_f64 => bias_gradient, data_f64 => im2col_backward_data, filter_f64 => im2col_backward_filter, &
      & forward_f64 => im2col_forward, mse_f64 => mse, relu_backward_f64 => relu_backward, &
      & relu_forward_f64 => relu_forward, sgd_f64 => sgd_update
   use cnn_kinds, only : dp, dtype_float32, dtype_name
   use cnn_sgd, only : sgd_type
   use cnn_tensor, only : shape_text, tensor_type
   implicit none
   private

   type, extends(backend_type), public :: cpu_type
      real(dp), private :: loss = 0.0_dp
   contains
      procedure :: allocate => cpu_allocate
      procedure :: release => cpu_release
      procedure :: clear => cpu_clear
      procedure :: copy_in => cpu_copy_in
      procedure :: copy_out => cpu_copy_out
      procedure :: conv_forward => cpu_conv_forward
      procedure :: conv_backward_data => cpu_conv_backward_data
      procedure :: conv_backward_filter => cpu_conv_backward_filter
      procedure :: conv_backward_bias => cpu_conv_backward_bias
      procedure :: relu_forward => cpu_relu_forward
      procedure :: relu_backward => cpu_relu_backward
      procedure :: mse => cpu_mse
      procedure :: read_loss => cpu_read_loss
      procedure :: update => cpu_update
      procedure :: convert => cpu_convert
      procedure :: use_stream => cpu_use_stream
      procedure :: wait => cpu_wait
   end type cpu_type

   interface
      !> C11 <stdlib.h>; `bytes` is a multiple of `alignment`
      function aligned_alloc(alignment, bytes) result(address) bind(C, name="aligned_alloc")
         import :: c_ptr, c_size_t
         implicit none
         integer(c_size_t), value :: alignment, bytes
         type(c_ptr) :: address
      end function aligned_alloc
      !> C <string.h>; the returned address is `to` and not needed, so it is called as a subroutine
      subroutine c_memmove(to, from, bytes) bind(C, name="memmove")
         import :: c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: to, from
         integer(c_size_t), value :: bytes
      end subroutine c_memmove
      !> C <string.h>; called as a subroutine, as memmove
      subroutine c_memset(address, byte, bytes) bind(C, name="memset")
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: address
         integer(c_int), value :: byte
         integer(c_size_t), value :: bytes
      end subroutine c_memset
      subroutine c_free(address) bind(C, name="free")
         import :: c_ptr
         implicit none
         type(c_ptr), value :: address
      end subroutine c_free
   end interface

contains

   subroutine cpu_allocate(self, dtype, extent, tensor, error)
      class(cpu_type), intent(inout) :: self
      integer, intent(in) :: dtype, extent(4)
      type(tensor_type), intent(out) :: tensor
      type(error_type), allocatable, intent(out) :: error
      integer(c_size_t), parameter :: alignment = 64
      integer(c_size_t) :: bytes
      tensor%dtype = dtype
      tensor%extent = extent
      bytes = (int(tensor%bytes(), c_size_t) + alignment - 1)/alignment*alignment
      tensor%address = aligned_alloc(alignment, bytes)
      if (tensor%is_allocated()) then
         self%live_tensors = self%live_tensors + 1
      else
         call fail(error, "no host memory for a "//dtype_name(dtype)//" tensor "//shape_text(extent))
      end if
   end subroutine cpu_allocate

   subroutine cpu_release(self, tensor)
      class(cpu_type), intent(inout) :: self
      type(tensor_type), intent(inout) :: tensor
      if (.not. tensor%is_allocated()) return
      call c_free(tensor%address)
      tensor%address = c_null_ptr
      self%live_tensors = self%live_tensors - 1
   end subroutine cpu_release

   subroutine cpu_clear(self, tensor, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memset(tensor%address, 0_c_int, int(tensor%bytes(), c_size_t))
   end subroutine cpu_clear

   subroutine cpu_copy_in(self, host, tensor, error)
      class(cpu_type), intent(in) :: self
      type(c_ptr), intent(in) :: host
      type(tensor_type), intent(in) :: tensor
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memmove(tensor%address, host, int(tensor%bytes(), c_size_t))
   end subroutine cpu_copy_in

   subroutine cpu_copy_out(self, tensor, host, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: tensor
      type(c_ptr), intent(in) :: host
      type(error_type), allocatable, intent(out) :: error
      call self%require(tensor, error)
      if (allocated(error)) return
      call c_memmove(host, tensor%address, int(tensor%bytes(), c_size_t))
   end subroutine cpu_copy_out

   subroutine cpu_conv_forward(self, conv, x, w, bias, relu, y, error)
      class(cpu_type), intent(in) :: self
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, w, bias
      logical, intent(in) :: relu
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      call self%require(x, error)
      if (allocated(error)) return
      if (x%dtype == dtype_float32) then
         call forward_f32(conv, x, w, bias, y, error)
      else
         call forward_f64(conv, x, w, bias, y, error)
      end if
      if (.not. allocated(error) .and. relu) call self%relu_forward(y, y, error)
   end subroutine cpu_conv_forward

   subroutine cpu_conv_backward_data(self, conv, w, dy, dx, error)
      class(cpu_type), intent(in) :: self
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: w, dy, dx
      type(error_type), allocatable, intent(out) :: error
      call self%require(dy, error)
      if (allocated(error)) return
      if (dy%dtype == dtype_float32) then
         call data_f32(conv, w, dy, dx, error)
      else
         call data_f64(conv, w, dy, dx, error)
      end if
   end subroutine cpu_conv_backward_data

   subroutine cpu_conv_backward_filter(self, conv, x, dy, dw, error)
      class(cpu_type), intent(in) :: self
      type(conv_type), intent(in) :: conv
      type(tensor_type), intent(in) :: x, dy, dw
      type(error_type), allocatable, intent(out) :: error
      call self%require(x, error)
      if (allocated(error)) return
      if (x%dtype == dtype_float32) then
         call filter_f32(conv, x, dy, dw, error)
      else
         call filter_f64(conv, x, dy, dw, error)
      end if
   end subroutine cpu_conv_backward_filter

   subroutine cpu_conv_backward_bias(self, dy, db, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: dy, db
      type(error_type), allocatable, intent(out) :: error
      call self%require(dy, error)
      if (allocated(error)) return
      if (dy%dtype == dtype_float32) then
         call bias_f32(dy, db)
      else
         call bias_f64(dy, db)
      end if
   end subroutine cpu_conv_backward_bias

   subroutine cpu_relu_forward(self, z, a, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: z, a
      type(error_type), allocatable, intent(out) :: error
      call self%require(z, error)
      if (allocated(error)) return
      if (z%dtype == dtype_float32) then
         call relu_forward_f32(z, a)
      else
         call relu_forward_f64(z, a)
      end if
   end subroutine cpu_relu_forward

   subroutine cpu_relu_backward(self, z, da, dz, db, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: z, da, dz, db
      type(error_type), allocatable, intent(out) :: error
      call self%require(z, error)
      if (allocated(error)) return
      if (z%dtype == dtype_float32) then
         call relu_backward_f32(z, da, dz)
      else
         call relu_backward_f64(z, da, dz)
      end if
      if (db%is_allocated()) call self%conv_backward_bias(dz, db, error)
   end subroutine cpu_relu_backward

   subroutine cpu_mse(self, y, target, scale, dy, error)
      class(cpu_type), intent(inout) :: self
      type(tensor_type), intent(in) :: y, target
      real(dp), intent(in) :: scale
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      call self%require(y, error)
      if (allocated(error)) return
      if (y%dtype == dtype_float32) then
         call mse_f32(y, target, scale, self%loss, dy, error)
      else
         call mse_f64(y, target, scale, self%loss, dy, error)
      end if
   end subroutine cpu_mse

   subroutine cpu_read_loss(self, loss, error)
      class(cpu_type), intent(in) :: self
      real(dp), intent(out) :: loss
      type(error_type), allocatable, intent(out) :: error
      loss = self%loss
      ! Nothing can go wrong here: an unallocated error is what the caller expects
      if (allocated(error)) deallocate (error)
   end subroutine cpu_read_loss

   subroutine cpu_update(self, sgd, first, w, g, v, error)
      class(cpu_type), intent(in) :: self
      type(sgd_type), intent(in) :: sgd
      logical, intent(in) :: first
      type(tensor_type), intent(in) :: w, g, v
      type(error_type), allocatable, intent(out) :: error
      call self%require(w, error)
      if (allocated(error)) return
      if (w%dtype == dtype_float32) then
         call sgd_f32(sgd, first, w, g, v)
      else
         call sgd_f64(sgd, first, w, g, v)
      end if
   end subroutine cpu_update

   subroutine cpu_convert(self, from, to, error)
      class(cpu_type), intent(in) :: self
      type(tensor_type), intent(in) :: from, to
      type(error_type), allocatable, intent(out) :: error
      if (from%dtype == to%dtype) then
         call self%copy_in(from%address, to, error)
      else
         call fail(error, "device "//self%name//": no conversion from "//dtype_name(from%dtype)//" to "// &
            & dtype_name(to%dtype))
      end if
   end subroutine cpu_convert

   !> There are none: all work is done when its call returns
   subroutine cpu_use_stream(self, stream, own, error)
      class(cpu_type), intent(in) :: self
      type(c_ptr), intent(in) :: stream
      logical, intent(in) :: own
      type(error_type), allocatable, intent(out) :: error
      if (.not. own .and. c_associated(stream)) call fail(error, "device "//self%name//": has no streams")
   end subroutine cpu_use_stream

   !> Nothing is ever queued
   subroutine cpu_wait(self, error)
      class(cpu_type), intent(in) :: self
      type(error_type), allocatable, intent(out) :: error
      if (self%live_tensors < 0) call fail(error, "device "//self%name//": more tensors released than allocated")
   end subroutine cpu_wait

end module cnn_cpu
