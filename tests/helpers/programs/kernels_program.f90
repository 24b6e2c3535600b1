! SPDX-License-Identifier: MIT
!> Trains one step of each network of the standard input on the device cpu, in place and in both precisions, beside the
!> plain loops; for tests/architecture/test_debug_build.py, whose build watches every index.
!>
!> Input.   Of each network the input's extents (w, h, c, n) and the number of layers, then a line for each layer:
!>          "relu name", or "conv2d name" and its hyperparameters in the order of docs/exchange-file.md.
!> Output.  "N networks", or a line for each gradient that is not the plain loops'. All numbers are integers, and in
!>          float64 none is rounded.
program kernels_program
   use, intrinsic :: iso_c_binding, only : c_loc
   use, intrinsic :: iso_fortran_env, only : error_unit, input_unit, output_unit
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, dtype_float32, dtype_float64, i8, sp
   use cnn_core_tensor, only : as_vector, extent_of, tensor_type
   use cnn_model_build_network, only : build_network
   use cnn_model_description, only : description_type
   use cnn_model_network, only : keep_all, keep_needed, layer_view_type, network_type
   use cnn_operations_attributes, only : attribute_type, attributes_type
   implicit none

   type(description_type) :: model
   real(dp), allocatable :: plain(:), in_place(:)
   integer :: extent(4), layers, stat, networks

   networks = 0
   do
      read (input_unit, *, iostat=stat) extent, layers
      if (stat /= 0) exit
      call read_model(layers, model)
      call gradients(model, extent, dtype_float64, "naive", .false., plain)
      call gradients(model, extent, dtype_float64, "cpu", .true., in_place)
      networks = networks + 1
      if (size(plain) /= size(in_place)) error stop "numbers of gradients differ"
      if (.not. all(abs(plain - in_place) <= 0.0_dp)) write (output_unit, "(a)") "gradients of a network"
      ! Rounded, so only watched
      call gradients(model, extent, dtype_float32, "cpu", .true., in_place)
      call gradients(model, extent, dtype_float32, "cpu", .false., in_place)
   end do
   write (output_unit, "(i0, a)") networks, " networks"
   ! A program's own variables are not, and the leak sanitizer would say so
   if (allocated(plain)) deallocate (plain, in_place)

contains

   !> The layers of a network, of so many lines
   subroutine read_model(layers, model)
      integer, intent(in) :: layers
      type(description_type), intent(out) :: model
      character(len=12), parameter :: names(8) = [character(len=12) :: "in_channels", "out_channels", "kernel_size", &
         & "stride", "padding", "dilation", "groups", "bias"]
      integer, parameter :: counts(8) = [1, 1, 2, 2, 2, 2, 1, 1]
      character(len=256) :: line
      character(len=16) :: kind, name
      type(attributes_type) :: given
      type(error_type), allocatable :: error
      integer :: numbers(12), i, j, first
      do i = 1, layers
         read (input_unit, "(a)") line
         given%items = [attribute_type ::]
         if (line(:6) == "conv2d") then
            read (line, *) kind, name, numbers
            deallocate (given%items)
            allocate (given%items(size(names)))
            first = 1
            do j = 1, size(names)
               given%items(j)%name = trim(names(j))
               given%items(j)%numbers = real(numbers(first:first + counts(j) - 1), dp)
               first = first + counts(j)
            end do
         else
            read (line, *) kind, name
         end if
         call model%add(trim(kind), trim(name), "", given, error)
         call stop_at(error)
      end do
      call model%criterion%set("mse", "sum", error)
      call stop_at(error)
   end subroutine read_model

   !> All gradients of one step, one behind the other
   subroutine gradients(model, extent, dtype, device, efficient, found)
      type(description_type), intent(in) :: model
      character(len=*), intent(in) :: device
      integer, intent(in) :: extent(4), dtype
      logical, intent(in) :: efficient
      real(dp), allocatable, intent(out) :: found(:)
      class(network_type), allocatable :: network
      type(layer_view_type) :: layer
      type(error_type), allocatable :: error
      real(sp), allocatable, target :: x(:), t(:)
      real(dp), allocatable, target :: x_double(:), t_double(:)
      type(tensor_type) :: source, target_, y
      real(dp) :: loss
      integer :: i, j

      call build_network(model, dtype, device, merge(keep_needed, keep_all, efficient), network, error)
      call stop_at(error)
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            call fill(layer%parameters(j)%value)
         end do
      end do
      allocate (x(product(extent)), x_double(product(extent)))
      source%dtype = dtype
      source%extent = extent_of(extent)
      source%address = c_loc(x)
      if (dtype == dtype_float64) source%address = c_loc(x_double)
      call fill(source)
      call network%forward(source, error)
      call stop_at(error)
      y = network%output()
      allocate (t(y%count()), t_double(y%count()))
      target_ = y
      target_%address = c_loc(t)
      if (dtype == dtype_float64) target_%address = c_loc(t_double)
      call fill(target_)
      call network%compute_loss(target_, loss, error)
      call stop_at(error)
      call network%backward(error)
      call stop_at(error)
      allocate (found(0))
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            call append(layer%parameters(j)%gradient, found)
         end do
      end do
      deallocate (network)
   end subroutine gradients

   !> Integers -1 .. 1 without a pattern that a shift would keep
   subroutine fill(tensor)
      type(tensor_type), intent(in) :: tensor
      real(sp), pointer, contiguous :: single(:)
      real(dp), pointer, contiguous :: double(:)
      integer(i8) :: i
      if (.not. tensor%is_allocated()) return
      if (tensor%dtype == dtype_float32) then
         call as_vector(tensor, single)
         single = [(real(modulo((i*i + 3*i)/7, 3_i8) - 1, sp), i=1, size(single))]
      else
         call as_vector(tensor, double)
         double = [(real(modulo((i*i + 3*i)/7, 3_i8) - 1, dp), i=1, size(double))]
      end if
   end subroutine fill

   subroutine append(tensor, values)
      type(tensor_type), intent(in) :: tensor
      real(dp), allocatable, intent(inout) :: values(:)
      real(sp), pointer, contiguous :: single(:)
      real(dp), pointer, contiguous :: double(:)
      if (.not. tensor%is_allocated()) return
      if (tensor%dtype == dtype_float32) then
         call as_vector(tensor, single)
         values = [values, real(single, dp)]
      else
         call as_vector(tensor, double)
         values = [values, double]
      end if
   end subroutine append

   subroutine stop_at(error)
      type(error_type), allocatable, intent(in) :: error
      if (.not. allocated(error)) return
      write (error_unit, "(a)") error%message
      error stop
   end subroutine stop_at

end program kernels_program
