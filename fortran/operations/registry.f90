! SPDX-License-Identifier: MIT
!> The operations by their names in exchange files: one row each.
module cnn_operations_registry
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_operations_joins, only : add_type, concat_type, flatten_type
   use cnn_operations_matmul, only : matmul_type
   use cnn_operations_normalization, only : batch_norm2d_type, group_norm_type, layer_norm_type
   use cnn_operations_operation, only : operation_type
   use cnn_operations_pointwise, only : &
      & dropout_type, f_leaky_relu, f_sigmoid, f_silu, f_tanh, function_of_output_type, &
      & function_type, leaky_relu_type, relu_type
   use cnn_operations_pooling, only : avg_pool2d_type, global_avg_pool2d_type, max_pool2d_type
   use cnn_operations_products, only : conv2d_type, conv_transpose2d_type, linear_type
   use cnn_operations_rearrangement, only : reshape_type, transpose_type
   use cnn_operations_reductions, only : extreme_type, sum_type
   use cnn_operations_resizing, only : &
      & adaptive_avg_pool2d_type, pad2d_type, reflected, replicated, upsample2d_type, zeros
   use cnn_operations_softmax, only : softmax_type
   implicit none
   private

   public :: make_operation

contains

   !> A node of this type, without inputs and hyperparameters yet
   subroutine make_operation(name, kind, operation, error)
      !> The node's
      character(len=*), intent(in) :: name
      !> Type in an exchange file
      character(len=*), intent(in) :: kind
      !> The new node
      class(operation_type), allocatable, intent(out) :: operation
      !> No such operation here
      type(error_type), allocatable, intent(out) :: error
      select case (kind)
       case ("adaptive_avg_pool2d")
         allocate (adaptive_avg_pool2d_type :: operation)
       case ("add")
         allocate (add_type :: operation)
       case ("amax")
         allocate (extreme_type :: operation)
       case ("amin")
         allocate (operation, source=extreme_type(sign=-1))
       case ("avg_pool2d")
         allocate (avg_pool2d_type :: operation)
       case ("batch_norm2d")
         allocate (batch_norm2d_type :: operation)
       case ("concat")
         allocate (concat_type :: operation)
       case ("conv2d")
         allocate (conv2d_type :: operation)
       case ("conv_transpose2d")
         allocate (conv_transpose2d_type :: operation)
       case ("dropout")
         allocate (dropout_type :: operation)
       case ("dropout2d")
         allocate (operation, source=dropout_type(of_channels=.true.))
       case ("flatten")
         allocate (flatten_type :: operation)
       case ("global_avg_pool2d")
         allocate (global_avg_pool2d_type :: operation)
       case ("group_norm")
         allocate (group_norm_type :: operation)
       case ("layer_norm")
         allocate (layer_norm_type :: operation)
       case ("leaky_relu")
         allocate (operation, source=leaky_relu_type(number=f_leaky_relu, &
            & settings=[character(len=16) :: "negative_slope", ""], values=[0.01_dp, 0.0_dp]))
       case ("linear")
         allocate (linear_type :: operation)
       case ("log_softmax")
         allocate (operation, source=softmax_type(logarithm=.true.))
       case ("matmul")
         allocate (matmul_type :: operation)
       case ("max")
         allocate (operation, source=extreme_type(most=1, to_first=.true.))
       case ("max_pool2d")
         allocate (max_pool2d_type :: operation)
       case ("mean")
         allocate (operation, source=sum_type(divides=.true.))
       case ("min")
         allocate (operation, source=extreme_type(most=1, sign=-1, to_first=.true.))
       case ("reflection_pad2d")
         allocate (operation, source=pad2d_type(mode=reflected))
       case ("relu")
         allocate (relu_type :: operation)
       case ("replication_pad2d")
         allocate (operation, source=pad2d_type(mode=replicated))
       case ("reshape")
         allocate (reshape_type :: operation)
       case ("sigmoid")
         allocate (operation, source=function_of_output_type(number=f_sigmoid))
       case ("silu")
         allocate (operation, source=function_type(number=f_silu))
       case ("softmax")
         allocate (softmax_type :: operation)
       case ("sum")
         allocate (sum_type :: operation)
       case ("tanh")
         allocate (operation, source=function_of_output_type(number=f_tanh))
       case ("transpose")
         allocate (transpose_type :: operation)
       case ("upsample_bilinear2d")
         allocate (operation, source=upsample2d_type(is_linear=.true.))
       case ("upsample_nearest2d")
         allocate (upsample2d_type :: operation)
       case ("zero_pad2d")
         allocate (operation, source=pad2d_type(mode=zeros))
       case default
         call fail(error, "model: layer "//name//" has type "//kind//", which is no operation that is known here")
         return
      end select
      operation%name = name
      operation%kind = kind
   end subroutine make_operation

end module cnn_operations_registry
