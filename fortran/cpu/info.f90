! SPDX-License-Identifier: MIT
!> What the CPU device makes of this machine, for `bridge.doctor`.
module cnn_cpu_info
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_core_tensor, only : extent_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_cpu_instruction_sets, only : choose_level, level_name
   use cnn_cpu_plan_channel_lanes, only : outer_type
   use cnn_cpu_plan_choice, only : choose_backward, choose_filter, choose_forward, direct_text, filter_text, &
      & read_lanes
   use cnn_cpu_plan_grid, only : grid_type
   use cnn_cpu_plan_product, only : is_filter_product, is_product
   !$ use omp_lib, only : omp_get_max_threads
   implicit none
   private

   public :: describe_algorithms, describe_cpu

contains

   !> "level=avx512 best=avx512 threads=2"; an error when the environment asks for a level that is not there
   subroutine describe_cpu(text, error)
      !> One line of `key=value`
      character(len=:), allocatable, intent(out) :: text
      !> Says that the environment asks for an instruction set that is not there
      type(error_type), allocatable, intent(out) :: error
      integer :: best, level, threads
      threads = 1
      !$ threads = omp_get_max_threads()
      text = ""
      call choose_level(level, error, best)
      if (allocated(error)) return
      text = "level="//level_name(level)//" best="//level_name(best)//" threads="//to_text(threads)
   end subroutine describe_cpu

   !> How a convolution, its data gradient and its filter gradient are computed, separated by semicolons. Extents in
   !> Fortran order
   subroutine describe_algorithms(conv, dtype, x_extent, w_extent, text, error)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Element type of the tensors, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> Extents of the input (w, h, c, n)
      integer, intent(in) :: x_extent(4)
      !> Extents of the filters (s, r, c/groups, k)
      integer, intent(in) :: w_extent(4)
      !> Description of each of the three, separated by semicolons
      character(len=:), allocatable, intent(out) :: text
      !> Says that the shapes do not fit together, or that the environment asks for unknown lanes
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: x, w, y
      type(grid_type) :: grid
      type(outer_type) :: plan
      integer :: wanted, algorithm
      logical :: direct
      character(len=*), parameter :: product_text = "as a matrix product, packed"

      text = ""
      x%dtype = dtype
      x%extent = extent_of(x_extent)
      w%dtype = dtype
      w%extent = extent_of(w_extent)
      y%dtype = dtype
      y%extent = 1
      call conv%output_extent(x%extent, w%extent, y%extent, error)
      if (allocated(error)) return
      call read_lanes(wanted, error)
      if (allocated(error)) return
      if (is_product(conv, x, w, wanted)) then
         text = product_text//"; "//product_text
      else
         call choose_forward(conv, x, w, y, wanted, grid, direct)
         text = direct_text(grid, direct)
         call choose_backward(conv, w, y, x, wanted, grid, direct)
         text = text//"; "//direct_text(grid, direct)
      end if
      if (is_filter_product(conv, x, w, wanted)) then
         text = text//"; "//product_text
         return
      end if
      call choose_filter(conv, x, y, w, wanted, algorithm, grid, plan)
      text = text//"; "//filter_text(algorithm, grid, plan)
   end subroutine describe_algorithms

end module cnn_cpu_info
