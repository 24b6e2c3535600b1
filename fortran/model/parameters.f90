! SPDX-License-Identifier: MIT
!> All learned numbers of a network: values, gradients, momenta, each as one vector on the device.
!>
!> One vector, so that one call updates everything. A layer's weight or bias is a tensor inside it, aligned as an
!> allocation of its own would be; the gaps between them hold zeros, which every update leaves zero.
module cnn_parameters
   use cnn_backend, only : backend_type
   use cnn_description, only : kind_conv2d, layer_description_type
   use cnn_error, only : error_type, fail
   use cnn_kinds, only : bytes_of, dp, i8
   use cnn_sgd, only : sgd_type
   use cnn_tensor, only : aligned, part_of, tensor_type
   use cnn_text, only : to_text
   implicit none
   private

   !> A learned tensor and its gradient, inside the vectors
   type, public :: parameter_type
      type(tensor_type) :: value, gradient
   end type parameter_type

   type, public :: parameters_type
      type(tensor_type), private :: values, gradients, velocities
      logical, private :: has_velocity = .false.
   contains
      procedure :: build
      procedure :: update
      procedure :: release
      procedure, private :: allocate_vectors
   end type parameters_type

contains

   !> Allocate for these layers; `weights` and `biases` are empty where a layer has none
   subroutine build(self, backend, dtype, layers, weights, biases, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      integer, intent(in) :: dtype
      type(layer_description_type), intent(in) :: layers(:)
      type(parameter_type), intent(out) :: weights(:), biases(:)
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: bytes
      integer :: i

      bytes = 0_i8
      do i = 1, size(layers)
         if (layers(i)%kind /= kind_conv2d) cycle
         bytes = bytes + padded(dtype, layers(i)%weight_extent)
         if (layers(i)%has_bias) bytes = bytes + padded(dtype, bias_extent(layers(i)))
      end do
      if (bytes == 0) return
      call self%allocate_vectors(backend, dtype, bytes/bytes_of(dtype), error)
      if (allocated(error)) return
      bytes = 0_i8
      do i = 1, size(layers)
         if (layers(i)%kind /= kind_conv2d) cycle
         call place(layers(i)%weight_extent, weights(i))
         if (layers(i)%has_bias) call place(bias_extent(layers(i)), biases(i))
      end do

   contains

      subroutine place(extent, parameter)
         integer, intent(in) :: extent(4)
         type(parameter_type), intent(inout) :: parameter
         parameter%value = part_of(self%values, bytes, extent)
         parameter%gradient = part_of(self%gradients, bytes, extent)
         bytes = bytes + padded(dtype, extent)
      end subroutine place

   end subroutine build

   !> Bytes of a tensor up to where the next one may start
   pure integer(i8) function padded(dtype, extent)
      integer, intent(in) :: dtype, extent(4)
      padded = aligned(product(int(extent, i8))*bytes_of(dtype))
   end function padded

   pure function bias_extent(layer) result(extent)
      type(layer_description_type), intent(in) :: layer
      integer :: extent(4)
      extent = [layer%weight_extent(4), 1, 1, 1]
   end function bias_extent

   subroutine allocate_vectors(self, backend, dtype, elements, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      integer, intent(in) :: dtype
      integer(i8), intent(in) :: elements
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(4)
      if (elements > huge(1)) then
         call fail(error, "network: "//to_text(elements)//" parameters, expected fewer than 2**31")
         return
      end if
      extent = [int(elements), 1, 1, 1]
      call backend%allocate(dtype, extent, self%values, error)
      if (.not. allocated(error)) call backend%allocate(dtype, extent, self%gradients, error)
      if (.not. allocated(error)) call backend%clear(self%values, error)
      if (.not. allocated(error)) call backend%clear(self%gradients, error)
   end subroutine allocate_vectors

   !> One SGD step on all parameters
   subroutine update(self, backend, sgd, error)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      type(sgd_type), intent(in) :: sgd
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: velocities
      logical :: with_momentum

      if (.not. self%values%is_allocated()) return
      with_momentum = sgd%momentum > 0.0_dp
      if (with_momentum) then
         if (.not. self%velocities%is_allocated()) then
           call backend%allocate(self%values%dtype, self%values%extent, self%velocities, error)
         end if
         if (allocated(error)) return
         velocities = self%velocities
      end if
      call backend%update(sgd, .not. self%has_velocity, self%values, self%gradients, velocities, error)
      if (.not. allocated(error)) self%has_velocity = self%has_velocity .or. with_momentum
   end subroutine update

   subroutine release(self, backend)
      class(parameters_type), intent(inout) :: self
      class(backend_type), intent(inout) :: backend
      call backend%release(self%values)
      call backend%release(self%gradients)
      call backend%release(self%velocities)
   end subroutine release

end module cnn_parameters
