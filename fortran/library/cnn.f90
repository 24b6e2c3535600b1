! SPDX-License-Identifier: MIT
!> Convolutional networks in Fortran: all that a program uses.
!>
!>     use cnn
!>     type(network_type) :: net
!>     type(error_type), allocatable :: error
!>     real(sp) :: x(64, 64, 1, 2), target(64, 64, 1, 2)
!>     real(dp) :: loss
!>
!>     call net%add("conv1", conv2d(1, 16, kernel_size=3, padding=1))
!>     call net%add("relu1", layer("relu"))
!>     call net%add("conv2", conv2d(16, 1, kernel_size=3, padding=1))
!>     call net%build(error)
!>     if (allocated(error)) stop error%message
!>     call net%step(x, target, sgd(lr=0.01_dp), loss, error)
!>
!> Every procedure that can fail has an argument `error`: where it is allocated, `error%message` says what is wrong.
!> Nothing stops the program. docs/fortran.md has the whole of it, with examples.
module cnn
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8, sp
   use cnn_core_text, only : name_type
   use cnn_core_version, only : cnn_version => version
   use cnn_library_arrays, only : array_type, device_array
   use cnn_library_inputs, only : inputs_type
   use cnn_library_layers, only : avg_pool2d, avg_pool3d, batch_norm2d, conv2d, conv3d, conv_transpose2d, &
      & conv_transpose3d, embedding, layer, layer_type, linear, max_pool2d, max_pool3d
   use cnn_library_typed_network, only : network_type
   use cnn_library_optimizers, only : adam, adamw, sgd
   use cnn_model_network, only : keep_after_relu, keep_all, keep_needed
   use cnn_optimizers_adam, only : adam_type
   use cnn_optimizers_optimizer, only : optimizer_type
   use cnn_optimizers_sgd, only : sgd_optimizer_type
   implicit none
   private

   ! Kinds
   public :: dp, i8, sp
   ! Errors, names, the version of the library
   public :: cnn_version, error_type, name_type
   ! Networks, what they keep, and what they take
   public :: inputs_type, keep_after_relu, keep_all, keep_needed, network_type
   ! Layers
   public :: avg_pool2d, avg_pool3d, batch_norm2d, conv2d, conv3d, conv_transpose2d, conv_transpose3d, embedding, &
      & layer, layer_type, linear, max_pool2d, max_pool3d
   ! Optimizers
   public :: adam, adam_type, adamw, optimizer_type, sgd, sgd_optimizer_type
   ! Arrays on a GPU
   public :: array_type, device_array

end module cnn
