! SPDX-License-Identifier: MIT
!> First values of parameters and state.
!>
!> torch    weights and biases uniform up to 1/sqrt(fan_in), what torch.nn draws by default
!> he       weights normal with the variance 2/fan_in, biases 0, for ReLUs
!> xavier   weights uniform up to sqrt(6/(fan_in + fan_out)), biases 0, for tanh and sigmoids
!>
!> fan_in is the number of products in an element of the output, fan_out that of elements that a number goes into.
!> Weights of normalisations are 1, their biases 0, running means 0, running variances 1. Of splines the coefficients
!> and the scales of their bases are weights, each with its own fan_in, and all other scales are 1. The table of an
!> embedding is normal with the variance 1, but for a row that is not learned, which is 0.
!>
!> Source.  K. He, X. Zhang, S. Ren and J. Sun, ICCV 2015, equation 10; X. Glorot and Y. Bengio, AISTATS 2010, equation
!>          16; torch.nn.init.
module cnn_library_initialize
   use, intrinsic :: iso_c_binding, only : c_loc
   use cnn_core_backend, only : backend_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp, dtype_float32, sp
   use cnn_core_tensor, only : tensor_type
   use cnn_library_random, only : generator_type
   use cnn_model_network, only : layer_view_type, network_type
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   public :: initialize, set_values

contains

   !> All parameters and the state of a network
   subroutine initialize(network, method, generator, error)
      !> That is built
      class(network_type), intent(inout) :: network
      !> torch, he or xavier
      character(len=*), intent(in) :: method
      !> Gives the numbers
      type(generator_type), intent(inout) :: generator
      !> An unknown method, or an error of the device
      type(error_type), allocatable, intent(out) :: error
      type(layer_view_type) :: layer
      real(dp), allocatable :: values(:)
      integer :: i, j
      if (.not. any(method == [character(len=6) :: "torch", "he", "xavier"])) then
         call fail(error, "initialization "//method//": unknown, expected torch, he or xavier")
         return
      end if
      do i = 1, network%layer_count()
         call network%view(i, layer)
         do j = 1, size(layer%parameters)
            associate (shapes => layer%parameter_shapes, weight => merge(j, 1, layer%kind == "spline"))
               if (layer%kind == "embedding") then
                  call draw_table(layer, shapes(j)%shape, generator, values, error)
                  if (allocated(error)) return
               else
                  values = drawn(shapes(j)%name, shapes(j)%shape, fans_of(layer%kind, shapes(weight)%shape), method, &
                     & generator, index(layer%kind, "_norm") > 0)
               end if
            end associate
            call set_values(network%backend, layer%parameters(j)%value, values, error)
            if (allocated(error)) return
         end do
         do j = 1, size(layer%state)
            call set_values(network%backend, layer%state(j), spread(merge(1.0_dp, 0.0_dp, &
               & layer%state_shapes(j)%name == "running_var"), 1, int(layer%state(j)%count())), error)
            if (allocated(error)) return
         end do
      end do
   end subroutine initialize

   !> The shape of a weight that says fan_in and fan_out
   pure type(shape_type) function fans_of(kind, weight)
      !> Of the layer
      character(len=*), intent(in) :: kind
      !> Its own; of complex matrices (2, places, out, in), each of whose sums is of one place
      type(shape_type), intent(in) :: weight
      fans_of = weight
      if (kind == "complex_linear") fans_of = shape_of([2, weight%extent([4, 3])])
   end function fans_of

   !> Values of an embedding's table
   subroutine draw_table(layer, shape, generator, values, error)
      !> The embedding
      type(layer_view_type), intent(inout) :: layer
      !> (numbers of a row, rows)
      type(shape_type), intent(in) :: shape
      !> Gives the numbers
      type(generator_type), intent(inout) :: generator
      !> Row by row
      real(dp), allocatable, intent(out) :: values(:)
      !> A row that is no integer, which no network has been built with
      type(error_type), allocatable, intent(out) :: error
      integer :: i, row
      allocate (values(product(shape%extent)))
      do i = 1, size(values)
         call generator%normal(values(i))
      end do
      call layer%attributes%get_index("padding_idx", row, error, -1)
      if (row >= 0) values(row*shape%extent(1) + 1:(row + 1)*shape%extent(1)) = 0.0_dp
   end subroutine draw_table

   !> Values of a parameter
   function drawn(name, shape, weight, method, generator, normalises) result(values)
      !> weight, bias, coefficient, scale_base or scale_spline
      character(len=*), intent(in) :: name
      !> Of the parameter
      type(shape_type), intent(in) :: shape
      !> Of the layer's weight, or its own, which says fan_in and fan_out
      type(shape_type), intent(in) :: weight
      !> torch, he or xavier
      character(len=*), intent(in) :: method
      !> Gives the numbers
      type(generator_type), intent(inout) :: generator
      !> Whether it is of a normalisation
      logical, intent(in) :: normalises
      real(dp), allocatable :: values(:)
      real(dp) :: fan_in, fan_out, most
      integer :: i
      allocate (values(product(shape%extent)))
      associate (extent => real(weight%extent, dp))
         fan_in = product(extent(:weight%rank - 1))
         fan_out = product(extent(:weight%rank - 2))*extent(weight%rank)
      end associate
      if (normalises) then
         values = merge(1.0_dp, 0.0_dp, name == "weight")
      else if (name == "scale_spline") then
         values = 1.0_dp
      else if (name == "bias" .and. method /= "torch") then
         values = 0.0_dp
      else if (method == "he") then
         do i = 1, size(values)
            call generator%normal(values(i))
         end do
         values = values*sqrt(2.0_dp/fan_in)
      else
         most = 1.0_dp/sqrt(fan_in)
         if (method == "xavier") most = sqrt(6.0_dp/(fan_in + fan_out))
         do i = 1, size(values)
            call generator%uniform(values(i))
         end do
         values = (2.0_dp*values - 1.0_dp)*most
      end if
   end function drawn

   !> Give a tensor values, rounded to its element type
   subroutine set_values(backend, tensor, values, error)
      !> Where the tensor is
      class(backend_type), intent(in) :: backend
      !> float32 or float64; is overwritten
      type(tensor_type), intent(in) :: tensor
      !> As many
      real(dp), intent(in) :: values(:)
      !> An error of the device
      type(error_type), allocatable, intent(out) :: error
      real(sp), allocatable, target :: rounded(:)
      real(dp), allocatable, target :: kept(:)
      if (tensor%dtype == dtype_float32) then
         allocate (rounded, source=real(values, sp))
         call backend%copy_in(c_loc(rounded), tensor, error)
      else
         allocate (kept, source=values)
         call backend%copy_in(c_loc(kept), tensor, error)
      end if
   end subroutine set_values

end module cnn_library_initialize
