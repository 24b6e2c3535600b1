! SPDX-License-Identifier: MIT
!> A step and a gradient on arrays that are on the device, beside the same on host arrays. Prints what must be 0.
program device_arrays
   use, intrinsic :: iso_c_binding, only : c_f_pointer, c_int, c_null_ptr, c_ptr, c_size_t
   use cnn
   implicit none
   integer(c_int), parameter :: to_device = 1, to_host = 2
   integer, parameter :: shape4(4) = [10, 8, 1, 3]
   integer(c_size_t), parameter :: bytes = 4_c_size_t*10*8*3

   interface
      integer(c_int) function cuda_malloc(address, bytes) bind(C, name="cudaMalloc")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Of the new memory
         type(c_ptr), intent(out) :: address
         !> How many
         integer(c_size_t), value :: bytes
      end function cuda_malloc

      integer(c_int) function cuda_malloc_host(address, bytes) bind(C, name="cudaMallocHost")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Of the new memory, which is pinned
         type(c_ptr), intent(out) :: address
         !> How many
         integer(c_size_t), value :: bytes
      end function cuda_malloc_host

      integer(c_int) function cuda_memcpy(to, from, bytes, kind, stream) bind(C, name="cudaMemcpyAsync")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Is overwritten
         type(c_ptr), value :: to
         !> Is read
         type(c_ptr), value :: from
         !> How many
         integer(c_size_t), value :: bytes
         !> Which way
         integer(c_int), value :: kind
         !> The default one
         type(c_ptr), value :: stream
      end function cuda_memcpy

      integer(c_int) function cuda_synchronize(stream) bind(C, name="cudaStreamSynchronize")
         import :: c_int, c_ptr
         implicit none
         !> The default one
         type(c_ptr), value :: stream
      end function cuda_synchronize

      integer(c_int) function cuda_free(address) bind(C, name="cudaFree")
         import :: c_int, c_ptr
         implicit none
         !> Of what `cuda_malloc` has given
         type(c_ptr), value :: address
      end function cuda_free

      integer(c_int) function cuda_free_host(address) bind(C, name="cudaFreeHost")
         import :: c_int, c_ptr
         implicit none
         !> Of what `cuda_malloc_host` has given
         type(c_ptr), value :: address
      end function cuda_free_host
   end interface

   type(network_type) :: there, here
   type(error_type), allocatable :: error
   real(sp), pointer, contiguous :: x(:, :, :, :), found(:, :, :, :)
   real(sp) :: y(10, 8, 1, 3)
   real(sp) :: w(3, 3, 1, 4), w_here(3, 3, 1, 4)
   type(c_ptr) :: on_device(2), pinned(2)
   real(dp) :: loss, loss_here
   integer :: i
   do i = 1, 2
      call check(cuda_malloc(on_device(i), bytes))
      call check(cuda_malloc_host(pinned(i), bytes))
   end do
   call c_f_pointer(pinned(1), x, shape4)
   call c_f_pointer(pinned(2), found, shape4)
   x = reshape([(real(mod(7*i, 23) - 11, sp)/8, i=1, size(x))], shape4)
   call copy(on_device(1), pinned(1), to_device)
   call make(there)
   here = there
   do i = 1, 3
      call there%step(array(1), array(1), sgd(lr=0.125_dp), loss, error)
      call say()
      call here%step(x, x, sgd(lr=0.125_dp), loss_here, error)
      call say()
   end do
   print "(a, es9.2)", "loss ", abs(loss - loss_here)
   call there%forward(array(1), array(2), error)
   call say()
   call here%forward(x, y, error)
   call say()
   call copy(pinned(2), on_device(2), to_host)
   print "(a, es9.2)", "output ", maxval(abs(found - y))
   call there%pull_back(array(1), array(1), array(2), error)
   call say()
   call here%pull_back(x, x, y, error)
   call say()
   call copy(pinned(2), on_device(2), to_host)
   print "(a, es9.2)", "gradient ", maxval(abs(found - y))
   call there%get("a.weight", w, error)
   call here%get("a.weight", w_here, error)
   print "(a, es9.2)", "weight ", maxval(abs(w - w_here))
   call there%forward(device_array(c_null_ptr, shape4, sp), array(2), error)
   print "(a)", error%message
   call there%forward(device_array(on_device(1), shape4, dp), array(2), error)
   print "(a)", error%message
   do i = 1, 2
      call check(cuda_free(on_device(i)))
      call check(cuda_free_host(pinned(i)))
   end do

contains

   subroutine make(net)
      !> Is built on the device
      type(network_type), intent(inout) :: net
      call net%add("a", conv2d(1, 4, kernel_size=3, padding=1))
      call net%add("b", layer("silu"))
      call net%add("c", conv2d(4, 1, kernel_size=3, padding=1))
      call net%build(error, device="cuda", seed=3_i8)
      call say()
   end subroutine make

   type(array_type) function array(i)
      !> Which of both
      integer, intent(in) :: i
      array = device_array(on_device(i), shape4, sp)
   end function array

   !> And wait for it
   subroutine copy(to, from, way)
      !> Is overwritten
      type(c_ptr), intent(in) :: to
      !> As many numbers as x has
      type(c_ptr), intent(in) :: from
      !> to_device or to_host
      integer(c_int), intent(in) :: way
      call check(cuda_memcpy(to, from, bytes, way, c_null_ptr))
      call check(cuda_synchronize(c_null_ptr))
   end subroutine copy

   subroutine check(status)
      !> Of a call of CUDA's
      integer(c_int), intent(in) :: status
      if (status /= 0) error stop "CUDA failed"
   end subroutine check

   subroutine say()
      if (allocated(error)) print "(a)", error%message
   end subroutine say
end program device_arrays
