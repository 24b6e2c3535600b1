! SPDX-License-Identifier: MIT
!> Memory that follows the shape of the input.
module cnn_model_resize
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : max_rank, tensor_type
   implicit none
   private

   public :: resize

contains

   !> A tensor of this shape and type: the present one when it fits, else a new one in its place
   subroutine resize(backend, extent, dtype, tensor, moved, error)
      class(backend_type), intent(inout) :: backend
      !> (w, h, c, n) that it shall have
      integer, intent(in) :: extent(max_rank)
      !> Element type that it shall have, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> A tensor of the device, or none yet
      type(tensor_type), intent(inout) :: tensor
      !> Becomes true where the tensor gets another address
      logical, intent(inout) :: moved
      type(error_type), allocatable, intent(out) :: error
      if (tensor%is_allocated() .and. all(tensor%extent == extent) .and. tensor%dtype == dtype) return
      moved = .true.
      call backend%release(tensor)
      call backend%allocate(dtype, extent, tensor, error)
   end subroutine resize

end module cnn_model_resize
