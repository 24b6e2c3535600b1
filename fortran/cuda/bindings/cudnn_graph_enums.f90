! SPDX-License-Identifier: MIT
!> Constants of cuDNN's graph API, with their C names.
!>
!> Source.  cuDNN 9 backend API reference; header cudnn_graph.h.
module cnn_cuda_bindings_cudnn_graph_enums
   use, intrinsic :: iso_c_binding, only : c_int
   implicit none
   private

   !> `cudnnBackendDescriptorType_t`
   integer(c_int), parameter, public :: CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0
   integer(c_int), parameter, public :: CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR = 1
   integer(c_int), parameter, public :: CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2
   integer(c_int), parameter, public :: CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3
   integer(c_int), parameter, public :: CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4
   integer(c_int), parameter, public :: CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15
   integer(c_int), parameter, public :: CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16
   integer(c_int), parameter, public :: CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17
   integer(c_int), parameter, public :: CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21
   integer(c_int), parameter, public :: CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22
   integer(c_int), parameter, public :: CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = 38

   !> `cudnnBackendAttributeType_t`; the misspelt one is NVIDIA's
   integer(c_int), parameter, public :: CUDNN_TYPE_HANDLE = 0
   integer(c_int), parameter, public :: CUDNN_TYPE_DATA_TYPE = 1
   integer(c_int), parameter, public :: CUDNN_TYPE_BOOLEAN = 2
   integer(c_int), parameter, public :: CUDNN_TYPE_INT64 = 3
   integer(c_int), parameter, public :: CUDNN_TYPE_FLOAT = 4
   integer(c_int), parameter, public :: CUDNN_TYPE_DOUBLE = 5
   integer(c_int), parameter, public :: CUDNN_TYPE_VOID_PTR = 6
   integer(c_int), parameter, public :: CUDNN_TYPE_CONVOLUTION_MODE = 7
   integer(c_int), parameter, public :: CUDNN_TYPE_HEUR_MODE = 8
   integer(c_int), parameter, public :: CUDNN_TYPE_NAN_PROPOGATION = 10
   integer(c_int), parameter, public :: CUDNN_TYPE_NUMERICAL_NOTE = 11
   integer(c_int), parameter, public :: CUDNN_TYPE_POINTWISE_MODE = 14
   integer(c_int), parameter, public :: CUDNN_TYPE_BACKEND_DESCRIPTOR = 15
   integer(c_int), parameter, public :: CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18
   integer(c_int), parameter, public :: CUDNN_TYPE_BEHAVIOR_NOTE = 19
   integer(c_int), parameter, public :: CUDNN_TYPE_CHAR = 24

   !> `cudnnBackendAttributeName_t`, by the descriptor that they belong to
   integer(c_int), parameter, public :: CUDNN_ATTR_POINTWISE_MODE = 0
   integer(c_int), parameter, public :: CUDNN_ATTR_POINTWISE_MATH_PREC = 1
   integer(c_int), parameter, public :: CUDNN_ATTR_POINTWISE_NAN_PROPAGATION = 2
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_COMP_TYPE = 100
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_CONV_MODE = 101
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_DILATIONS = 102
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES = 103
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_POST_PADDINGS = 104
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS = 105
   integer(c_int), parameter, public :: CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS = 106
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINEHEUR_MODE = 200
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINEHEUR_RESULTS = 202
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = 204
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINECFG_ENGINE = 300
   integer(c_int), parameter, public :: CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400
   integer(c_int), parameter, public :: CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401
   integer(c_int), parameter, public :: CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402
   integer(c_int), parameter, public :: CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = 407
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA = 701
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W = 703
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X = 704
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y = 705
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA = 707
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W = 709
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX = 710
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY = 711
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW = 715
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X = 716
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY = 717
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_DXDESC = 756
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_POINTWISE_DYDESC = 757
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATIONGRAPH_OPS = 801
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_DATA_TYPE = 901
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_DIMENSIONS = 902
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_STRIDES = 903
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_UNIQUE_ID = 906
   integer(c_int), parameter, public :: CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907
   integer(c_int), parameter, public :: CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000
   integer(c_int), parameter, public :: CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001
   integer(c_int), parameter, public :: CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINE_GLOBAL_INDEX = 1301
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303
   integer(c_int), parameter, public :: CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE = 1305
   integer(c_int), parameter, public :: CUDNN_ATTR_REDUCTION_OPERATOR = 1600
   integer(c_int), parameter, public :: CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611
   integer(c_int), parameter, public :: CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612
   integer(c_int), parameter, public :: CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION = 2702

   !> `cudnnPointwiseMode_t`
   integer(c_int), parameter, public :: CUDNN_POINTWISE_ADD = 0
   integer(c_int), parameter, public :: CUDNN_POINTWISE_RELU_FWD = 100
   integer(c_int), parameter, public :: CUDNN_POINTWISE_RELU_BWD = 200
   !> `cudnnReduceTensorOp_t`
   integer(c_int), parameter, public :: CUDNN_REDUCE_TENSOR_ADD = 0
   !> `cudnnBackendHeurMode_t`: the best first, and what is left when none of those will do
   integer(c_int), parameter, public :: CUDNN_HEUR_MODE_FALLBACK = 2
   integer(c_int), parameter, public :: CUDNN_HEUR_MODE_A = 3

   !> `cudnnBackendNumericalNote_t`: what an engine's arithmetic is
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_TENSOR_CORE = 0
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS = 1
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION = 2
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_FFT = 3
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_WINOGRAD = 5
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 = 6
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 = 7
   integer(c_int), parameter, public :: CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 = 8
   !> `cudnnBackendBehaviorNote_t`
   integer(c_int), parameter, public :: CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION = 0

end module cnn_cuda_bindings_cudnn_graph_enums
