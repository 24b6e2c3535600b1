! SPDX-License-Identifier: MIT
!> What operations are computed by, beside a device's convolutions: primitives, each with a name, on tensors of one
!> device and one precision.
!>
!> A primitive is a loop over host tensors with a row in primitives.inc, and for devices whose tensors are elsewhere, a
!> kernel, or several, under the same name. Its tensors come in the order of the loop's arguments, those that it writes
!> last.
module cnn_operations_primitives
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : tensor_type
   use cnn_operations_loops_levels, only : loops_of
   use cnn_operations_loops_table, only : loops_type
   implicit none
   private

   public :: compute

contains

   !> Run a primitive, wherever its tensors are
   subroutine compute(backend, name, tensors, error, integers, reals)
      !> The device
      class(backend_type), intent(in) :: backend
      !> Of the primitive
      character(len=*), intent(in) :: name
      !> In the device's memory; the last is one that it writes
      type(tensor_type), intent(in) :: tensors(:)
      !> A tensor without memory, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      !> Settings, in the primitive's order
      integer, intent(in), optional :: integers(:)
      !> The same
      real(dp), intent(in), optional :: reals(:)
      integer, allocatable :: whole(:)
      real(dp), allocatable :: numbers(:)
      logical :: known

      call backend%require(tensors(size(tensors)), error)
      if (allocated(error)) return
      allocate (whole(0), numbers(0))
      if (present(integers)) whole = integers
      if (present(reals)) numbers = reals
      if (backend%in_host_memory) then
         call run_loop(loops_of(tensors(size(tensors))%dtype), name, tensors, whole, numbers, known)
         if (.not. known) call fail(error, "device "//backend%name//": no primitive "//name)
      else
         call backend%compute(name, tensors, whole, numbers, error)
      end if
   end subroutine compute

   !> The primitives by their names: one row each
   subroutine run_loop(loops, name, t, i, r, known)
      !> Of the precision
      type(loops_type), intent(in) :: loops
      !> Of the primitive
      character(len=*), intent(in) :: name
      !> Tensors in host memory
      type(tensor_type), intent(in) :: t(:)
      !> Settings
      integer, intent(in) :: i(:)
      !> Settings
      real(dp), intent(in) :: r(:)
      !> Whether there is one of that name
      logical, intent(out) :: known
      known = .true.
      select case (name)
       case ("accumulate")
         call loops%accumulate(t(1), t(2))
       case ("add_bias")
         call loops%add_bias(t(1), t(2))
       case ("avg_pool")
         call loops%mean(t(1), i(1:2), i(3:4), i(5:6), t(2))
       case ("avg_pool_backward")
         call loops%mean_backward(t(1), i(1:2), i(3:4), i(5:6), t(2))
       case ("batch_norm")
         call loops%batch_norm(t(1), t(2), t(3), t(4), t(5), i(1) == 1, r(1), r(2), t(6), t(7))
       case ("batch_norm_backward")
         call loops%batch_norm_backward(t(1), t(2), t(3), t(4), i(1) == 1, t(5), t(6), t(7))
       case ("combine")
         call loops%combine(t(1), t(2), i(1), t(3))
       case ("combine_backward")
         call loops%combine_backward(t(1), t(2), t(3), i(1), i(2), t(4))
       case ("copy")
         call loops%copy(t(1), t(2))
       case ("dropout")
         call loops%dropout(t(1), t(2), i(1), r(1), t(3))
       case ("extreme")
         call loops%extreme(t(1), i(1), t(2))
       case ("extreme_backward")
         call loops%extreme_backward(t(1), t(2), t(3), i(1) == 1, t(4))
       case ("from_channels")
         call loops%from_channels(t(1), i(1), i(2), t(2))
       case ("max_pool")
         call loops%max(t(1), i(1:2), i(3:4), i(5:6), t(2))
       case ("max_pool_backward")
         call loops%max_backward(t(1), t(2), i(1:2), i(3:4), i(5:6), t(3))
       case ("pointwise")
         call loops%pointwise(t(1), i(1), r(1:2), t(2))
       case ("pointwise_backward")
         call loops%pointwise_backward(t(1), t(2), i(1), r(1:2), t(3))
       case ("resample")
         call loops%resample(t(1), i(1), i(2:3), t(2))
       case ("resample_backward")
         call loops%resample_backward(t(1), i(1), i(2:3), t(2))
       case ("row_norm")
         call loops%row_norm(t(1), t(2), t(3), i(1:3), r(1), t(4))
       case ("row_norm_backward")
         call loops%row_norm_backward(t(1), t(2), t(3), i(1:3), r(1), t(4), t(5), t(6))
       case ("softmax")
         call loops%softmax(t(1), i(1), i(2) == 1, t(2))
       case ("softmax_backward")
         call loops%softmax_backward(t(1), t(2), i(1), i(2) == 1, t(3))
       case ("spline")
         call loops%spline(t(1), t(2), t(3), t(4), i(1:2), r(1), r(2), t(5))
       case ("spline_backward")
         call loops%spline_backward(t(1), t(2), t(3), t(4), t(5), i(1:2), r(1), r(2), t(6))
       case ("spline_gradients")
         call loops%spline_gradients(t(1), t(2), t(3), t(4), i(1:2), r(1), r(2), t(5), t(6), t(7))
       case ("spread")
         call loops%spread(t(1), r(1), t(2))
       case ("sum_to")
         call loops%sum_to(t(1), r(1), t(2))
       case ("to_channels")
         call loops%to_channels(t(1), i(1), i(2), t(2))
       case ("transpose")
         call loops%transpose(t(1), i(1:2), t(2))
       case default
         known = .false.
      end select
   end subroutine run_loop

end module cnn_operations_primitives
