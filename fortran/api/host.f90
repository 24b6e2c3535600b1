! SPDX-License-Identifier: MIT
!> Work on files and on arrays in host memory.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_host
   use, intrinsic :: iso_c_binding, only : c_double, c_f_pointer, c_int, c_int64_t
   use cnn_api_values, only : hand_over, pointer_to
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : all_finite
   use cnn_io_run_steps, only : run_steps
   use cnn_oracle_deviation, only : find_deviations => deviations
   use cnn_oracle_deviation_type, only : deviation_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: run_file, array_finite, deviations

contains

   !> See cnn_io_run_steps
   subroutine run_file(fixture, result, device, precision, ierr, errmsg)
      !> Name of the file that is read
      character(len=*), intent(in) :: fixture
      !> Name of the file that is written
      character(len=*), intent(in) :: result
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> float32 or float64; empty for the fixture's own
      character(len=*), intent(in) :: precision
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      call run_steps(fixture, result, device, precision, error)
      call hand_over(error, ierr, errmsg)
   end subroutine run_file

   !> 1 when none of the elements in host memory is NaN or infinite, else 0
   subroutine array_finite(dtype, count, address, finite, ierr, errmsg)
      !> Element type, float32 or float64 of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Elements
      integer(c_int64_t), intent(in) :: count
      !> Of the first element, host memory
      integer(c_int64_t), intent(in) :: address
      !> 1 or 0
      integer(c_int), intent(out) :: finite
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      finite = merge(1_c_int, 0_c_int, all_finite(pointer_to(address), dtype, count))
      call hand_over(error, ierr, errmsg)
   end subroutine array_finite

   !> Of up to three tensors (address 0: none) from a value of n elements, see cnn_oracle_deviation.
   !> `dtypes`: theirs, and the value's at the end.
   !> `figures`: address of 8 float64 for each: T, its place, the largest error, sums of x*v, x*x, v*v and (x - v)**2,
   !> and 1 where these figures cannot be relied on, else 0
   subroutine deviations(dtypes, tensors, n, value, bound, bounds, figures, ierr, errmsg)
      !> Element types of the three tensors, and the value's at the end; of cnn_core_kinds
      integer(c_int), intent(in) :: dtypes(4)
      !> Addresses in host memory, of `n` elements each; 0 for none
      integer(c_int64_t), intent(in) :: tensors(3)
      !> Elements of each tensor and of the value
      integer(c_int64_t), intent(in) :: n
      !> Address of what they should be, host memory
      integer(c_int64_t), intent(in) :: value
      !> Address of E, float64, host memory
      integer(c_int64_t), intent(in) :: bound
      !> Elements of the bound: n, or 1 for all
      integer(c_int64_t), intent(in) :: bounds
      !> Address of 8 float64 for each tensor, host memory
      integer(c_int64_t), intent(in) :: figures
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(deviation_type), allocatable :: found(:)
      type(error_type), allocatable :: error
      real(c_double), pointer, contiguous :: numbers(:, :)
      integer :: i, count
      count = findloc([tensors, 0_c_int64_t], 0_c_int64_t, dim=1) - 1
      allocate (found(count))
      call find_deviations(int(dtypes(:count)), [(pointer_to(tensors(i)), i=1, count)], n, int(dtypes(4)), &
         & pointer_to(value), pointer_to(bound), bounds, found, error)
      call c_f_pointer(pointer_to(figures), numbers, [8, count])
      do i = 1, count
         numbers(:, i) = [found(i)%t, real(found(i)%at, c_double), found(i)%largest, found(i)%sums, &
            & merge(1.0_c_double, 0.0_c_double, found(i)%unclear())]
      end do
      call hand_over(error, ierr, errmsg)
   end subroutine deviations

end module cnn_api_host
