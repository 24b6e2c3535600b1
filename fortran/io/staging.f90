! SPDX-License-Identifier: MIT
!> One host buffer through which tensors pass on their way between a file and a network's device.
!>
!> The buffer is kept: fresh memory for every tensor would cost more time than the copy. Tensors of a network on the
!> host need none: they are written from where they are, and new ones are read to where they will be.
module cnn_io_staging
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : tensor_type
   use cnn_cpu_backend, only : cpu_type
   implicit none
   private

   !> Host memory that grows to the largest tensor
   type, public :: staging_type
      type(cpu_type) :: host
      type(tensor_type) :: buffer
   contains
      procedure :: like
      procedure :: free
   end type staging_type

contains

   !> A host tensor with the type and shape of `tensor`, in the buffer's memory
   subroutine like(self, tensor, staged, error)
      class(staging_type), intent(inout) :: self
      !> A tensor of any device
      type(tensor_type), intent(in) :: tensor
      !> Host tensor of its type and shape
      type(tensor_type), intent(out) :: staged
      type(error_type), allocatable, intent(out) :: error
      if (.not. self%buffer%is_allocated() .or. self%buffer%bytes() < tensor%bytes()) then
         call self%host%release(self%buffer)
         call self%host%allocate(tensor%dtype, tensor%extent, self%buffer, error)
         if (allocated(error)) return
      end if
      staged = tensor
      staged%address = self%buffer%address
   end subroutine like

   subroutine free(self)
      class(staging_type), intent(inout) :: self
      call self%host%release(self%buffer)
   end subroutine free

end module cnn_io_staging
