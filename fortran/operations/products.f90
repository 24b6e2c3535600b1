! SPDX-License-Identifier: MIT
!> Operations that multiply by weights.
module cnn_operations_products
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : add_bias_call
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp
   use cnn_core_tensor, only : extent_of, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   !> A convolution, by the device's own kernels
   type, extends(operation_type), public :: conv2d_type
      type(conv_type) :: conv
      !> Fortran order (s, r, c/groups, k)
      integer :: weight_extent(4) = 1
      logical :: has_bias = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: reads_x_first => yes
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => conv_read
      procedure :: find_shape => conv_shape
      procedure :: forward => conv_forward
      procedure :: backward => conv_backward
   end type conv2d_type

   !> A transposed convolution: the data gradient of the convolution from its output to its input
   type, extends(operation_type), public :: conv_transpose2d_type
      type(conv_type) :: conv
      !> Fortran order (s, r, k/groups, c)
      integer :: weight_extent(4) = 1
      !> Rows and columns that are added behind the output, where a stride leaves its size open
      integer :: output_padding(2) = 0
      logical :: has_bias = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: reads_x_first => yes
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => transpose_read
      procedure :: find_shape => transpose_shape
      procedure :: forward => transpose_forward
      procedure :: backward => transpose_backward
   end type conv_transpose2d_type

   !> x times weights over the last of torch's axes: a convolution with a kernel of one pixel, on images of one pixel
   type, extends(operation_type), public :: linear_type
      integer :: in_features = 1, out_features = 1
      logical :: has_bias = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: reads_x_first => yes
      procedure, nopass :: leaves_out_dx => yes
      procedure :: read => linear_read
      procedure :: find_shape => linear_shape
      procedure :: forward => linear_forward
      procedure :: backward => linear_backward
   end type linear_type

contains

   subroutine conv_read(self, given, error)
      class(conv2d_type), intent(inout) :: self
      !> Channels, kernel, stride, padding, dilation, groups, bias
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      integer :: channels(2), y_extent(4)
      call read_convolution(self, given, self%conv, self%weight_extent, channels, self%has_bias, error)
      if (allocated(error)) return
      self%weight_extent(3:) = [channels(1)/self%conv%groups, channels(2)]
      call add_parameters(self, self%weight_extent, channels(2), self%has_bias, error)
      if (allocated(error)) return
      ! An input as large as the dilated kernel always fits: what is refused here is the layer itself
      associate (kernel => self%weight_extent(:2), conv => self%conv)
         call conv%output_extent([1 + conv%dilation_w*(kernel(1) - 1), 1 + conv%dilation_h*(kernel(2) - 1), &
            & channels(1), 1], self%weight_extent, y_extent, error)
      end associate
      call self%name_node(error)
   end subroutine conv_read

   !> What a convolution and a transposed one have in common
   subroutine read_convolution(self, given, conv, weight_extent, channels, has_bias, error)
      class(operation_type), intent(in) :: self
      !> Channels, kernel, stride, padding, dilation, groups, bias
      type(attributes_type), intent(inout) :: given
      !> The geometry
      type(conv_type), intent(out) :: conv
      !> Of which s and r are set
      integer, intent(inout) :: weight_extent(4)
      !> Of the input and of the output
      integer, intent(out) :: channels(2)
      !> Whether a bias is added
      logical, intent(out) :: has_bias
      type(error_type), allocatable, intent(out) :: error
      integer :: kernel(2), stride(2), padding(2), dilation(2), groups

      channels = 1
      has_bias = .true.
      call given%get_integer("in_channels", channels(1), error)
      if (allocated(error)) return
      call given%get_integer("out_channels", channels(2), error)
      if (allocated(error)) return
      call given%get_integers("kernel_size", kernel, error, 1)
      if (allocated(error)) return
      call given%get_integers("stride", stride, error, 1, default=1)
      if (allocated(error)) return
      call given%get_integers("padding", padding, error, 0, default=0)
      if (allocated(error)) return
      call given%get_integers("dilation", dilation, error, 1, default=1)
      if (allocated(error)) return
      call given%get_integer("groups", groups, error, default=1)
      if (allocated(error)) return
      call given%get_flag("bias", has_bias, error, .true.)
      if (allocated(error)) return
      if (any(mod(channels, groups) /= 0)) then
         call self%refuse("channels "//to_text(channels)//" in "//to_text(groups)//" groups", &
            & "multiples of the groups", error)
         return
      end if
      conv = conv_type(stride_h=stride(1), stride_w=stride(2), pad_h=padding(1), pad_w=padding(2), &
         & dilation_h=dilation(1), dilation_w=dilation(2), groups=groups)
      weight_extent(:2) = kernel([2, 1])
   end subroutine read_convolution

   !> Weights of this shape, and a bias for each channel of the output
   subroutine add_parameters(self, weight_extent, channels, has_bias, error)
      class(operation_type), intent(inout) :: self
      !> In Fortran order
      integer, intent(in) :: weight_extent(4)
      !> Of the output
      integer, intent(in) :: channels
      !> Whether there is one
      logical, intent(in) :: has_bias
      !> Too many weights for an index
      type(error_type), allocatable, intent(out) :: error
      if (product(real(weight_extent, dp)) > huge(1)) then
         call self%refuse("weights "//to_text(weight_extent(4:1:-1)), "fewer than 2**31 of them", error)
         return
      end if
      self%parameters = [parameter_shape_type("weight", shape_of(weight_extent))]
      if (has_bias) self%parameters = [self%parameters, parameter_shape_type("bias", shape_of([channels]))]
   end subroutine add_parameters

   subroutine conv_shape(self, shapes, y, error)
      class(conv2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, k, p, q)
      type(shape_type), intent(out) :: y
      !> Another number of channels, or an image that is smaller than the kernel
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(4)
      if (shapes(1)%rank /= 4) then
         call self%refuse("input "//shapes(1)%text(), "a shape (n, c, h, w)", error)
         return
      end if
      call self%conv%output_extent(shapes(1)%extent, self%weight_extent, extent, error)
      call self%name_node(error)
      if (.not. allocated(error)) y = shape_of(extent)
   end subroutine conv_shape

   subroutine conv_forward(self, backend, operands, error)
      class(conv2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: step
      step%conv = self%conv
      step%x = operands%x(1)
      step%w = operands%w(1)
      if (self%has_bias) step%bias = operands%w(2)
      step%y = operands%y
      call backend%conv_forward(step, error)
      call self%name_node(error)
   end subroutine conv_forward

   subroutine conv_backward(self, backend, operands, error)
      class(conv2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w; no gradient of the bias where there is no memory for it
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      logical :: with_bias
      with_bias = self%has_bias
      if (with_bias) with_bias = operands%dw(2)%is_allocated()
      associate (to => operands)
         call backend%conv_backward_filter(self%conv, to%x(1), to%dy, to%dw(1), error)
         if (.not. allocated(error) .and. with_bias) call backend%conv_backward_bias(to%dy, to%dw(2), error)
         if (.not. allocated(error) .and. to%dx(1)%is_allocated()) then
            call backend%conv_backward_data(self%conv, to%w(1), to%dy, to%dx(1), error)
         end if
      end associate
      call self%name_node(error)
   end subroutine conv_backward

   subroutine transpose_read(self, given, error)
      class(conv_transpose2d_type), intent(inout) :: self
      !> As of a convolution, and output_padding
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      integer :: channels(2)
      call read_convolution(self, given, self%conv, self%weight_extent, channels, self%has_bias, error)
      if (allocated(error)) return
      call given%get_integers("output_padding", self%output_padding, error, 0, default=0)
      if (allocated(error)) return
      self%weight_extent(3:) = [channels(2)/self%conv%groups, channels(1)]
      call add_parameters(self, self%weight_extent, channels(2), self%has_bias, error)
   end subroutine transpose_read

   subroutine transpose_shape(self, shapes, y, error)
      class(conv_transpose2d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, k, h, w): the largest, or smaller, of which the convolution makes the input's size
      type(shape_type), intent(out) :: y
      !> Another number of channels, an output padding that is too large, or no output at all
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: sides(2)
      integer :: stride(2), dilation(2)
      associate (x => shapes(1), conv => self%conv)
         stride = [conv%stride_h, conv%stride_w]
         dilation = [conv%dilation_h, conv%dilation_w]
         sides = (x%extent([2, 1]) - 1.0_dp)*stride - 2.0_dp*[conv%pad_h, conv%pad_w] + &
            & real(dilation, dp)*(self%weight_extent([2, 1]) - 1) + self%output_padding + 1
         if (x%rank /= 4 .or. x%extent(3) /= self%weight_extent(4)) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%weight_extent(4))//", h, w)", error)
         else if (any(self%output_padding >= max(stride, dilation))) then
            call self%refuse("output_padding "//to_text(self%output_padding), "less than stride or dilation", error)
         else if (any(sides < 1.0_dp .or. sides > huge(1))) then
            call self%refuse("input "//x%text(), "an output of one pixel or more", error)
         else
            y = shape_of([nint(sides([2, 1])), self%weight_extent(3)*conv%groups, x%extent(4)])
         end if
      end associate
   end subroutine transpose_shape

   subroutine transpose_forward(self, backend, operands, error)
      class(conv_transpose2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      ! Else the convolution has further pixels, which come from no input: libraries of devices take no such shapes
      if (.not. backend%in_host_memory .and. any(self%output_padding >= [self%conv%stride_h, self%conv%stride_w])) then
         call self%refuse("output_padding "//to_text(self%output_padding), "less than the stride on the device "// &
            & backend%name, error)
         return
      end if
      call backend%conv_backward_data(self%conv, operands%w(1), operands%x(1), operands%y, error)
      call self%name_node(error)
      if (allocated(error) .or. .not. self%has_bias) return
      call self%run(backend, add_bias_call(operands%w(2), operands%y), error)
   end subroutine transpose_forward

   subroutine transpose_backward(self, backend, operands, error)
      class(conv_transpose2d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: step
      step%conv = self%conv
      step%x = operands%dy
      step%w = operands%w(1)
      step%y = operands%dx(1)
      call backend%conv_backward_filter(self%conv, operands%dy, operands%x(1), operands%dw(1), error)
      if (.not. allocated(error) .and. self%has_bias) then
         call backend%conv_backward_bias(operands%dy, operands%dw(2), error)
      end if
      if (.not. allocated(error) .and. step%y%is_allocated()) call backend%conv_forward(step, error)
      call self%name_node(error)
   end subroutine transpose_backward

   subroutine linear_read(self, given, error)
      class(linear_type), intent(inout) :: self
      !> in_features, out_features, bias
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call given%get_integer("in_features", self%in_features, error)
      if (.not. allocated(error)) call given%get_integer("out_features", self%out_features, error)
      if (.not. allocated(error)) call given%get_flag("bias", self%has_bias, error, .true.)
      if (allocated(error)) return
      if (real(self%in_features, dp)*self%out_features > huge(1)) then
         call self%refuse("weights "//to_text([self%out_features, self%in_features]), "fewer than 2**31 of them", error)
         return
      end if
      self%parameters = [parameter_shape_type("weight", shape_of([self%in_features, self%out_features]))]
      if (self%has_bias) self%parameters = [self%parameters, &
         & parameter_shape_type("bias", shape_of([self%out_features]))]
   end subroutine linear_read

   subroutine linear_shape(self, shapes, y, error)
      class(linear_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> With out_features in the place of in_features
      type(shape_type), intent(out) :: y
      !> Another number of features
      type(error_type), allocatable, intent(out) :: error
      if (shapes(1)%rank < 2 .or. shapes(1)%extent(1) /= self%in_features) then
         call self%refuse("input "//shapes(1)%text(), to_text(self%in_features)//" features in its last axis", error)
         return
      end if
      y = shapes(1)
      y%extent(1) = self%out_features
   end subroutine linear_shape

   subroutine linear_forward(self, backend, operands, error)
      class(linear_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(conv_step_type) :: step
      step%x = as_pixels(operands%x(1))
      step%w = as_kernels(operands%w(1))
      if (self%has_bias) step%bias = operands%w(2)
      step%y = as_pixels(operands%y)
      call backend%conv_forward(step, error)
      call self%name_node(error)
   end subroutine linear_forward

   subroutine linear_backward(self, backend, operands, error)
      class(linear_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: dy
      dy = as_pixels(operands%dy)
      associate (to => operands)
         call backend%conv_backward_filter(conv_type(), as_pixels(to%x(1)), dy, as_kernels(to%dw(1)), error)
         if (.not. allocated(error) .and. self%has_bias) call backend%conv_backward_bias(dy, to%dw(2), error)
         if (.not. allocated(error) .and. to%dx(1)%is_allocated()) then
            call backend%conv_backward_data(conv_type(), as_kernels(to%w(1)), dy, as_pixels(to%dx(1)), error)
         end if
      end associate
      call self%name_node(error)
   end subroutine linear_backward

   !> Rows of features as images of one pixel, whose channels they are
   pure type(tensor_type) function as_pixels(tensor)
      !> Features in Fortran's first axis
      type(tensor_type), intent(in) :: tensor
      as_pixels = tensor
      as_pixels%extent = extent_of([1, 1, tensor%extent(1), product(tensor%extent(2:))])
   end function as_pixels

   !> Weights (in, out) as kernels of one tap
   pure type(tensor_type) function as_kernels(tensor)
      !> Of a linear layer
      type(tensor_type), intent(in) :: tensor
      as_kernels = tensor
      as_kernels%extent = extent_of([1, 1, tensor%extent(:2)])
   end function as_kernels

end module cnn_operations_products
