! SPDX-License-Identifier: MIT
!> Losses of a network's output and a target of its shape.
module cnn_operations_losses
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_operations_loops, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   implicit none
   private

   !> Types of losses in exchange files, torch's names
   character(len=*), parameter, public :: loss_kinds(3) = [character(len=13) :: "mse", "l1", "cross_entropy"]

   type, public :: criterion_type
      !> One of `loss_kinds`
      character(len=:), allocatable :: kind
      !> A mean over all elements (of the cross entropy over images and pixels), else a sum
      logical :: mean = .true.
   contains
      procedure :: compute
   end type criterion_type

contains

   !> The loss, and its gradient with respect to the output
   subroutine compute(self, backend, output, target, rank, gradient, loss, error)
      !> Which one
      class(criterion_type), intent(in) :: self
      !> The device
      class(backend_type), intent(inout) :: backend
      !> Of the network
      type(tensor_type), intent(in) :: output
      !> What it should be, of its shape; classes as probabilities
      type(tensor_type), intent(in) :: target
      !> Number of their dimensions
      integer, intent(in) :: rank
      !> With respect to the output, is overwritten
      type(tensor_type), intent(in) :: gradient
      !> Of all images
      real(dp), intent(out) :: loss
      !> The output has no channels, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: scale

      loss = 0.0_dp
      scale = 1.0_dp
      if (self%mean) scale = 1.0_dp/real(output%count(), dp)
      if (self%kind == "mse") then
         call backend%mse(output, target, scale, gradient, error)
         if (.not. allocated(error)) call backend%read_loss(loss, error)
      else if (self%kind == "l1") then
         call compute_other(backend, self%kind, output, target, 0, scale, gradient, loss, error)
      else if (rank < 2) then
         call fail(error, "loss "//self%kind//": the output has no channels, expected two dimensions or more")
      else
         if (self%mean) scale = scale*output%extent(rank - 1)
         call compute_other(backend, self%kind, output, target, rank - 1, scale, gradient, loss, error)
      end if
   end subroutine compute

   !> A loss that is a loop over host tensors, or a kernel of the device
   subroutine compute_other(backend, kind, output, target, axis, scale, gradient, loss, error)
      !> The device
      class(backend_type), intent(inout) :: backend
      !> Of the loss
      character(len=*), intent(in) :: kind
      !> Of the network
      type(tensor_type), intent(in) :: output
      !> What it should be
      type(tensor_type), intent(in) :: target
      !> Of the channels, in Fortran order; 0 where they do not matter
      integer, intent(in) :: axis
      !> The factor
      real(dp), intent(in) :: scale
      !> With respect to the output, is overwritten
      type(tensor_type), intent(in) :: gradient
      !> Of all images
      real(dp), intent(out) :: loss
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      type(loops_type) :: loops
      loss = 0.0_dp
      if (.not. backend%in_host_memory) then
         call backend%other_loss(kind, output, target, axis, scale, gradient, error)
         if (.not. allocated(error)) call backend%read_loss(loss, error)
         return
      end if
      loops = loops_of(output%dtype)
      if (kind == "l1") then
         call loops%absolute(output, target, scale, gradient, loss)
      else
         call loops%cross_entropy(output, target, axis, scale, gradient, loss)
      end if
   end subroutine compute_other

end module cnn_operations_losses
