! SPDX-License-Identifier: MIT
!> Random numbers that are the same on every machine for the same seed.
!>
!> Source.  P. L'Ecuyer, Good parameters and implementations for combined multiple recursive random number generators,
!>          Operations Research 47 (1999), MRG32k3a; G. Box and M. Muller, Annals of Mathematical Statistics 29 (1958).
module cnn_library_random
   use cnn_core_kinds, only : dp, i8
   implicit none
   private

   !> Of the two recursions
   integer(i8), parameter :: modulus(2) = [4294967087_i8, 4294944443_i8]
   real(dp), parameter :: pi = acos(-1.0_dp)

   type, public :: generator_type
      !> The last three numbers of each recursion, the newest first
      integer(i8), private :: last(3, 2) = 12345_i8
   contains
      procedure :: seed
      procedure :: uniform
      procedure :: normal
      procedure, private :: next
   end type generator_type

contains

   !> Begin anew
   pure subroutine seed(self, number, stream)
      !> The generator
      class(generator_type), intent(inout) :: self
      !> Any; another one gives other numbers
      integer(i8), intent(in) :: number
      !> Any; of the same number other numbers; 0 where it is not given
      integer(i8), intent(in), optional :: stream
      integer(i8), parameter :: lehmer = 2147483647_i8
      integer(i8) :: x(2)
      real(dp) :: unused
      integer :: i
      x = [number, 0_i8]
      if (present(stream)) x(2) = stream
      x = modulo(x, lehmer - 1_i8) + 1_i8
      do i = 1, 3
         x = modulo(48271_i8*x, lehmer)
         self%last(i, :) = x
      end do
      ! Seeds that are near each other begin alike
      do i = 1, 20
         call self%next(unused)
      end do
   end subroutine seed

   !> A number between 0 and 1, to 53 bits; never 0 or 1
   pure subroutine uniform(self, u)
      !> The generator
      class(generator_type), intent(inout) :: self
      !> The next number
      real(dp), intent(out) :: u
      real(dp) :: more
      call self%next(u)
      call self%next(more)
      u = u + more*2.0_dp**(-24)
      if (u >= 1.0_dp) u = u - 1.0_dp
   end subroutine uniform

   !> A number of the normal distribution, with mean 0 and variance 1
   pure subroutine normal(self, z)
      !> The generator
      class(generator_type), intent(inout) :: self
      !> The next number
      real(dp), intent(out) :: z
      real(dp) :: u, angle
      call self%uniform(u)
      call self%uniform(angle)
      z = sqrt(-2.0_dp*log(u))*cos(2.0_dp*pi*angle)
   end subroutine normal

   !> A number between 0 and 1, to 32 bits
   pure subroutine next(self, u)
      !> The generator
      class(generator_type), intent(inout) :: self
      !> The next number
      real(dp), intent(out) :: u
      integer(i8) :: new(2), difference
      new = modulo([1403580_i8*self%last(2, 1) - 810728_i8*self%last(3, 1), &
         & 527612_i8*self%last(1, 2) - 1370589_i8*self%last(3, 2)], modulus)
      self%last(2:3, :) = self%last(1:2, :)
      self%last(1, :) = new
      difference = modulo(new(1) - new(2), modulus(1))
      if (difference == 0_i8) difference = modulus(1)
      u = real(difference, dp)/real(modulus(1) + 1_i8, dp)
   end subroutine next

end module cnn_library_random
