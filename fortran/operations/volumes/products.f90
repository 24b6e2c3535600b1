! SPDX-License-Identifier: MIT
!> Convolutions of volumes (n, c, d, h, w), and transposed ones. Three numbers are (depth, height, width).
module cnn_operations_volumes_products
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : add_bias_call
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : max_rank, tensor_type
   use cnn_core_text, only : to_text
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, parameter_shape_type, yes
   use cnn_operations_shape, only : shape_of, shape_type
   use cnn_operations_volumes_planes, only : as_rows, volume_conv_type
   implicit none
   private

   !> What both have
   type, abstract, extends(operation_type) :: convolving_type
      type(volume_conv_type) :: conv
      integer :: kernel(3) = 1, stride(3) = 1, padding(3) = 0, dilation(3) = 1
      !> Of the input and of the output
      integer :: channels(2) = 1
      logical :: has_bias = .true.
   contains
      procedure, nopass :: reads_y => no
      procedure, nopass :: reads_x_first => yes
      procedure, nopass :: leaves_out_dx => yes
   end type convolving_type

   !> A convolution
   type, extends(convolving_type), public :: conv3d_type
   contains
      procedure :: read => conv_read
      procedure :: find_shape => conv_shape
      procedure :: scratch_bytes => conv_scratch
      procedure :: forward => conv_forward
      procedure :: backward => conv_backward
   end type conv3d_type

   !> A transposed convolution: the data gradient of the convolution from its output to its input
   type, extends(convolving_type), public :: conv_transpose3d_type
      !> Planes, rows and columns that are added behind the output, where a stride leaves its size open
      integer :: output_padding(3) = 0
   contains
      procedure :: read => transpose_read
      procedure :: find_shape => transpose_shape
      procedure :: scratch_bytes => transpose_scratch
      procedure :: forward => transpose_forward
      procedure :: backward => transpose_backward
   end type conv_transpose3d_type

contains

   subroutine conv_read(self, given, error)
      class(conv3d_type), intent(inout) :: self
      !> Channels, kernel, stride, padding, dilation, groups, bias
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_convolution(self, given, error)
      if (.not. allocated(error)) call add_parameters(self, self%channels, error)
   end subroutine conv_read

   !> What a convolution and a transposed one have in common
   subroutine read_convolution(self, given, error)
      class(convolving_type), intent(inout) :: self
      !> Channels, kernel, stride, padding, dilation, groups, bias
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      integer :: groups
      call given%get_integer("in_channels", self%channels(1), error)
      if (.not. allocated(error)) call given%get_integer("out_channels", self%channels(2), error)
      if (.not. allocated(error)) call given%get_integers("kernel_size", self%kernel, error, 1)
      if (.not. allocated(error)) call given%get_integers("stride", self%stride, error, 1, default=1)
      if (.not. allocated(error)) call given%get_integers("padding", self%padding, error, 0, default=0)
      if (.not. allocated(error)) call given%get_integers("dilation", self%dilation, error, 1, default=1)
      if (.not. allocated(error)) call given%get_integer("groups", groups, error, default=1)
      if (.not. allocated(error)) call given%get_flag("bias", self%has_bias, error, .true.)
      if (allocated(error)) return
      if (any(mod(self%channels, groups) /= 0)) then
         call self%refuse("channels "//to_text(self%channels)//" in "//to_text(groups)//" groups", &
            & "multiples of the groups", error)
      else if (any([self%stride, self%padding, self%dilation] > 32767)) then
         call self%refuse("stride "//to_text(self%stride)//", padding "//to_text(self%padding)//", dilation "// &
            & to_text(self%dilation), "values up to 32767", error)
      end if
      self%conv = volume_conv_type(stride_d=self%stride(1), pad_d=self%padding(1), dilation_d=self%dilation(1), &
         & conv=conv_type(stride_h=self%stride(2), stride_w=self%stride(3), pad_h=self%padding(2), &
         & pad_w=self%padding(3), dilation_h=self%dilation(2), dilation_w=self%dilation(3), groups=groups))
   end subroutine read_convolution

   !> Weights, and a bias for each channel of the output
   subroutine add_parameters(self, channels, error)
      class(convolving_type), intent(inout) :: self
      !> Of the convolution's input and output
      integer, intent(in) :: channels(2)
      !> Too many weights for an index
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(5)
      extent = [self%kernel([3, 2, 1]), channels(1)/self%conv%conv%groups, channels(2)]
      if (product(real(extent, dp)) > huge(1)) then
         call self%refuse("weights "//to_text(extent(5:1:-1)), "fewer than 2**31 of them", error)
         return
      end if
      self%parameters = [parameter_shape_type("weight", shape_of(extent))]
      if (self%has_bias) self%parameters = [self%parameters, parameter_shape_type("bias", shape_of(self%channels(2:)))]
   end subroutine add_parameters

   subroutine conv_shape(self, shapes, y, error)
      class(conv3d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, k, depth, p, q)
      type(shape_type), intent(out) :: y
      !> Another number of channels, or a volume that is smaller than the kernel
      type(error_type), allocatable, intent(out) :: error
      integer(i8) :: room(3)
      associate (x => shapes(1))
         if (x%rank /= 5 .or. x%extent(4) /= self%channels(1)) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%channels(1))//", d, h, w)", error)
            return
         end if
         room = x%extent([3, 2, 1]) + 2_i8*self%padding - int(self%dilation, i8)*(self%kernel - 1) - 1
         if (any(room < 0)) then
            call self%refuse("input "//x%text()//" and padding "//to_text(self%padding), "a volume of the kernel's "// &
               & "size "//to_text(self%kernel)//" or more", error)
            return
         end if
         room = room/self%stride + 1
         y = shape_of([int(room([3, 2, 1])), self%channels(2), x%extent(5)])
         call check_planes(self, x%extent, self%parameters(1)%shape%extent, error)
      end associate
   end subroutine conv_shape

   !> Images of planes, and rows of all of them, have to be such as devices take
   subroutine check_planes(self, x, w, error)
      class(convolving_type), intent(in) :: self
      !> Extents of the input of the convolution
      integer, intent(in) :: x(max_rank)
      !> Of its weights
      integer, intent(in) :: w(max_rank)
      !> Too many numbers in one of them
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(4)
      call self%conv%conv%output_extent([x(1:2), x(4)*w(3), x(5)], [w(1:2), w(3)*w(4), w(5)], extent, error)
      call self%name_node(error)
      if (allocated(error)) return
      if (real(x(1), dp)*x(2)*x(3)*self%conv%conv%groups*x(5) > huge(1)) call self%refuse("a volume "// &
         & to_text(x(3:1:-1)), "fewer than 2**31 numbers", error)
   end subroutine check_planes

   pure integer(i8) function conv_scratch(self, in_host_memory, x, y)
      class(conv3d_type), intent(in) :: self
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      conv_scratch = self%conv%scratch_bytes(in_host_memory, x, weights_of(self, x), y)
   end function conv_scratch

   !> Weights without memory
   pure type(tensor_type) function weights_of(self, x)
      class(convolving_type), intent(in) :: self
      !> Of their element type
      type(tensor_type), intent(in) :: x
      weights_of%dtype = x%dtype
      weights_of%extent = self%parameters(1)%shape%extent
   end function weights_of

   subroutine conv_forward(self, backend, operands, error)
      class(conv3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: bias
      if (self%has_bias) bias = operands%w(2)
      call self%conv%forward(backend, operands%x(1), operands%w(1), bias, operands%y, operands%scratch, error)
      call self%name_node(error)
   end subroutine conv_forward

   subroutine conv_backward(self, backend, operands, error)
      class(conv3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (to => operands)
         call self%conv%backward_filter(backend, to%x(1), to%dy, to%dw(1), to%scratch, error)
         if (.not. allocated(error) .and. self%has_bias) then
            call backend%conv_backward_bias(as_rows(to%dy), to%dw(2), error)
         end if
         if (.not. allocated(error) .and. to%dx(1)%is_allocated()) then
            call self%conv%backward_data(backend, to%w(1), to%dy, to%dx(1), to%scratch, error)
         end if
      end associate
      call self%name_node(error)
   end subroutine conv_backward

   subroutine transpose_read(self, given, error)
      class(conv_transpose3d_type), intent(inout) :: self
      !> As of a convolution, and output_padding
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      call read_convolution(self, given, error)
      if (.not. allocated(error)) call given%get_integers("output_padding", self%output_padding, error, 0, default=0)
      if (.not. allocated(error)) call add_parameters(self, self%channels([2, 1]), error)
   end subroutine transpose_read

   subroutine transpose_shape(self, shapes, y, error)
      class(conv_transpose3d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, k, d, h, w): the largest, or smaller, of which the convolution makes the input's size
      type(shape_type), intent(out) :: y
      !> Another number of channels, an output padding that is too large, or no output at all
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: sides(3)
      associate (x => shapes(1))
         sides = (x%extent([3, 2, 1]) - 1.0_dp)*self%stride - 2.0_dp*self%padding + &
            & real(self%dilation, dp)*(self%kernel - 1) + self%output_padding + 1
         if (x%rank /= 5 .or. x%extent(4) /= self%channels(1)) then
            call self%refuse("input "//x%text(), "a shape (n, "//to_text(self%channels(1))//", d, h, w)", error)
         else if (any(self%output_padding >= max(self%stride, self%dilation))) then
            call self%refuse("output_padding "//to_text(self%output_padding), "less than stride or dilation", error)
         else if (any(sides < 1.0_dp .or. sides > huge(1))) then
            call self%refuse("input "//x%text(), "an output of one voxel or more", error)
         else
            y = shape_of([nint(sides([3, 2, 1])), self%channels(2), x%extent(5)])
            call check_planes(self, y%extent, self%parameters(1)%shape%extent, error)
         end if
      end associate
   end subroutine transpose_shape

   pure integer(i8) function transpose_scratch(self, in_host_memory, x, y)
      class(conv_transpose3d_type), intent(in) :: self
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      transpose_scratch = self%conv%scratch_bytes(in_host_memory, y, weights_of(self, x), x)
   end function transpose_scratch

   subroutine transpose_forward(self, backend, operands, error)
      class(conv_transpose3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x, weight, and bias where it has one
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      ! Else planes have further pixels, which come from no input: libraries of devices take no such shapes
      if (.not. backend%in_host_memory .and. any(self%output_padding(2:) >= self%stride(2:))) then
         call self%refuse("output_padding "//to_text(self%output_padding), "less than the stride on the device "// &
            & backend%name, error)
         return
      end if
      call self%conv%backward_data(backend, operands%w(1), operands%x(1), operands%y, operands%scratch, error)
      call self%name_node(error)
      if (allocated(error) .or. .not. self%has_bias) return
      call self%run(backend, add_bias_call(operands%w(2), as_rows(operands%y)), error)
   end subroutine transpose_forward

   subroutine transpose_backward(self, backend, operands, error)
      class(conv_transpose3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx and dw from dy, x and w
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      associate (to => operands)
         call self%conv%backward_filter(backend, to%dy, to%x(1), to%dw(1), to%scratch, error)
         if (.not. allocated(error) .and. self%has_bias) then
            call backend%conv_backward_bias(as_rows(to%dy), to%dw(2), error)
         end if
         if (.not. allocated(error) .and. to%dx(1)%is_allocated()) then
            call self%conv%forward(backend, to%dy, to%w(1), tensor_type(), to%dx(1), to%scratch, error)
         end if
      end associate
      call self%name_node(error)
   end subroutine transpose_backward

end module cnn_operations_volumes_products
