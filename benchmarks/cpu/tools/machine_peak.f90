! SPDX-License-Identifier: MIT
!> What this machine can do at most: multiply-adds that stay in registers, and a triad that does not stay in caches.
!>
!> `machine_peak MEBIBYTES SECONDS` prints three lines: "float32 GFLOP/s", "float64 GFLOP/s" and "triad GB/s", each with
!> its number. MEBIBYTES is the length of each of the triad's three arrays, SECONDS how long each of the three takes.
!> A multiply-add is two operations; the triad a = b + s*c counts 24 bytes for an element, as STREAM does.
!>
!> Twelve independent chains hide the latency of a multiply-add. LANES (of the preprocessor) is the number of float32
!> that a vector register holds; `benchmarks/cpu/tools/machine_peak.py` tries them all.
program machine_peak
   use, intrinsic :: iso_fortran_env, only : dp => real64, error_unit, i8 => int64, sp => real32
   !$ use omp_lib, only : omp_get_max_threads
   implicit none

   integer, parameter :: chains = 12
   integer, parameter :: wide = LANES*chains
   !> Below 1, so that the numbers stay finite however long it takes
   real(dp), parameter :: factor = 0.9999_dp
   integer :: threads, mebibytes, status
   real(dp) :: seconds
   character(len=32) :: text

   call get_command_argument(1, text)
   read (text, *, iostat=status) mebibytes
   call get_command_argument(2, text)
   if (status == 0) read (text, *, iostat=status) seconds
   if (status /= 0) then
      write (error_unit, "(a)") "usage: machine_peak MEBIBYTES SECONDS"
      error stop 2
   end if
   threads = 1
   !$ threads = omp_get_max_threads()
   write (*, "(a,f0.3)") "float32 GFLOP/s ", rate(32)
   write (*, "(a,f0.3)") "float64 GFLOP/s ", rate(64)
   write (*, "(a,f0.3)") "triad GB/s ", bandwidth()

contains

   !> GFLOP/s of all threads in numbers of so many bits; repeats grow until it takes long enough
   real(dp) function rate(bits)
      integer, intent(in) :: bits
      integer(i8) :: repeats, operations
      real(dp) :: taken
      repeats = 100000
      do
         taken = chains_seconds(bits, repeats)
         if (taken >= seconds) exit
         repeats = repeats*2
      end do
      operations = 2_i8*repeats*chains*LANES*32/bits*threads
      rate = real(operations, dp)/taken*1.0e-9_dp
   end function rate

   real(dp) function chains_seconds(bits, repeats)
      integer, intent(in) :: bits
      integer(i8), intent(in) :: repeats
      integer(i8) :: begin, now, ticks
      real(dp) :: total
      total = 0.0_dp
      call system_clock(begin, ticks)
      !$omp parallel reduction(+:total)
      if (bits == 32) then
         total = total + run_sp(repeats, real(factor, sp))
      else
         total = total + run_dp(repeats, factor)
      end if
      !$omp end parallel
      call system_clock(now)
      chains_seconds = real(now - begin, dp)/real(ticks, dp)
      ! uses the result, so that the work cannot be left out
      if (total < 0.0_dp) write (error_unit, "(a)") "machine_peak: a sum of positive numbers is negative"
   end function chains_seconds

   pure real(dp) function run_sp(repeats, b)
      integer(i8), intent(in) :: repeats
      real(sp), intent(in) :: b
      real(sp) :: q(wide)
      integer(i8) :: i
      integer :: l
      q = [(real(l, sp), l=1, wide)]
      do i = 1, repeats
         do l = 1, wide
            q(l) = q(l)*b + 1.0_sp
         end do
      end do
      run_sp = real(sum(q), dp)
   end function run_sp

   pure real(dp) function run_dp(repeats, b)
      integer(i8), intent(in) :: repeats
      real(dp), intent(in) :: b
      real(dp) :: q(wide/2)
      integer(i8) :: i
      integer :: l
      q = [(real(l, dp), l=1, wide/2)]
      do i = 1, repeats
         do l = 1, wide/2
            q(l) = q(l)*b + 1.0_dp
         end do
      end do
      run_dp = sum(q)
   end function run_dp

   !> GB/s of all threads, the fastest pass
   real(dp) function bandwidth()
      real(dp), allocatable :: a(:), b(:), c(:)
      integer(i8) :: begin, now, start, ticks, i, length
      real(dp) :: taken
      length = int(mebibytes, i8)*2_i8**17
      allocate (a(length), b(length), c(length))
      !$omp parallel do schedule(static)
      do i = 1, length
         a(i) = 0.0_dp
         b(i) = 1.0_dp
         c(i) = 2.0_dp
      end do
      !$omp end parallel do
      bandwidth = 0.0_dp
      call system_clock(start, ticks)
      do
         call system_clock(begin)
         !$omp parallel do schedule(static)
         do i = 1, length
            a(i) = b(i) + factor*c(i)
         end do
         !$omp end parallel do
         call system_clock(now)
         taken = real(now - begin, dp)/real(ticks, dp)
         bandwidth = max(bandwidth, 24.0e-9_dp*real(length, dp)/taken)
         if (real(now - start, dp)/real(ticks, dp) >= seconds) exit
      end do
      if (a(length) < 0.0_dp) write (error_unit, "(a)") "machine_peak: a sum of positive numbers is negative"
   end function bandwidth

end program machine_peak
