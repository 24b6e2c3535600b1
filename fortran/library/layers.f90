! SPDX-License-Identifier: MIT
!> Layers by torch's names and arguments, for `network_type%add`.
!>
!> Integers and logicals may be of any kind of 8 to 64 bits. Height, width and depth are alike here. Others, and every
!> operation that has no function here, are had as `layer("type", "name=numbers ...")`, as exchange files have them.
module cnn_library_layers
   use cnn_core_kinds, only : dp
   use cnn_library_any_kind, only : flag_of, number_of
   use cnn_operations_attributes, only : attribute_type, attributes_from, attributes_type
   implicit none
   private

   public :: avg_pool2d, avg_pool3d, batch_norm2d, conv2d, conv3d, conv_transpose2d, conv_transpose3d, embedding, &
      & layer, linear, max_pool2d, max_pool3d

   !> What a layer computes
   type, public :: layer_type
      !> Its type in exchange files
      character(len=:), allocatable :: kind
      !> Its hyperparameters
      type(attributes_type) :: attributes
   contains
      procedure, private :: put_axes, put_integer, put_real, put_flag, put_numbers
   end type layer_type

contains

   !> Any operation: `layer("relu")`, `layer("conv2d", "in_channels=1 out_channels=2 kernel_size=3,5")`
   type(layer_type) function layer(kind, settings)
      !> Its type in exchange files, torch's name
      character(len=*), intent(in) :: kind
      !> Its hyperparameters as exchange files have them: `name=` and numbers with commas between them, blanks between
      !> them; those that have no default
      character(len=*), intent(in), optional :: settings
      layer%kind = kind
      if (present(settings)) then
         layer%attributes = attributes_from(settings)
      else
         layer%attributes = attributes_from("")
      end if
   end function layer

   !> A convolution, which learns a weight (s, r, in_channels/groups, out_channels) and a bias (out_channels)
   type(layer_type) function conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
      !> Channels of the input
      class(*), intent(in) :: in_channels
      !> Channels of the output
      class(*), intent(in) :: out_channels
      !> Height and width of the filters
      class(*), intent(in) :: kernel_size
      !> From window to window; 1
      class(*), intent(in), optional :: stride
      !> Zeros around the image; 0
      class(*), intent(in), optional :: padding
      !> Between the pixels of a window; 1
      class(*), intent(in), optional :: dilation
      !> Of channels that see only each other; 1
      class(*), intent(in), optional :: groups
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      conv2d = convolution("conv2d", 2, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, &
         & bias)
   end function conv2d

   !> A transposed convolution, which learns a weight (s, r, out_channels/groups, in_channels) and a bias
   !> (out_channels)
   type(layer_type) function conv_transpose2d(in_channels, out_channels, kernel_size, stride, padding, &
      & output_padding, dilation, groups, bias)
      !> Channels of the input
      class(*), intent(in) :: in_channels
      !> Channels of the output
      class(*), intent(in) :: out_channels
      !> Height and width of the filters
      class(*), intent(in) :: kernel_size
      !> Of the convolution that it transposes; 1
      class(*), intent(in), optional :: stride
      !> Of the convolution that it transposes; 0
      class(*), intent(in), optional :: padding
      !> Rows and columns more at the end of the output; 0
      class(*), intent(in), optional :: output_padding
      !> Between the pixels of a window; 1
      class(*), intent(in), optional :: dilation
      !> Of channels that see only each other; 1
      class(*), intent(in), optional :: groups
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      conv_transpose2d = convolution("conv_transpose2d", 2, in_channels, out_channels, kernel_size, stride, padding, &
         & dilation, groups, bias)
      call conv_transpose2d%put_axes("output_padding", 2, output_padding)
   end function conv_transpose2d

   !> A convolution of volumes, which learns a weight (s, r, d, in_channels/groups, out_channels) and a bias
   !> (out_channels)
   type(layer_type) function conv3d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
      !> Channels of the input
      class(*), intent(in) :: in_channels
      !> Channels of the output
      class(*), intent(in) :: out_channels
      !> Depth, height and width of the filters
      class(*), intent(in) :: kernel_size
      !> From window to window; 1
      class(*), intent(in), optional :: stride
      !> Zeros around the volume; 0
      class(*), intent(in), optional :: padding
      !> Between the voxels of a window; 1
      class(*), intent(in), optional :: dilation
      !> Of channels that see only each other; 1
      class(*), intent(in), optional :: groups
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      conv3d = convolution("conv3d", 3, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, &
         & bias)
   end function conv3d

   !> A transposed convolution of volumes, which learns a weight (s, r, d, out_channels/groups, in_channels) and a bias
   !> (out_channels)
   type(layer_type) function conv_transpose3d(in_channels, out_channels, kernel_size, stride, padding, &
      & output_padding, dilation, groups, bias)
      !> Channels of the input
      class(*), intent(in) :: in_channels
      !> Channels of the output
      class(*), intent(in) :: out_channels
      !> Depth, height and width of the filters
      class(*), intent(in) :: kernel_size
      !> Of the convolution that it transposes; 1
      class(*), intent(in), optional :: stride
      !> Of the convolution that it transposes; 0
      class(*), intent(in), optional :: padding
      !> Planes, rows and columns more at the end of the output; 0
      class(*), intent(in), optional :: output_padding
      !> Between the voxels of a window; 1
      class(*), intent(in), optional :: dilation
      !> Of channels that see only each other; 1
      class(*), intent(in), optional :: groups
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      conv_transpose3d = convolution("conv_transpose3d", 3, in_channels, out_channels, kernel_size, stride, padding, &
         & dilation, groups, bias)
      call conv_transpose3d%put_axes("output_padding", 3, output_padding)
   end function conv_transpose3d

   !> Any of these
   type(layer_type) function convolution(kind, axes, in_channels, out_channels, kernel_size, stride, padding, &
      & dilation, groups, bias)
      !> Its type in exchange files
      character(len=*), intent(in) :: kind
      !> Those of a window
      integer, intent(in) :: axes
      !> Channels of the input
      class(*), intent(in) :: in_channels
      !> Channels of the output
      class(*), intent(in) :: out_channels
      !> Sides of the filters
      class(*), intent(in) :: kernel_size
      !> From window to window; 1
      class(*), intent(in), optional :: stride
      !> Zeros around; 0
      class(*), intent(in), optional :: padding
      !> Between the numbers of a window; 1
      class(*), intent(in), optional :: dilation
      !> Of channels that see only each other; 1
      class(*), intent(in), optional :: groups
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      convolution = layer(kind)
      call convolution%put_integer("in_channels", in_channels)
      call convolution%put_integer("out_channels", out_channels)
      call convolution%put_axes("kernel_size", axes, kernel_size)
      call convolution%put_axes("stride", axes, stride)
      call convolution%put_axes("padding", axes, padding)
      call convolution%put_axes("dilation", axes, dilation)
      call convolution%put_integer("groups", groups)
      call convolution%put_flag("bias", bias)
   end function convolution

   !> Sums of all features, which learns a weight (in_features, out_features) and a bias (out_features)
   type(layer_type) function linear(in_features, out_features, bias)
      !> First extent of the input
      class(*), intent(in) :: in_features
      !> First extent of the output
      class(*), intent(in) :: out_features
      !> Whether there is one; yes
      class(*), intent(in), optional :: bias
      linear = layer("linear")
      call linear%put_integer("in_features", in_features)
      call linear%put_integer("out_features", out_features)
      call linear%put_flag("bias", bias)
   end function linear

   !> The rows of a table that whole numbers choose, which learns that table (embedding_dim, num_embeddings)
   type(layer_type) function embedding(num_embeddings, embedding_dim, padding_idx)
      !> Rows; numbers are from 0 to one less
      class(*), intent(in) :: num_embeddings
      !> Numbers of a row
      class(*), intent(in) :: embedding_dim
      !> The row, from 0, that is not learned; all are
      class(*), intent(in), optional :: padding_idx
      embedding = layer("embedding")
      call embedding%put_integer("num_embeddings", num_embeddings)
      call embedding%put_integer("embedding_dim", embedding_dim)
      call embedding%put_integer("padding_idx", padding_idx)
   end function embedding

   !> A batch normalisation with running statistics, which learns a weight and a bias (num_features)
   type(layer_type) function batch_norm2d(num_features, eps, momentum)
      !> Channels
      class(*), intent(in) :: num_features
      !> Added to the variance; 1e-5
      real(dp), intent(in), optional :: eps
      !> Part of the batch's statistics in the new running ones; 0.1
      real(dp), intent(in), optional :: momentum
      batch_norm2d = layer("batch_norm2d")
      call batch_norm2d%put_integer("num_features", num_features)
      call batch_norm2d%put_real("eps", eps)
      call batch_norm2d%put_real("momentum", momentum)
      call batch_norm2d%put_flag("track_running_stats", .true.)
   end function batch_norm2d

   !> The largest number of each window
   type(layer_type) function max_pool2d(kernel_size, stride, padding, dilation, ceil_mode)
      !> Height and width of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Around the image; 0
      class(*), intent(in), optional :: padding
      !> Between the pixels of a window; 1
      class(*), intent(in), optional :: dilation
      !> Whether a window may reach beyond the padding; no
      class(*), intent(in), optional :: ceil_mode
      max_pool2d = pooling("max_pool2d", 2, kernel_size, stride, padding)
      call max_pool2d%put_axes("dilation", 2, dilation)
      call max_pool2d%put_flag("ceil_mode", ceil_mode)
   end function max_pool2d

   !> The mean of each window
   type(layer_type) function avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
      !> Height and width of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Around the image; 0
      class(*), intent(in), optional :: padding
      !> Whether a window may reach beyond the padding; no
      class(*), intent(in), optional :: ceil_mode
      !> Whether these zeros count in the mean; yes
      class(*), intent(in), optional :: count_include_pad
      !> In the place of the count; there is none
      class(*), intent(in), optional :: divisor_override
      avg_pool2d = pooling("avg_pool2d", 2, kernel_size, stride, padding)
      call avg_pool2d%put_flag("ceil_mode", ceil_mode)
      call avg_pool2d%put_flag("count_include_pad", count_include_pad)
      call avg_pool2d%put_integer("divisor_override", divisor_override)
   end function avg_pool2d

   !> The largest number of each window of volumes
   type(layer_type) function max_pool3d(kernel_size, stride, padding)
      !> Depth, height and width of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Around the volume; 0
      class(*), intent(in), optional :: padding
      max_pool3d = pooling("max_pool3d", 3, kernel_size, stride, padding)
   end function max_pool3d

   !> The mean of each window of volumes, in which padding counts as zeros
   type(layer_type) function avg_pool3d(kernel_size, stride, padding)
      !> Depth, height and width of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Around the volume; 0
      class(*), intent(in), optional :: padding
      avg_pool3d = pooling("avg_pool3d", 3, kernel_size, stride, padding)
   end function avg_pool3d

   !> Any of these
   type(layer_type) function pooling(kind, axes, kernel_size, stride, padding)
      !> Its type in exchange files
      character(len=*), intent(in) :: kind
      !> Those of a window
      integer, intent(in) :: axes
      !> Sides of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Around; 0
      class(*), intent(in), optional :: padding
      pooling = layer(kind)
      call pooling%put_axes("kernel_size", axes, kernel_size)
      if (.not. present(stride)) call pooling%put_axes("stride", axes, kernel_size)
      call pooling%put_axes("stride", axes, stride)
      call pooling%put_axes("padding", axes, padding)
   end function pooling

   !> A hyperparameter of an integer for each axis, all alike; none where it is not there
   subroutine put_axes(self, name, axes, value)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> How many
      integer, intent(in) :: axes
      !> Each integer
      class(*), intent(in), optional :: value
      if (present(value)) call self%put_numbers(name, spread(number_of(value), 1, axes))
   end subroutine put_axes

   !> A hyperparameter of one integer; none where it is not there
   subroutine put_integer(self, name, value)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> The integer
      class(*), intent(in), optional :: value
      if (present(value)) call self%put_numbers(name, [number_of(value)])
   end subroutine put_integer

   !> A hyperparameter of one real number; none where it is not there
   subroutine put_real(self, name, value)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> The number
      real(dp), intent(in), optional :: value
      if (present(value)) call self%put_numbers(name, [value])
   end subroutine put_real

   !> A hyperparameter that is 0 or 1; none where it is not there
   subroutine put_flag(self, name, value)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> Whether it is 1
      class(*), intent(in), optional :: value
      if (present(value)) call self%put_numbers(name, [flag_of(value)])
   end subroutine put_flag

   subroutine put_numbers(self, name, numbers)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> One or more
      real(dp), intent(in) :: numbers(:)
      type(attribute_type) :: item
      item%name = name
      item%numbers = numbers
      self%attributes%items = [self%attributes%items, item]
   end subroutine put_numbers

end module cnn_library_layers
