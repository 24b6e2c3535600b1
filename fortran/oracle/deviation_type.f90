! SPDX-License-Identifier: MIT
!> What is found of one tensor, or of a run of it, by cnn_oracle_deviation.
module cnn_oracle_deviation_type
   use, intrinsic :: ieee_arithmetic, only : ieee_is_finite
   use, intrinsic :: iso_c_binding, only : c_ptr
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   public :: look_type

   type, public :: deviation_type
      !> The largest |x - v| / E, and the place of the first element that has it, from 0
      real(dp) :: t = 0.0_dp
      integer(i8) :: at = 0_i8
      !> The largest |x - v|
      real(dp) :: largest = 0.0_dp
      !> Sums of x*v, x*x, v*v and (x - v)**2
      real(dp) :: sums(4) = 0.0_dp
      !> The smallest E, and the smallest one that is not 0
      real(dp) :: least = huge(1.0_dp)
      real(dp) :: least_positive = huge(1.0_dp)
      !> 0 where every E is finite, else NaN
      real(dp) :: finite = 0.0_dp
   contains
      procedure :: join
      procedure :: unclear
   end type deviation_type

   abstract interface
      !> Elements `first` to `last` of a tensor and a value of `n` elements of two dtypes; bounds are as many, or one
      subroutine look_type(dtypes, tensor, value, n, e, first, last, found)
         import :: c_ptr, deviation_type, dp, i8
         implicit none
         !> Element types of the tensor and of the value, of cnn_core_kinds
         integer, intent(in) :: dtypes(2)
         !> The tensor, host memory
         type(c_ptr), intent(in) :: tensor
         !> What it should be, host memory
         type(c_ptr), intent(in) :: value
         !> Elements of each
         integer(i8), intent(in) :: n
         !> First element of the run, from 1
         integer(i8), intent(in) :: first
         !> Last element of the run
         integer(i8), intent(in) :: last
         !> Bounds E of all `n` elements, or one for all
         real(dp), intent(in), contiguous :: e(:)
         !> What is found of these elements
         type(deviation_type), intent(out) :: found
      end subroutine look_type
   end interface

contains

   !> A later run of the same tensor
   elemental subroutine join(self, other)
      class(deviation_type), intent(inout) :: self
      !> What is found of elements that come after them
      type(deviation_type), intent(in) :: other
      if (other%t > self%t) then
         self%t = other%t
         self%at = other%at
      end if
      self%largest = max(self%largest, other%largest)
      self%least = min(self%least, other%least)
      self%least_positive = min(self%least_positive, other%least_positive)
      self%sums = self%sums + other%sums
      self%finite = self%finite + other%finite
   end subroutine join

   !> Something is not finite, outside its bound, or so small that the search might have been misled
   elemental logical function unclear(self)
      class(deviation_type), intent(in) :: self
      real(dp), parameter :: smallest_bound = 1.0e-250_dp, smallest_t = 1.0e-50_dp
      unclear = .not. (ieee_is_finite(self%finite) .and. all(ieee_is_finite(self%sums)) .and. self%least >= 0.0_dp)
      unclear = unclear .or. self%least_positive < smallest_bound .or. .not. self%t <= 1.0_dp
      unclear = unclear .or. (self%largest > 0.0_dp .and. self%t < smallest_t)
   end function unclear

end module cnn_oracle_deviation_type
