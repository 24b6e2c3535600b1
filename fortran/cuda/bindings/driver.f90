! SPDX-License-Identifier: MIT
!> The CUDA driver, opened when it is first needed: for our kernels, which it compiles and launches; for reports, which
!> want its version and the names of devices; and for a device that is not the calling thread's current one.
!>
!> Source.  CUDA Driver API reference.
module cnn_cuda_bindings_driver
   use, intrinsic :: iso_c_binding, only : c_char, c_f_procpointer, c_int, c_ptr
   use cnn_core_error, only : error_type, fail
   use cnn_core_text, only : to_text
   use cnn_cuda_bindings_libraries, only : find_library
   use cnn_cuda_bindings_shared_library, only : shared_library_type
   implicit none
   private

   public :: cuInit, cuDriverGetVersion, cuDeviceGet, cuDeviceGetName, cuDevicePrimaryCtxRetain, &
      & cuDevicePrimaryCtxRelease_v2, cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuModuleLoadData, cuModuleGetFunction, &
      & cuModuleUnload, cuLaunchKernel

   !> `CUresult`
   integer(c_int), parameter, public :: CUDA_SUCCESS = 0

   type, public :: cuda_driver_type
      type(shared_library_type) :: library
      procedure(cuInit), pointer, nopass :: init => null()
      procedure(cuDriverGetVersion), pointer, nopass :: driver_get_version => null()
      procedure(cuDeviceGet), pointer, nopass :: device_get => null()
      procedure(cuDeviceGetName), pointer, nopass :: device_get_name => null()
      procedure(cuDevicePrimaryCtxRetain), pointer, nopass :: device_primary_ctx_retain => null()
      procedure(cuDevicePrimaryCtxRelease_v2), pointer, nopass :: device_primary_ctx_release => null()
      procedure(cuCtxPushCurrent_v2), pointer, nopass :: ctx_push_current => null()
      procedure(cuCtxPopCurrent_v2), pointer, nopass :: ctx_pop_current => null()
      procedure(cuModuleLoadData), pointer, nopass :: module_load_data => null()
      procedure(cuModuleGetFunction), pointer, nopass :: module_get_function => null()
      procedure(cuModuleUnload), pointer, nopass :: module_unload => null()
      procedure(cuLaunchKernel), pointer, nopass :: launch_kernel => null()
   contains
      procedure :: load
      procedure :: check
   end type cuda_driver_type

   abstract interface
      !> Comes before all calls about devices; `flags` must be 0
      function cuInit(flags) result(status) bind(C)
         import :: c_int
         implicit none
         !> Must be 0
         integer(c_int), value :: flags
         integer(c_int) :: status
      end function cuInit
      !> 13000 for CUDA 13.0, the newest that the driver can serve
      function cuDriverGetVersion(driver_version) result(status) bind(C)
         import :: c_int
         implicit none
         !> 1000 times the major version, and 10 times the minor
         integer(c_int), intent(out) :: driver_version
         integer(c_int) :: status
      end function cuDriverGetVersion
      !> The driver's own number for the device `ordinal`, counted from 0; there is nothing to free
      function cuDeviceGet(device, ordinal) result(status) bind(C)
         import :: c_int
         implicit none
         !> Driver's device, a `CUdevice`
         integer(c_int), intent(out) :: device
         !> Number of the device, from 0
         integer(c_int), value :: ordinal
         integer(c_int) :: status
      end function cuDeviceGet
      !> At most `len` letters, the NUL at the end included
      function cuDeviceGetName(name, len, dev) result(status) bind(C)
         import :: c_char, c_int
         implicit none
         !> Room in `name`
         integer(c_int), value :: len
         !> A `CUdevice`
         integer(c_int), value :: dev
         !> Ends in a NUL
         character(kind=c_char), intent(out) :: name(len)
         integer(c_int) :: status
      end function cuDeviceGetName
      !> The context that the runtime uses for a device, made when it is not there, until it is released as often
      function cuDevicePrimaryCtxRetain(pctx, dev) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> The device's primary context
         type(c_ptr), intent(out) :: pctx
         !> A `CUdevice`
         integer(c_int), value :: dev
         integer(c_int) :: status
      end function cuDevicePrimaryCtxRetain
      !> Give it back
      function cuDevicePrimaryCtxRelease_v2(dev) result(status) bind(C)
         import :: c_int
         implicit none
         !> A `CUdevice`
         integer(c_int), value :: dev
         integer(c_int) :: status
      end function cuDevicePrimaryCtxRelease_v2
      !> Make a context the calling thread's, and its device the runtime's current one
      function cuCtxPushCurrent_v2(ctx) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> Goes on top of the thread's stack of contexts
         type(c_ptr), value :: ctx
         integer(c_int) :: status
      end function cuCtxPushCurrent_v2
      !> What was the thread's before, a context or none, is so again
      function cuCtxPopCurrent_v2(pctx) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What was on top
         type(c_ptr), intent(out) :: pctx
         integer(c_int) :: status
      end function cuCtxPopCurrent_v2
      !> Compile PTX for the calling thread's context; the caller frees the module by cuModuleUnload
      function cuModuleLoadData(module, image) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> A `CUmodule` of the context
         type(c_ptr), intent(out) :: module
         !> PTX text that ends in a NUL, *host*
         type(c_ptr), value :: image
         integer(c_int) :: status
      end function cuModuleLoadData
      !> A kernel of a module, by its name; it ends with the module
      function cuModuleGetFunction(hfunc, hmod, name) result(status) bind(C)
         import :: c_char, c_int, c_ptr
         implicit none
         !> A `CUfunction`
         type(c_ptr), intent(out) :: hfunc
         !> What cuModuleLoadData gave
         type(c_ptr), value :: hmod
         !> Ends in a NUL
         character(kind=c_char), intent(in) :: name(*)
         integer(c_int) :: status
      end function cuModuleGetFunction
      !> Free a module of the calling thread's context
      function cuModuleUnload(hmod) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cuModuleLoadData gave
         type(c_ptr), value :: hmod
         integer(c_int) :: status
      end function cuModuleUnload
      !> Queue a kernel on a stream of the calling thread's context
      function cuLaunchKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, &
            & shared_mem_bytes, h_stream, kernel_params, extra) result(status) bind(C)
         import :: c_int, c_ptr
         implicit none
         !> What cuModuleGetFunction gave
         type(c_ptr), value :: f
         !> Blocks in x
         integer(c_int), value :: grid_dim_x
         !> Blocks in y
         integer(c_int), value :: grid_dim_y
         !> Blocks in z
         integer(c_int), value :: grid_dim_z
         !> Threads of a block in x
         integer(c_int), value :: block_dim_x
         !> Threads of a block in y
         integer(c_int), value :: block_dim_y
         !> Threads of a block in z
         integer(c_int), value :: block_dim_z
         !> Bytes of shared memory that are not the kernel's own
         integer(c_int), value :: shared_mem_bytes
         !> A `CUstream`, which is a `cudaStream_t`; null is the default stream
         type(c_ptr), value :: h_stream
         !> Host addresses of the arguments' values, in the kernel's order
         type(c_ptr), intent(in) :: kernel_params(*)
         !> Another way to give arguments; null
         type(c_ptr), value :: extra
         integer(c_int) :: status
      end function cuLaunchKernel
   end interface

contains

   !> Find and open the library; nothing happens the second time
   subroutine load(self, error)
      class(cuda_driver_type), intent(inout) :: self
      !> Not found, or without one of the functions
      type(error_type), allocatable, intent(out) :: error
      if (self%library%is_open()) return
      call find_library(["libcuda.so.1"], self%library, error)
      if (allocated(error)) return
      call bind_functions(self)
      call self%library%check_symbols(error)
   end subroutine load

   subroutine bind_functions(self)
      type(cuda_driver_type), intent(inout) :: self
      call c_f_procpointer(self%library%symbol("cuInit"), self%init)
      call c_f_procpointer(self%library%symbol("cuDriverGetVersion"), self%driver_get_version)
      call c_f_procpointer(self%library%symbol("cuDeviceGet"), self%device_get)
      call c_f_procpointer(self%library%symbol("cuDeviceGetName"), self%device_get_name)
      call c_f_procpointer(self%library%symbol("cuDevicePrimaryCtxRetain"), self%device_primary_ctx_retain)
      call c_f_procpointer(self%library%symbol("cuDevicePrimaryCtxRelease_v2"), self%device_primary_ctx_release)
      call c_f_procpointer(self%library%symbol("cuCtxPushCurrent_v2"), self%ctx_push_current)
      call c_f_procpointer(self%library%symbol("cuCtxPopCurrent_v2"), self%ctx_pop_current)
      call c_f_procpointer(self%library%symbol("cuModuleLoadData"), self%module_load_data)
      call c_f_procpointer(self%library%symbol("cuModuleGetFunction"), self%module_get_function)
      call c_f_procpointer(self%library%symbol("cuModuleUnload"), self%module_unload)
      call c_f_procpointer(self%library%symbol("cuLaunchKernel"), self%launch_kernel)
   end subroutine bind_functions

   !> No error for success
   subroutine check(self, status, what, error)
      class(cuda_driver_type), intent(in) :: self
      !> A `CUresult`
      integer(c_int), intent(in) :: status
      !> What was tried
      character(len=*), intent(in) :: what
      !> Names the call and the status
      type(error_type), allocatable, intent(out) :: error
      if (status /= CUDA_SUCCESS) call fail(error, "CUDA driver: "//what//": "//self%library%path// &
         & " gave CUresult "//to_text(int(status)))
   end subroutine check

end module cnn_cuda_bindings_driver
