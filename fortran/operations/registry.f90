! SPDX-License-Identifier: MIT
!> The operations by their names in exchange files: one row each.
module cnn_operations_registry
   use, intrinsic :: ieee_arithmetic, only : ieee_positive_inf, ieee_value
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : dp
   use cnn_operations_arithmetic, only : arithmetic_type, b_add, b_divide, b_multiply, b_subtract, prelu_type, &
      & product_type
   use cnn_operations_joins, only : concat_type, flatten_type
   use cnn_operations_matmul, only : matmul_type
   use cnn_operations_normalization, only : batch_norm2d_type, group_norm_type, layer_norm_type
   use cnn_operations_operation, only : operation_type
   use cnn_operations_pointwise, only : &
      & dropout_type, f_abs, f_clip, f_elu, f_exp, f_gelu, f_gelu_tanh, f_leaky_relu, f_log, f_log10, f_log2, f_mish, &
      & f_sigmoid, f_silu, f_softplus, f_sqrt, f_tanh, function_of_output_type, function_type, leaky_relu_type, &
      & relu_type
   use cnn_operations_pooling, only : avg_pool2d_type, global_avg_pool2d_type, max_pool2d_type
   use cnn_operations_products, only : conv2d_type, conv_transpose2d_type, linear_type
   use cnn_operations_rearrangement, only : reshape_type, transpose_type
   use cnn_operations_reductions, only : extreme_type, sum_type
   use cnn_operations_resizing, only : &
      & adaptive_avg_pool2d_type, pad2d_type, reflected, replicated, upsample2d_type, zeros
   use cnn_operations_softmax, only : softmax_type
   use cnn_operations_spline, only : spline_type
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
      real(dp) :: infinity
      infinity = ieee_value(1.0_dp, ieee_positive_inf)
      select case (kind)
       case ("abs")
         allocate (operation, source=function_type(number=f_abs))
       case ("adaptive_avg_pool2d")
         allocate (adaptive_avg_pool2d_type :: operation)
       case ("add")
         allocate (operation, source=arithmetic_type(number=b_add))
       case ("amax")
         allocate (extreme_type :: operation)
       case ("amin")
         allocate (operation, source=extreme_type(sign=-1))
       case ("avg_pool2d")
         allocate (avg_pool2d_type :: operation)
       case ("batch_norm2d")
         allocate (batch_norm2d_type :: operation)
       case ("clip")
         allocate (operation, source=function_type(number=f_clip, signed=.true., &
            & settings=[character(len=16) :: "min", "max"], values=[-infinity, infinity]))
       case ("concat")
         allocate (concat_type :: operation)
       case ("conv2d")
         allocate (conv2d_type :: operation)
       case ("conv_transpose2d")
         allocate (conv_transpose2d_type :: operation)
       case ("divide")
         allocate (operation, source=product_type(number=b_divide))
       case ("dropout")
         allocate (dropout_type :: operation)
       case ("dropout2d")
         allocate (operation, source=dropout_type(of_channels=.true.))
       case ("elu")
         allocate (operation, source=function_type(number=f_elu, &
            & settings=[character(len=16) :: "alpha", ""], values=[1.0_dp, 0.0_dp]))
       case ("exp")
         allocate (operation, source=function_of_output_type(number=f_exp))
       case ("flatten")
         allocate (flatten_type :: operation)
       case ("gelu")
         allocate (operation, source=function_type(number=f_gelu))
       case ("gelu_tanh")
         allocate (operation, source=function_type(number=f_gelu_tanh))
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
       case ("log")
         allocate (operation, source=function_type(number=f_log))
       case ("log10")
         allocate (operation, source=function_type(number=f_log10))
       case ("log2")
         allocate (operation, source=function_type(number=f_log2))
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
       case ("mish")
         allocate (operation, source=function_type(number=f_mish))
       case ("multiply")
         allocate (operation, source=product_type(number=b_multiply))
       case ("prelu")
         allocate (prelu_type :: operation)
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
       case ("softplus")
         allocate (operation, source=function_type(number=f_softplus, &
            & settings=[character(len=16) :: "beta", "threshold"], values=[1.0_dp, 20.0_dp]))
       case ("spline")
         allocate (spline_type :: operation)
       case ("sqrt")
         allocate (operation, source=function_of_output_type(number=f_sqrt))
       case ("subtract")
         allocate (operation, source=arithmetic_type(number=b_subtract))
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
