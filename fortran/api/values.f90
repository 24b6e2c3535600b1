! SPDX-License-Identifier: MIT
!> What the faces have in common: numbers become the types that they stand for, an error becomes a number and a text.
!>
!> Networks are numbered handles. Tensors are addresses with an element type (`dtype_*` of cnn_core_kinds) and an extent
!> in Fortran order [w, h, c, n]; address 0 means "none". Every procedure of a face ends with `ierr` (0 good, 1 failed,
!> 2 a training diverges) and `errmsg`. Nothing here checks that an address is good: that is the work of
!> `bridge/engine/library/extension.py`, the only caller.
module cnn_api_values
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t, c_intptr_t, c_null_ptr, c_ptr
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : extent_of, tensor_type
   use cnn_optimizers_optimizer, only : optimizer_type, setting_type
   use cnn_optimizers_registry, only : make_optimizer
   implicit none
   private

   public :: conv_from, tensor_at, pointer_to, optimizer_of, hand_over

   !> Characters of a message
   integer, parameter :: message_length = 512

contains

   pure type(conv_type) function conv_from(params)
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      conv_from = conv_type(params(1), params(2), params(3), params(4), params(5), params(6), params(7))
   end function conv_from

   type(tensor_type) function tensor_at(address, dtype, extent)
      !> Of the first element; 0 for none
      integer(c_int64_t), intent(in) :: address
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> In Fortran order, with ones behind its own where it has fewer
      integer, intent(in) :: extent(:)
      tensor_at%address = pointer_to(address)
      tensor_at%dtype = dtype
      tensor_at%extent = extent_of(extent)
   end function tensor_at

   type(c_ptr) function pointer_to(address)
      !> As a number
      integer(c_int64_t), intent(in) :: address
      pointer_to = transfer(int(address, c_intptr_t), c_null_ptr)
   end function pointer_to

   !> An optimizer from its type and its settings
   subroutine optimizer_of(kind, settings, optimizer, error)
      !> Type in exchange files
      character(len=*), intent(in) :: kind
      !> In their order there; what is behind them is not looked at
      real(c_double), intent(in) :: settings(:)
      !> The new one
      class(optimizer_type), allocatable, intent(out) :: optimizer
      !> No such optimizer, or a setting that is out of its range
      type(error_type), allocatable, intent(out) :: error
      type(setting_type), allocatable :: known(:)
      call make_optimizer(kind, optimizer, error)
      if (allocated(error)) return
      allocate (known, source=optimizer%settings())
      call optimizer%set(settings(:size(known)), error)
   end subroutine optimizer_of

   subroutine hand_over(error, ierr, errmsg)
      !> Not allocated where all is well
      type(error_type), allocatable, intent(in) :: error
      !> 0 good, 1 failed, 2 a training diverges, 3 an argument is not finite
      integer(c_int), intent(out) :: ierr
      !> The message, blank where all is well
      character(len=message_length), intent(out) :: errmsg
      ierr = 0
      errmsg = ""
      if (.not. allocated(error)) return
      ierr = merge(2, 1, error%diverged)
      if (error%not_finite) ierr = 3
      errmsg = error%message
   end subroutine hand_over

end module cnn_api_values
