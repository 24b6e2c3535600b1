! SPDX-License-Identifier: MIT
!> cuDNN's descriptors of the tensors met last, so that a training step makes none after the first.
!>
!> A descriptor stays good until two others have been asked for: no call of ours takes more than two tensors.
module cnn_cuda_device_tensor_descriptors
   use, intrinsic :: iso_c_binding, only : c_null_ptr, c_ptr
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_cudnn, only : cudnn_type
   use cnn_cuda_plans_convolution, only : free_tensor_descriptor, make_tensor_descriptor
   implicit none
   private

   !> Shapes of a network: outputs and biases of its layers
   integer, parameter :: most = 64

   type :: described_type
      integer :: dtype = 0, extent(4) = 0
      type(c_ptr) :: descriptor = c_null_ptr
   end type described_type

   type, public :: tensor_descriptors_type
      type(described_type), private :: known(most)
      !> The one given out last, and the one to be replaced next
      integer, private :: last = 0, next = 1
   contains
      procedure :: find
      procedure :: free
   end type tensor_descriptors_type

contains

   !> The descriptor of dense NCHW tensors of this type and extent [w, h, c, n]
   subroutine find(self, dnn, dtype, extent, descriptor, error)
      !> The descriptors known so far, and this one
      class(tensor_descriptors_type), intent(inout) :: self
      !> Makes a descriptor where it is new
      type(cudnn_type), intent(in) :: dnn
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents of the tensor (w, h, c, n)
      integer, intent(in) :: extent(4)
      !> cuDNN's; owned by `self`; null after an error
      type(c_ptr), intent(out) :: descriptor
      !> Where cuDNN makes none
      type(error_type), allocatable, intent(out) :: error
      integer :: i

      descriptor = c_null_ptr
      do i = 1, most
         if (self%known(i)%dtype == dtype .and. all(self%known(i)%extent == extent)) exit
      end do
      if (i > most) then
         ! The caller may still need the one before
         if (self%next == self%last) self%next = mod(self%next, most) + 1
         i = self%next
         self%next = mod(self%next, most) + 1
         call forget(self%known(i), dnn)
         call make_tensor_descriptor(dnn, dtype, extent, self%known(i)%descriptor, error)
         if (allocated(error)) then
            call forget(self%known(i), dnn)
            return
         end if
         self%known(i)%dtype = dtype
         self%known(i)%extent = extent
      end if
      self%last = i
      descriptor = self%known(i)%descriptor
   end subroutine find

   !> Give all back
   subroutine free(self, dnn)
      !> The descriptors; none is known afterwards
      class(tensor_descriptors_type), intent(inout) :: self
      !> The cuDNN that made them
      type(cudnn_type), intent(in) :: dnn
      integer :: i
      do i = 1, most
         call forget(self%known(i), dnn)
      end do
   end subroutine free

   subroutine forget(one, dnn)
      !> One place of the table; free afterwards
      type(described_type), intent(inout) :: one
      !> The cuDNN that made the descriptor
      type(cudnn_type), intent(in) :: dnn
      call free_tensor_descriptor(dnn, one%descriptor)
      one%dtype = 0
      one%extent = 0
   end subroutine forget

end module cnn_cuda_device_tensor_descriptors
