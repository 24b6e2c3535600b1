! SPDX-License-Identifier: MIT
!> The CUDA Fortran kernels of cuda/kernels/kernels.cuf on one device: loaded from their PTX, launched by name.
!>
!> The driver compiles the PTX for the GPU at hand when it is loaded. A build without a compiler for the kernels has
!> an empty text: then `available` is false, and the callers use cuBLAS and cuDNN instead.
!>
!> Source.  CUDA runtime API reference: library management, execution control.
module cnn_cuda_device_kernels
   use, intrinsic :: iso_c_binding, only : &
      & c_associated, c_char, c_int, c_null_char, c_null_ptr, c_ptr, c_size_t
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dtype_bfloat16, dtype_float16, dtype_float32, dtype_float64, i8
   use cnn_cuda_bindings_cudart, only : cudart_type, dim3_type
   use cnn_cuda_bindings_shared_library, only : c_text
   implicit none
   private

   public :: blocks_for, kernels_text

   integer, parameter, public :: threads_per_block = 256

   integer, parameter, public :: kernel_mse = 1, kernel_relu_backward = 2, kernel_relu_backward_bias = 3, &
      & kernel_bias_gradient = 4, kernel_narrow = 5, kernel_sgd = 6
   integer, parameter, public :: kernel_relu_backward_last = 1, kernel_channel_sums = 2, kernel_turn = 3
   integer, parameter, public :: kernel_fold = 1, kernel_f32_to_f16 = 2, kernel_f16_to_f32 = 3, &
      & kernel_f32_to_bf16 = 4, kernel_bf16_to_f32 = 5

   !> Kernels that exist for float32 and float64; their C names end in _f32 and _f64
   character(len=*), parameter :: typed_names(6) = [character(len=22) :: &
      & "cnn_mse", "cnn_relu_backward", "cnn_relu_backward_bias", "cnn_bias_gradient", "cnn_narrow", "cnn_sgd"]
   !> Kernels for tensors with channels last, of float32, float16 and bfloat16; their C names end in _f32, _f16, _bf16
   character(len=*), parameter :: stored_names(3) = [character(len=22) :: &
      & "cnn_relu_backward_last", "cnn_channel_sums", "cnn_turn"]
   integer, parameter :: stored_types(3) = [dtype_float32, dtype_float16, dtype_bfloat16]
   character(len=*), parameter :: stored_endings(3) = [character(len=5) :: "_f32", "_f16", "_bf16"]
   character(len=*), parameter :: plain_names(5) = [character(len=16) :: &
      & "cnn_fold", "cnn_f32_to_f16", "cnn_f16_to_f32", "cnn_f32_to_bf16", "cnn_bf16_to_f32"]

   type, public :: kernels_type
      logical :: available = .false.
      type(c_ptr), private :: library = c_null_ptr
      type(c_ptr), private :: typed(size(typed_names), 2) = c_null_ptr, plain(size(plain_names)) = c_null_ptr
      type(c_ptr), private :: stored(size(stored_names), size(stored_types)) = c_null_ptr
   contains
      procedure :: load
      procedure :: unload
      procedure :: launch_typed
      procedure :: launch_stored
      procedure :: launch_plain
   end type kernels_type

   interface
      !> The PTX text that was built in, empty when there is none; see cuda/kernels/build_kernels.py
      function cnn_kernels_text() result(text) bind(C, name="cnn_kernels_text")
         import :: c_ptr
         implicit none
         type(c_ptr) :: text
      end function cnn_kernels_text
   end interface

contains

   !> The PTX text, empty when none was built in
   function kernels_text() result(text)
      character(len=:), allocatable :: text
      text = c_text(cnn_kernels_text())
   end function kernels_text

   !> Compile all kernels for the current device
   subroutine load(self, rt, error)
      !> The kernels
      class(kernels_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> The driver does not take the PTX, or a kernel is missing
      type(error_type), allocatable, intent(out) :: error
      integer :: i, k

      ! CUDA before 12.8 cannot load them so: then cuBLAS and cuDNN do their work
      if (len(kernels_text()) == 0 .or. .not. associated(rt%library_load_data)) return
      call rt%check(rt%library_load_data(self%library, cnn_kernels_text(), c_null_ptr, c_null_ptr, 0_c_int, &
         & c_null_ptr, c_null_ptr, 0_c_int), "loading the kernels (cudaLibraryLoadData)", error)
      if (allocated(error)) then
         self%library = c_null_ptr
         return
      end if
      do i = 1, size(typed_names)
         call get_kernel(rt, self%library, trim(typed_names(i))//"_f32", self%typed(i, 1), error)
         if (.not. allocated(error)) then
           call get_kernel(rt, self%library, trim(typed_names(i))//"_f64", self%typed(i, 2), error)
         end if
         if (allocated(error)) return
      end do
      do i = 1, size(stored_names)
         do k = 1, size(stored_types)
            call get_kernel(rt, self%library, trim(stored_names(i))//trim(stored_endings(k)), self%stored(i, k), error)
            if (allocated(error)) return
         end do
      end do
      do i = 1, size(plain_names)
         call get_kernel(rt, self%library, trim(plain_names(i)), self%plain(i), error)
         if (allocated(error)) return
      end do
      self%available = .true.
   end subroutine load

   subroutine get_kernel(rt, library, name, kernel, error)
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> What holds it
      type(c_ptr), intent(in) :: library
      !> Name of the kernel in the PTX
      character(len=*), intent(in) :: name
      !> Handle of the kernel
      type(c_ptr), intent(out) :: kernel
      !> It is missing
      type(error_type), allocatable, intent(out) :: error
      call rt%check(rt%library_get_kernel(kernel, library, c_name(name)), "kernel "//name, error)
   end subroutine get_kernel

   subroutine unload(self, rt)
      !> The kernels
      class(kernels_type), intent(inout) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      integer(c_int) :: status
      self%available = .false.
      if (.not. c_associated(self%library)) return
      ! Nobody is left to hear of a failure
      status = rt%library_unload(self%library)
      if (status /= 0) status = rt%get_last_error()
      self%library = c_null_ptr
   end subroutine unload

   !> Queue a kernel that exists for float32 and float64; `arguments` are the addresses of its arguments
   subroutine launch_typed(self, rt, kernel, dtype, blocks, arguments, stream, error)
      !> The kernels
      class(kernels_type), intent(in) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> A `kernel_...` of those for float32 and float64
      integer, intent(in) :: kernel
      !> `dtype_float32` or `dtype_float64`
      integer, intent(in) :: dtype
      !> Blocks in x and in y
      integer, intent(in) :: blocks(2)
      !> Host addresses of the arguments' values, in the kernel's order
      type(c_ptr), intent(in) :: arguments(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      !> An error of CUDA
      type(error_type), allocatable, intent(out) :: error
      call launch(rt, self%typed(kernel, merge(2, 1, dtype == dtype_float64)), trim(typed_names(kernel)), &
         & blocks, arguments, stream, error)
   end subroutine launch_typed

   !> Queue a kernel for tensors with channels last
   subroutine launch_stored(self, rt, kernel, dtype, blocks, arguments, stream, error)
      !> The kernels
      class(kernels_type), intent(in) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> A `kernel_...` of those for channels last
      integer, intent(in) :: kernel
      !> `dtype_float32`, `dtype_float16` or `dtype_bfloat16`
      integer, intent(in) :: dtype
      !> Blocks in x
      integer, intent(in) :: blocks
      !> Host addresses of the arguments' values, in the kernel's order
      type(c_ptr), intent(in) :: arguments(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      !> An error of CUDA
      type(error_type), allocatable, intent(out) :: error
      call launch(rt, self%stored(kernel, findloc(stored_types, dtype, dim=1)), trim(stored_names(kernel)), &
         & [blocks, 1], arguments, stream, error)
   end subroutine launch_stored

   subroutine launch_plain(self, rt, kernel, blocks, arguments, stream, error)
      !> The kernels
      class(kernels_type), intent(in) :: self
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> A `kernel_...` of those of one type
      integer, intent(in) :: kernel
      !> Blocks in x and in y
      integer, intent(in) :: blocks(2)
      !> Host addresses of the arguments' values, in the kernel's order
      type(c_ptr), intent(in) :: arguments(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      !> An error of CUDA
      type(error_type), allocatable, intent(out) :: error
      call launch(rt, self%plain(kernel), trim(plain_names(kernel)), blocks, arguments, stream, error)
   end subroutine launch_plain

   subroutine launch(rt, kernel, name, blocks, arguments, stream, error)
      !> The CUDA runtime; the device is current
      type(cudart_type), intent(in) :: rt
      !> Handle of the kernel
      type(c_ptr), intent(in) :: kernel
      !> Host addresses of the arguments' values, in the kernel's order
      type(c_ptr), intent(in) :: arguments(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      !> For the message
      character(len=*), intent(in) :: name
      !> Blocks in x and in y
      integer, intent(in) :: blocks(2)
      !> An error of CUDA
      type(error_type), allocatable, intent(out) :: error
      call rt%check(rt%launch_kernel(kernel, dim3_type(int(blocks(1), c_int), int(blocks(2), c_int), 1_c_int), &
         & dim3_type(int(threads_per_block, c_int), 1_c_int, 1_c_int), arguments, 0_c_size_t, stream), &
         & "launching the kernel "//name, error)
   end subroutine launch

   !> Blocks for n elements, at most `most`: the kernels go on in steps of the whole grid
   pure integer function blocks_for(n, most)
      !> Elements
      integer(i8), intent(in) :: n
      !> The largest number of blocks
      integer, intent(in) :: most
      blocks_for = int(max(1_i8, min(int(most, i8), (n + threads_per_block - 1)/threads_per_block)))
   end function blocks_for

   pure function c_name(name) result(letters)
      !> Text without a NUL
      character(len=*), intent(in) :: name
      character(kind=c_char) :: letters(len(name) + 1)
      integer :: i
      do i = 1, len(name)
         letters(i) = name(i:i)
      end do
      letters(len(name) + 1) = c_null_char
   end function c_name

end module cnn_cuda_device_kernels
