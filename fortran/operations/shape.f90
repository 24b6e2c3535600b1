! SPDX-License-Identifier: MIT
!> The shape of a tensor of a graph: up to `max_rank` extents, and how many of them there are.
module cnn_operations_shape
   use cnn_core_tensor, only : max_rank
   use cnn_core_text, only : list_length, shape_list
   implicit none
   private

   public :: shape_of

   type, public :: shape_type
      integer :: rank = 0
      !> In Fortran order: torch's (n, c, h, w) is [w, h, c, n], and (n, k) is [k, n], with ones behind
      integer :: extent(max_rank) = 1
   contains
      procedure :: text
   end type shape_type

contains

   !> The shape of these extents
   pure type(shape_type) function shape_of(extents)
      !> One to `max_rank`, in Fortran order
      integer, intent(in) :: extents(:)
      shape_of%rank = size(extents)
      shape_of%extent(:size(extents)) = extents
   end function shape_of

   !> As its reader writes it, torch `(n, c, h, w)`
   pure function text(self)
      class(shape_type), intent(in) :: self
      character(len=list_length(self%extent(:self%rank))) :: text
      text = shape_list(self%extent(:self%rank))
   end function text

end module cnn_operations_shape
