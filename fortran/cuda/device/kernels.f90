! SPDX-License-Identifier: MIT
!> The CUDA Fortran kernels of cuda/kernels/kernels.cuf on one device: loaded from their PTX, launched by name.
!>
!> The PTX is a file of this project, cuda/kernels/kernels.ptx, and built in. The driver compiles it for the GPU at hand
!> when it is loaded, whatever the version of the CUDA runtime is. The device's context is the thread's in all calls.
!>
!> Source.  CUDA Driver API reference: module management, execution control.
module cnn_cuda_device_kernels
   use, intrinsic :: iso_c_binding, only : &
      & c_associated, c_char, c_double, c_int, c_int64_t, c_loc, c_null_char, c_null_ptr, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_bfloat16, dtype_float16, dtype_float32, dtype_float64, i8
   use cnn_cuda_bindings_driver, only : CUDA_SUCCESS, cuda_driver_type
   use cnn_cuda_bindings_shared_library, only : c_text
   implicit none
   private

   public :: blocks_for, kernels_text

   integer, parameter, public :: threads_per_block = 256

   integer, parameter, public :: kernel_mse = 1, kernel_relu_backward = 2, kernel_relu_backward_bias = 3, &
      & kernel_bias_gradient = 4, kernel_narrow = 5, kernel_sgd = 6
   integer, parameter, public :: kernel_relu_backward_nhwc = 1, kernel_channel_sums = 2, kernel_transpose = 3
   integer, parameter, public :: kernel_fold = 1, kernel_f32_to_f16 = 2, kernel_f16_to_f32 = 3, &
      & kernel_f32_to_bf16 = 4, kernel_bf16_to_f32 = 5, kernel_direct_arrange = 6, kernel_direct_filter = 7, &
      & kernel_direct_filter_quads = 8
   !> By the channels that they make at a time: 1 and 16
   integer, parameter, public :: kernel_direct(2) = [9, 10], kernel_direct_masked(2) = [11, 12]

   !> Kernels that exist for float32 and float64; their C names end in _f32 and _f64
   character(len=*), parameter :: typed_names(6) = [character(len=22) :: &
      & "cnn_mse", "cnn_relu_backward", "cnn_relu_backward_bias", "cnn_bias_gradient", "cnn_narrow", "cnn_sgd"]
   !> Kernels for tensors with channels last, of float32, float16 and bfloat16; their C names end in _f32, _f16, _bf16
   character(len=*), parameter :: stored_names(3) = [character(len=22) :: &
      & "cnn_relu_backward_nhwc", "cnn_channel_sums", "cnn_transpose"]
   integer, parameter :: stored_types(3) = [dtype_float32, dtype_float16, dtype_bfloat16]
   character(len=*), parameter :: stored_endings(3) = [character(len=5) :: "_f32", "_f16", "_bf16"]
   character(len=*), parameter :: plain_names(12) = [character(len=23) :: &
      & "cnn_fold", "cnn_f32_to_f16", "cnn_f16_to_f32", "cnn_f32_to_bf16", "cnn_bf16_to_f32", &
      & "cnn_direct_arrange", "cnn_direct_filter", "cnn_direct_filter_quads", "cnn_direct_1", "cnn_direct_16", &
      & "cnn_direct_masked_1", "cnn_direct_masked_16"]

   type, public :: kernels_type
      private
      type(cuda_driver_type) :: driver
      !> A `CUmodule`
      type(c_ptr) :: loaded = c_null_ptr
      type(c_ptr) :: typed(size(typed_names), 2) = c_null_ptr, plain(size(plain_names)) = c_null_ptr
      !> All that the PTX has, by their C names
      character(len=40), allocatable :: names(:)
      type(c_ptr), allocatable :: named(:)
      type(c_ptr) :: stored(size(stored_names), size(stored_types)) = c_null_ptr
   contains
      procedure :: load
      procedure :: unload
      procedure :: launch_typed
      procedure :: launch_named
      procedure :: launch_stored
      procedure :: launch_plain
   end type kernels_type

   interface
      !> The PTX text that is built in; see cuda/kernels/build_kernels.py
      function cnn_kernels_text() result(text) bind(C, name="cnn_kernels_text")
         import :: c_ptr
         implicit none
         type(c_ptr) :: text
      end function cnn_kernels_text
   end interface

contains

   !> The PTX text that is built in
   function kernels_text() result(text)
      character(len=:), allocatable :: text
      text = c_text(cnn_kernels_text())
   end function kernels_text

   !> Compile all kernels for the current device
   subroutine load(self, error)
      class(kernels_type), intent(inout) :: self
      !> No driver, or it does not take the PTX, or a kernel is missing
      type(error_type), allocatable, intent(out) :: error
      integer :: i, k

      call self%driver%load(error)
      if (allocated(error)) return
      call self%driver%check(self%driver%init(0_c_int), "cuInit", error)
      if (allocated(error)) return
      call load_module(self%driver, self%loaded, error)
      if (allocated(error)) return
      do i = 1, size(typed_names)
         call get_kernel(self, trim(typed_names(i))//"_f32", self%typed(i, 1), error)
         call get_kernel(self, trim(typed_names(i))//"_f64", self%typed(i, 2), error)
      end do
      self%names = entries_of(kernels_text())
      self%named = [(c_null_ptr, i=1, size(self%names))]
      do i = 1, size(self%names)
         call get_kernel(self, trim(self%names(i)), self%named(i), error)
      end do
      do i = 1, size(stored_names)
         do k = 1, size(stored_types)
            call get_kernel(self, trim(stored_names(i))//trim(stored_endings(k)), self%stored(i, k), error)
         end do
      end do
      do i = 1, size(plain_names)
         call get_kernel(self, trim(plain_names(i)), self%plain(i), error)
      end do
   end subroutine load

   !> The names of the kernels of a PTX text: `.visible .entry NAME(`
   function entries_of(text) result(names)
      !> The text
      character(len=*), intent(in) :: text
      character(len=40), allocatable :: names(:)
      character(len=*), parameter :: mark = ".entry "
      integer :: at, found
      allocate (names(0))
      at = 1
      do
         found = index(text(at:), mark)
         if (found == 0) return
         at = at + found - 1 + len(mark)
         names = [character(len=40) :: names, text(at:at + scan(text(at:), "(") - 2)]
      end do
   end function entries_of

   subroutine load_module(driver, loaded, error)
      !> The driver, open
      type(cuda_driver_type), intent(in) :: driver
      !> All kernels; null after an error
      type(c_ptr), intent(inout) :: loaded
      !> The driver does not take the PTX; it says for which GPUs that is
      type(error_type), allocatable, intent(out) :: error
      integer(c_int) :: status
      status = driver%module_load_data(loaded, cnn_kernels_text())
      if (status == CUDA_SUCCESS) return
      loaded = c_null_ptr
      call driver%check(status, &
         & "loading our kernels (cuModuleLoadData), which are for compute capability 7.5 and newer", error)
   end subroutine load_module

   !> Nothing is done where there is an error already
   subroutine get_kernel(self, name, kernel, error)
      class(kernels_type), intent(in) :: self
      !> Name of the kernel in the PTX
      character(len=*), intent(in) :: name
      !> Handle of the kernel
      type(c_ptr), intent(inout) :: kernel
      !> What went wrong before, or it is missing
      type(error_type), allocatable, intent(inout) :: error
      if (allocated(error)) return
      call self%driver%check(self%driver%module_get_function(kernel, self%loaded, c_name(name)), "kernel "//name, error)
   end subroutine get_kernel

   subroutine unload(self)
      class(kernels_type), intent(inout) :: self
      integer(c_int) :: ignored
      ! Nobody is left to hear of a failure
      if (c_associated(self%loaded)) ignored = self%driver%module_unload(self%loaded)
      self%loaded = c_null_ptr
   end subroutine unload

   !> Queue a kernel that exists for float32 and float64; `arguments` are the addresses of its arguments
   subroutine launch_typed(self, kernel, dtype, blocks, arguments, stream, error)
      class(kernels_type), intent(in) :: self
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
      type(error_type), allocatable, intent(out) :: error
      call launch(self, self%typed(kernel, merge(2, 1, dtype == dtype_float64)), trim(typed_names(kernel)), &
         & blocks, arguments, stream, error)
   end subroutine launch_typed

   !> Queue a kernel of graphs, by its name: `numbers` come first, then `addresses`, `integers` and `reals`
   subroutine launch_named(self, name, dtype, blocks, numbers, addresses, integers, reals, stream, error)
      class(kernels_type), intent(in) :: self
      !> As in kernels.cuf, without cnn_ and its type
      character(len=*), intent(in) :: name
      !> `dtype_float32` or `dtype_float64`
      integer, intent(in) :: dtype
      !> Blocks in x and in y
      integer, intent(in) :: blocks(2)
      !> How many elements there are
      integer(i8), intent(in) :: numbers(:)
      !> Of the arrays, *device*
      type(c_ptr), intent(in) :: addresses(:)
      !> Settings
      integer(i8), intent(in) :: integers(:)
      !> Settings
      real(dp), intent(in) :: reals(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      !> No such kernel, or an error of CUDA
      type(error_type), allocatable, intent(out) :: error
      integer(c_int64_t), target :: whole(size(numbers) + size(integers))
      real(c_double), target :: values(size(reals))
      type(c_ptr), target :: arrays(size(addresses))
      type(c_ptr) :: arguments(size(whole) + size(values) + size(arrays))
      integer :: i, n, place

      place = findloc(self%names == "cnn_"//name//merge("_f64", "_f32", dtype == dtype_float64), .true., 1)
      if (place == 0) then
         call fail(error, "device cuda: no kernel "//name)
         return
      end if
      whole = [numbers, integers]
      values = reals
      arrays = addresses
      n = size(numbers)
      arguments = [(c_loc(whole(i)), i=1, n), (c_loc(arrays(i)), i=1, size(arrays)), &
         & (c_loc(whole(i)), i=n + 1, size(whole)), (c_loc(values(i)), i=1, size(values))]
      call launch(self, self%named(place), "cnn_"//name, blocks, arguments, &
         & stream, error)
   end subroutine launch_named

   !> Queue a kernel for tensors with channels last
   subroutine launch_stored(self, kernel, dtype, blocks, arguments, stream, error)
      class(kernels_type), intent(in) :: self
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
      type(error_type), allocatable, intent(out) :: error
      call launch(self, self%stored(kernel, findloc(stored_types, dtype, dim=1)), trim(stored_names(kernel)), &
         & [blocks, 1], arguments, stream, error)
   end subroutine launch_stored

   subroutine launch_plain(self, kernel, blocks, arguments, stream, error)
      class(kernels_type), intent(in) :: self
      !> A `kernel_...` of those of one type
      integer, intent(in) :: kernel
      !> Blocks in x and in y
      integer, intent(in) :: blocks(2)
      !> Host addresses of the arguments' values, in the kernel's order
      type(c_ptr), intent(in) :: arguments(:)
      !> A `cudaStream_t` of the device
      type(c_ptr), intent(in) :: stream
      type(error_type), allocatable, intent(out) :: error
      call launch(self, self%plain(kernel), trim(plain_names(kernel)), blocks, arguments, stream, error)
   end subroutine launch_plain

   subroutine launch(self, kernel, name, blocks, arguments, stream, error)
      class(kernels_type), intent(in) :: self
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
      type(error_type), allocatable, intent(out) :: error
      call self%driver%check(self%driver%launch_kernel(kernel, int(blocks(1), c_int), int(blocks(2), c_int), 1_c_int, &
         & int(threads_per_block, c_int), 1_c_int, 1_c_int, 0_c_int, stream, arguments, c_null_ptr), &
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
