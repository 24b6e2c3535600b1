! SPDX-License-Identifier: MIT
!> Layers by torch's names and arguments, for `network_type%add`.
!>
!> Integers and logicals may be of any kind of 8 to 64 bits. A height and a width are alike here. Others, and every
!> operation that has no function here, are had as `layer("type", "name=numbers ...")`, as exchange files have them.
module cnn_library_layers
   use cnn_core_kinds, only : dp
   use cnn_library_any_kind, only : flag_of, number_of
   use cnn_operations_attributes, only : attribute_type, attributes_from, attributes_type
   implicit none
   private

   public :: avg_pool2d, batch_norm2d, conv2d, conv_transpose2d, layer, linear, max_pool2d

   !> What a layer computes
   type, public :: layer_type
      !> Its type in exchange files
      character(len=:), allocatable :: kind
      !> Its hyperparameters
      type(attributes_type) :: attributes
   contains
      procedure, private :: put_pair, put_integer, put_real, put_flag, put_numbers
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
      conv2d = layer("conv2d")
      call conv2d%put_integer("in_channels", in_channels)
      call conv2d%put_integer("out_channels", out_channels)
      call conv2d%put_pair("kernel_size", kernel_size)
      call conv2d%put_pair("stride", stride)
      call conv2d%put_pair("padding", padding)
      call conv2d%put_pair("dilation", dilation)
      call conv2d%put_integer("groups", groups)
      call conv2d%put_flag("bias", bias)
   end function conv2d

   !> A transposed convolution, which learns a weight (s, r, out_channels/groups, in_channels) and a bias (out_channels)
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
      conv_transpose2d = conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
      conv_transpose2d%kind = "conv_transpose2d"
      call conv_transpose2d%put_pair("output_padding", output_padding)
   end function conv_transpose2d

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
      max_pool2d = layer("max_pool2d")
      call max_pool2d%put_pair("kernel_size", kernel_size)
      if (.not. present(stride)) call max_pool2d%put_pair("stride", kernel_size)
      call max_pool2d%put_pair("stride", stride)
      call max_pool2d%put_pair("padding", padding)
      call max_pool2d%put_pair("dilation", dilation)
      call max_pool2d%put_flag("ceil_mode", ceil_mode)
   end function max_pool2d

   !> The mean of each window
   type(layer_type) function avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
      !> Height and width of the windows
      class(*), intent(in) :: kernel_size
      !> From window to window; the kernel's size
      class(*), intent(in), optional :: stride
      !> Zeros around the image; 0
      class(*), intent(in), optional :: padding
      !> Whether a window may reach beyond the padding; no
      class(*), intent(in), optional :: ceil_mode
      !> Whether these zeros count in the mean; yes
      class(*), intent(in), optional :: count_include_pad
      !> In the place of the count; there is none
      class(*), intent(in), optional :: divisor_override
      avg_pool2d = max_pool2d(kernel_size, stride, padding, ceil_mode=ceil_mode)
      avg_pool2d%kind = "avg_pool2d"
      call avg_pool2d%put_flag("count_include_pad", count_include_pad)
      call avg_pool2d%put_integer("divisor_override", divisor_override)
   end function avg_pool2d

   !> A hyperparameter of two integers that are alike; none where it is not there
   subroutine put_pair(self, name, value)
      !> The layer
      class(layer_type), intent(inout) :: self
      !> The hyperparameter's
      character(len=*), intent(in) :: name
      !> Both integers
      class(*), intent(in), optional :: value
      if (present(value)) call self%put_numbers(name, [number_of(value), number_of(value)])
   end subroutine put_pair

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
      !> One or two
      real(dp), intent(in) :: numbers(:)
      type(attribute_type) :: item
      item%name = name
      item%numbers = numbers
      self%attributes%items = [self%attributes%items, item]
   end subroutine put_numbers

end module cnn_library_layers
