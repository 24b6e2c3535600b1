! SPDX-License-Identifier: MIT
!> What the library is and makes of this machine, in words.
!>
!> One of the flat faces that f90wrap wraps: numbers, addresses, texts; no logic. cnn_api_values says what they mean.
module cnn_api_info
   use, intrinsic :: iso_c_binding, only : c_double, c_int, c_int64_t
   use cnn_api_values, only : conv_from, hand_over
   use cnn_core_error, only : error_type
   use cnn_core_version, only : version
   use cnn_cpu_info, only : describe_algorithms, describe_cpu
   use cnn_cuda_info_plans, only : describe_plan
   use cnn_cuda_info_report, only : list_facts => cuda_facts
   use cnn_cuda_plans_request, only : conv_request_type
   implicit none
   private

   ! f90wrap's code declares its arguments with these kinds and finds them here
   public :: c_double, c_int, c_int64_t
   public :: version_text, cpu_facts, cuda_facts, conv2d_algorithms, plan_text

contains

   subroutine version_text(text)
      !> The version, blanks behind
      character(len=32), intent(out) :: text
      text = version
   end subroutine version_text

   !> What the device `cpu` makes of this machine, see cnn_cpu_info
   subroutine cpu_facts(text, ierr, errmsg)
      !> Words of the form name=value, blanks behind
      character(len=512), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      character(len=:), allocatable :: facts
      type(error_type), allocatable :: error
      call describe_cpu(facts, error)
      text = facts
      call hand_over(error, ierr, errmsg)
   end subroutine cpu_facts

   !> What there is of CUDA, one fact a line; `part`: see cnn_cuda_info_report, empty for all
   subroutine cuda_facts(part, text, ierr, errmsg)
      !> Which part, empty for all
      character(len=*), intent(in) :: part
      !> One fact a line, blanks behind
      character(len=8192), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      character(len=:), allocatable :: facts
      if (len_trim(part) > 0) then
         call list_facts(facts, trim(part))
      else
         call list_facts(facts)
      end if
      text = facts
      call hand_over(error, ierr, errmsg)
   end subroutine cuda_facts

   !> How the device `cpu` computes a convolution, its data gradient and its filter gradient
   subroutine conv2d_algorithms(dtype, params, x_extent, w_extent, text, ierr, errmsg)
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> Three algorithms, divided by semicolons, blanks behind
      character(len=512), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      character(len=:), allocatable :: algorithms
      type(error_type), allocatable :: error
      call describe_algorithms(conv_from(params), int(dtype), x_extent, w_extent, algorithms, error)
      text = algorithms
      call hand_over(error, ierr, errmsg)
   end subroutine conv2d_algorithms

   !> The plan of cuDNN's graph API for an operation (as in cnn_cuda_plans_request: 1 forward, 2 data, 3 filter, 4 bias)
   !> on a CUDA device, or on the GPU that `gpu` describes in JSON; empty when there is none. `fused` are bias, ReLU,
   !> mask
   subroutine plan_text(device, gpu, operation, dtype, layout, fused, params, x_extent, w_extent, text, ierr, errmsg)
      !> Name of the device, with its options
      character(len=*), intent(in) :: device
      !> Description of a GPU that need not be there, JSON; empty for the device's own
      character(len=*), intent(in) :: gpu
      !> 1 forward, 2 data gradient, 3 filter gradient, 4 bias gradient
      integer(c_int), intent(in) :: operation
      !> Element type, of cnn_core_kinds
      integer(c_int), intent(in) :: dtype
      !> Of the tensors, as in cnn_cuda_plans_request
      integer(c_int), intent(in) :: layout
      !> 1 or 0 for bias, ReLU and mask
      integer(c_int), intent(in) :: fused(3)
      !> Stride, padding, dilation as (h, w) each, then groups
      integer(c_int), intent(in) :: params(7)
      !> Of the input, [w, h, c, n]
      integer(c_int), intent(in) :: x_extent(4)
      !> Of the filters, [w, h, input channels of a group, output channels]
      integer(c_int), intent(in) :: w_extent(4)
      !> The plan's name, blank where there is none
      character(len=512), intent(out) :: text
      !> 0 good, 1 failed, 2 the training diverges
      integer(c_int), intent(out) :: ierr
      !> What is wrong, blank where nothing is
      character(len=512), intent(out) :: errmsg
      type(error_type), allocatable :: error
      type(conv_request_type) :: request
      character(len=:), allocatable :: said

      request = conv_request_type(operation=operation, dtype=dtype, layout=layout, bias=fused(1) /= 0, &
         & relu=fused(2) /= 0, mask=fused(3) /= 0, conv=conv_from(params), x=x_extent, w=w_extent)
      text = ""
      call request%conv%output_extent(request%x, request%w, request%y, error)
      if (.not. allocated(error)) call describe_plan(device, gpu, request, said, error)
      if (allocated(said)) text = said
      call hand_over(error, ierr, errmsg)
   end subroutine plan_text

end module cnn_api_info
