! SPDX-License-Identifier: MIT
!> How far tensors are from a value, in units of a bound: T = max |x - v| / E, and the sums that stand beside it.
!>
!> For the comparison of large tensors (bridge/judge/measure/fast_statistics.py), in one pass over memory. It shares
!> nothing with the kernels that are judged, and condemns nobody: what is not finite, outside its bound, or near
!> underflow is `unclear`, and left to numpy.
!>
!> Order.  Sums of runs are added in the order of the runs, and a run does not depend on the number of threads.
module cnn_oracle_deviation
   use, intrinsic :: iso_c_binding, only : c_f_pointer, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, i8
   use cnn_cpu_instruction_sets, only : choose_level
   use cnn_oracle_deviation_levels, only : look_of
   use cnn_oracle_deviation_type, only : deviation_type, look_type
   implicit none
   private

   public :: deviations

   !> Elements of a run
   integer(i8), parameter :: run = 65536_i8

contains

   !> Deviations of tensors from a value, in units of a bound
   subroutine deviations(dtypes, tensors, n, value_dtype, value, bound, bounds, found, error)
      !> Element types of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtypes(:)
      !> Element type of the value
      integer, intent(in) :: value_dtype
      !> Addresses of the tensors, host memory, `n` elements each
      type(c_ptr), intent(in) :: tensors(:)
      !> Elements of each tensor and of the value
      integer(i8), intent(in) :: n
      !> Elements of the bound: n, or 1 for all
      integer(i8), intent(in) :: bounds
      !> What the tensors should be, host memory, `n` elements
      type(c_ptr), intent(in) :: value
      !> E, float64, host memory, `bounds` elements
      type(c_ptr), intent(in) :: bound
      !> What is found of each tensor
      type(deviation_type), intent(out) :: found(:)
      !> No memory for the runs, or an unknown instruction set
      type(error_type), allocatable, intent(out) :: error
      procedure(look_type), pointer :: look
      real(dp), pointer, contiguous :: e(:)
      type(deviation_type), allocatable :: runs(:, :)
      integer(i8) :: r, first, last
      integer :: i, level, stat

      call choose_level(level, error)
      if (allocated(error)) return
      look => look_of(level)
      call c_f_pointer(bound, e, [bounds])
      allocate (runs(size(tensors), (n + run - 1)/run), stat=stat)
      if (stat /= 0) then
         call fail(error, "deviations: no memory for the figures of each run")
         return
      end if
      !$omp parallel do schedule(static) private(first, last, i)
      do r = 1, size(runs, 2, kind=i8)
         first = (r - 1)*run + 1
         last = min(first + run - 1, n)
         do i = 1, size(tensors)
            call look([dtypes(i), value_dtype], tensors(i), value, n, e, first, last, runs(i, r))
         end do
      end do
      !$omp end parallel do
      do r = 1, size(runs, 2, kind=i8)
         call found%join(runs(:, r))
      end do
   end subroutine deviations

end module cnn_oracle_deviation
