! SPDX-License-Identifier: MIT
!> A network applied to an array that is in a GPU's memory, where its output stays. With CUDA Fortran the addresses are
!> `c_devloc(x)`, with OpenACC `c_loc(x)` inside `host_data use_device(x)`; here they are the CUDA runtime's own.
!>
!>     gfortran gpu_arrays.f90 $(pkg-config --cflags --libs cnn) -lcudart -o gpu_arrays
program gpu_arrays
   use, intrinsic :: iso_c_binding, only : c_int, c_loc, c_ptr, c_size_t, c_sizeof
   use cnn
   implicit none
   integer(c_int), parameter :: to_device = 1, to_host = 2
   integer, parameter :: extents(4) = [64, 48, 1, 2]

   interface
      integer(c_int) function cuda_malloc(address, bytes) bind(C, name="cudaMalloc")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Of the new memory
         type(c_ptr), intent(out) :: address
         !> How many
         integer(c_size_t), value :: bytes
      end function cuda_malloc

      integer(c_int) function cuda_memcpy(to, from, bytes, way) bind(C, name="cudaMemcpy")
         import :: c_int, c_ptr, c_size_t
         implicit none
         !> Is overwritten
         type(c_ptr), value :: to
         !> Is read
         type(c_ptr), value :: from
         !> How many
         integer(c_size_t), value :: bytes
         !> to_device or to_host
         integer(c_int), value :: way
      end function cuda_memcpy

      integer(c_int) function cuda_free(address) bind(C, name="cudaFree")
         import :: c_int, c_ptr
         implicit none
         !> What cuda_malloc gave
         type(c_ptr), value :: address
      end function cuda_free
   end interface

   real(sp), allocatable, target :: x(:, :, :, :), y(:, :, :, :), on_cpu(:, :, :, :)
   type(c_ptr) :: x_there, y_there
   type(network_type) :: here, there
   type(error_type), allocatable :: error

   allocate (x(64, 48, 1, 2), y(64, 48, 1, 2), on_cpu(64, 48, 1, 2))
   call random_number(x)
   call make(here, "cpu")
   call make(there, "cuda")
   call check(cuda_malloc(x_there, size(x)*c_sizeof(x(1, 1, 1, 1))))
   call check(cuda_malloc(y_there, size(y)*c_sizeof(y(1, 1, 1, 1))))
   call check(cuda_memcpy(x_there, c_loc(x), size(x)*c_sizeof(x(1, 1, 1, 1)), to_device))

   call there%forward(device_array(x_there, extents, sp), device_array(y_there, extents, sp), error)
   if (allocated(error)) error stop error%message

   call check(cuda_memcpy(c_loc(y), y_there, size(y)*c_sizeof(y(1, 1, 1, 1)), to_host))
   call here%forward(x, on_cpu, error)
   if (allocated(error)) error stop error%message
   print "(a, es8.1)", "largest difference between cpu and cuda ", maxval(abs(y - on_cpu))
   call check(cuda_free(x_there))
   call check(cuda_free(y_there))

contains

   subroutine make(net, device)
      !> Is built, with the same parameters on every device
      type(network_type), intent(inout) :: net
      !> cpu or cuda
      character(len=*), intent(in) :: device
      call net%add("conv1", conv2d(1, 8, kernel_size=3, padding=1))
      call net%add("silu1", layer("silu"))
      call net%add("conv2", conv2d(8, 1, kernel_size=3, padding=1))
      call net%build(error, device=device, seed=1_i8)
      if (allocated(error)) error stop error%message
   end subroutine make

   subroutine check(status)
      !> Of a call of the CUDA runtime
      integer(c_int), intent(in) :: status
      if (status /= 0) error stop "a call of the CUDA runtime failed"
   end subroutine check
end program gpu_arrays
