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
   use cnn_core_kinds, only : dp, dtype_float32
   use cnn_core_tensor, only : tensor_type
   use cnn_operations_loops_f32, only : run_f32 => run_primitive
   use cnn_operations_loops_f64, only : run_f64 => run_primitive
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
      if (.not. backend%in_host_memory) then
         call backend%compute(name, tensors, whole, numbers, error)
         return
      end if
      if (tensors(size(tensors))%dtype == dtype_float32) then
         call run_f32(name, tensors, whole, numbers, known)
      else
         call run_f64(name, tensors, whole, numbers, known)
      end if
      if (.not. known) call fail(error, "device "//backend%name//": no primitive "//name)
   end subroutine compute

end module cnn_operations_primitives
