! SPDX-License-Identifier: MIT
!> What cuDNN and its like say through our interfaces, for tests/cuda/test_cudnn_without_gpu.py; nothing here needs a GPU.
!>
!>     cudnn_program libraries    where each library was found, and its version, or why not
!>     cudnn_program cudnn        only cuDNN
!>     cudnn_program cudart       only the runtime
!>     cudnn_program driver       only the driver
!>     cudnn_program errors       statuses and messages
!>     cudnn_program handle       devices, and what becomes of cudnnCreate
!>     cudnn_program shapes       convolutions from the standard input, one a line, and the shapes of their outputs
program cudnn_program
   use, intrinsic :: iso_c_binding, only : c_associated, c_f_procpointer, c_int, c_null_ptr, c_ptr, c_size_t, c_sizeof
   use, intrinsic :: iso_fortran_env, only : input_unit
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_cuda_bindings_cudart, only : cuda_pointer_attributes_type, cudart_type
   use cnn_cuda_bindings_cudnn, only : cudnn_algo_perf_type, cudnn_type
   use cnn_cuda_bindings_cudnn_enums, only : CUDNN_ACTIVATION_RELU, CUDNN_CROSS_CORRELATION, CUDNN_DATA_BFLOAT16, &
      & CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_FMA_MATH, CUDNN_PROPAGATE_NAN, &
      & CUDNN_STATUS_SUCCESS, CUDNN_TENSOR_NCHW
   use cnn_cuda_bindings_driver, only : cuda_driver_type
   use cnn_cuda_bindings_shared_library, only : c_text
   implicit none

   abstract interface
      function cudnnGetTensorSizeInBytes(tensor_desc, size) result(status) bind(C)
         import :: c_int, c_ptr, c_size_t
         implicit none
         type(c_ptr), value :: tensor_desc
         integer(c_size_t), intent(out) :: size
         integer(c_int) :: status
      end function cudnnGetTensorSizeInBytes
   end interface

   type(cudart_type) :: rt
   type(cudnn_type) :: dnn
   type(cuda_driver_type) :: driver
   type(error_type), allocatable :: error
   character(len=20) :: what

   call get_command_argument(1, what)
   select case (what)
    case ("libraries")
      call load_cudart()
      call load_cudnn()
      call load_driver()
      call print_sizes()
    case ("cudnn")
      call load_cudnn()
    case ("cudart")
      call load_cudart()
    case ("driver")
      call load_driver()
    case ("errors")
      call dnn%load(error)
      call report("cudnn", error)
      call print_errors()
    case ("handle")
      call rt%load(error)
      call report("cudart", error)
      call dnn%load(error)
      call report("cudnn", error)
      call print_handle()
    case ("shapes")
      call dnn%load(error)
      call report("cudnn", error)
      call print_shapes()
    case default
      error stop "cudnn_program: unknown command"
   end select

contains

   !> The message, or nothing for success
   subroutine report(name, error)
      character(len=*), intent(in) :: name
      type(error_type), allocatable, intent(in) :: error
      if (allocated(error)) print "(a)", name//" error: "//error%message
   end subroutine report

   !> A library that was refused once is refused again, in the same words
   subroutine compare(name, first, second)
      character(len=*), intent(in) :: name, first
      type(error_type), allocatable, intent(in) :: second
      if (.not. allocated(second)) then
         print "(a)", name//": no error the second time"
      else if (second%message /= first) then
         print "(a)", name//" error the second time: "//second%message
      end if
   end subroutine compare

   subroutine load_cudart()
      character(len=:), allocatable :: refusal
      call rt%load(error)
      call report("cudart", error)
      if (allocated(error)) then
         refusal = error%message
         call rt%load(error)
         call compare("cudart", refusal, error)
         return
      end if
      print "(a, a, 1x, i0)", "cudart: ", rt%library%path, rt%version
   end subroutine load_cudart

   subroutine load_cudnn()
      character(len=:), allocatable :: refusal
      call dnn%load(error)
      call report("cudnn", error)
      if (allocated(error)) then
         refusal = error%message
         call dnn%load(error)
         call compare("cudnn", refusal, error)
         return
      end if
      print "(a, a, 1x, i0, 1x, i0)", "cudnn: ", dnn%library%path, dnn%version, dnn%cuda_version
      call dnn%load(error)
      call report("cudnn, a second time", error)
      call dnn%check_cuda(dnn%cuda_version/1000*1000 + 990, error)
      call report("cudnn with its CUDA", error)
      call dnn%check_cuda(11080, error)
      call report("cudnn with CUDA 11", error)
   end subroutine load_cudnn

   subroutine load_driver()
      call driver%load(error)
      call report("driver", error)
      if (.not. allocated(error)) print "(a, a)", "driver: ", driver%library%path
   end subroutine load_driver

   !> As this compiler lays them out
   subroutine print_sizes()
      type(cuda_pointer_attributes_type) :: attributes
      type(cudnn_algo_perf_type) :: found
      print "(a, 3(1x, i0))", "sizes:", c_sizeof(attributes), c_sizeof(found)
   end subroutine print_sizes

   subroutine print_errors()
      type(c_ptr) :: x
      integer(c_int), parameter :: statuses(6) = [0, 1001, 2000, 3000, 4003, 5000]
      integer :: i
      do i = 1, size(statuses)
         print "(a, i0, a, a)", "status ", statuses(i), ": ", c_text(dnn%get_error_string(statuses(i)))
      end do
      call dnn%check(CUDNN_STATUS_SUCCESS, "nothing", error)
      call report("success", error)
      call dnn%check(dnn%create_tensor_descriptor(x), "create", error)
      call report("create", error)
      call dnn%check(dnn%set_tensor4d_descriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0_c_int, 1_c_int, 1_c_int, &
         & 1_c_int), "describe an empty batch", error)
      call report("empty", error)
      call dnn%check(dnn%destroy_tensor_descriptor(x), "destroy", error)
      call report("destroy", error)
   end subroutine print_errors

   subroutine print_handle()
      type(c_ptr) :: handle
      integer(c_int) :: count
      count = 0
      call rt%check(rt%get_device_count(count), "count the devices", error)
      call report("count", error)
      if (allocated(error)) count = 0
      print "(a, i0)", "devices: ", count
      handle = c_null_ptr
      call dnn%check(dnn%create(handle), "create the handle", error)
      call report("handle", error)
      if (allocated(error)) return
      print "(a, l1)", "created: ", c_associated(handle)
      call dnn%check(dnn%destroy(handle), "destroy the handle", error)
      call report("destroy", error)
   end subroutine print_handle

   !> Lines of x (n, c, h, w), w (k, r, s), strides, paddings, dilations (h, w each), groups, element type (1 to 4):
   !> the shape of y by cuDNN and by us, (n, c, h, w), zeros where refused, and the bytes of x by cuDNN
   subroutine print_shapes()
      type(c_ptr) :: x, w, conv, relu
      procedure(cudnnGetTensorSizeInBytes), pointer :: size_of
      integer :: line(15), status
      call c_f_procpointer(dnn%library%symbol("cudnnGetTensorSizeInBytes"), size_of)
      call expect(dnn%create_tensor_descriptor(x), "x")
      call expect(dnn%create_filter_descriptor(w), "w")
      call expect(dnn%create_convolution_descriptor(conv), "conv")
      call expect(dnn%create_activation_descriptor(relu), "relu")
      call expect(dnn%set_activation_descriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0d0), "set relu")
      do
         read (input_unit, *, iostat=status) line
         if (status /= 0) exit
         call print_shape(line, x, w, conv, size_of)
      end do
      call expect(dnn%destroy_tensor_descriptor(x), "destroy x")
      call expect(dnn%destroy_filter_descriptor(w), "destroy w")
      call expect(dnn%destroy_convolution_descriptor(conv), "destroy conv")
      call expect(dnn%destroy_activation_descriptor(relu), "destroy relu")
   end subroutine print_shapes

   subroutine print_shape(line, x, w, conv, size_of)
      integer, intent(in) :: line(15)
      type(c_ptr), intent(in) :: x, w, conv
      procedure(cudnnGetTensorSizeInBytes), pointer, intent(in) :: size_of
      integer(c_int), parameter :: types(4) = &
         & [CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16]
      type(conv_type) :: geometry
      integer(c_int) :: v(15), y(4), dtype, compute
      integer :: ours(4)
      integer(c_size_t) :: bytes
      v = int(line, c_int)
      dtype = types(line(15))
      compute = merge(CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, dtype == CUDNN_DATA_DOUBLE)
      call expect(dnn%set_tensor4d_descriptor(x, CUDNN_TENSOR_NCHW, dtype, v(1), v(2), v(3), v(4)), "set x")
      call expect(dnn%set_filter4d_descriptor(w, dtype, CUDNN_TENSOR_NCHW, v(5), v(2)/v(14), v(6), v(7)), "set w")
      call expect(dnn%set_convolution2d_descriptor(conv, v(10), v(11), v(8), v(9), v(12), v(13), &
         & CUDNN_CROSS_CORRELATION, compute), "set conv")
      call expect(dnn%set_convolution_group_count(conv, v(14)), "set groups")
      call expect(dnn%set_convolution_math_type(conv, CUDNN_FMA_MATH), "set math")
      if (dnn%get_convolution2d_forward_output_dim(conv, x, w, y(1), y(2), y(3), y(4)) /= CUDNN_STATUS_SUCCESS) y = 0
      call expect(size_of(x, bytes), "bytes of x")
      geometry = conv_type(stride_h=line(8), stride_w=line(9), pad_h=line(10), pad_w=line(11), &
         & dilation_h=line(12), dilation_w=line(13), groups=line(14))
      call geometry%output_extent([line(4), line(3), line(2), line(1)], &
         & [line(7), line(6), line(2)/line(14), line(5)], ours, error)
      if (allocated(error)) ours = 0
      print "(*(i0, :, 1x))", y, ours(4:1:-1), bytes
   end subroutine print_shape

   subroutine expect(status, what)
      integer(c_int), intent(in) :: status
      character(len=*), intent(in) :: what
      call dnn%check(status, what, error)
      call report(what, error)
   end subroutine expect

end program cudnn_program
