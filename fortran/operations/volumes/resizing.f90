! SPDX-License-Identifier: MIT
!> Operations that change the size of a volume (n, c, d, h, w), along each axis by itself: first the depth, whose planes
!> are rows, then each plane as an image. Three numbers are (depth, height, width).
module cnn_operations_volumes_resizing
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : resample_backward_call, resample_call
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : dp, i8
   use cnn_core_tensor, only : extent_of, part_of, tensor_type
   use cnn_operations_attributes, only : attributes_type
   use cnn_operations_operation, only : no, operands_type, operation_type, yes
   use cnn_operations_resizing, only : averaged, linear, linear_aligned, nearest
   use cnn_operations_shape, only : shape_of, shape_type
   implicit none
   private

   public :: averaged, linear

   !> Each voxel repeated, linear interpolation between voxels, or the means of as many windows as wanted
   type, extends(operation_type), public :: resize3d_type
      !> One of those of cnn_operations_resizing
      integer :: rule = nearest
      !> How many times as large; of means how many
      integer :: amounts(3) = 1
   contains
      procedure, nopass :: reads_x => no
      procedure, nopass :: reads_y => no
      procedure, nopass :: is_light => yes
      procedure :: read => resize_read
      procedure :: find_shape => resize_shape
      procedure :: scratch_bytes => resize_scratch
      procedure :: forward => resize_forward
      procedure :: backward => resize_backward
   end type resize3d_type

contains

   subroutine resize_read(self, given, error)
      class(resize3d_type), intent(inout) :: self
      !> output_size, or scale_factor, and of an interpolation align_corners
      type(attributes_type), intent(inout) :: given
      type(error_type), allocatable, intent(out) :: error
      logical :: align_corners
      if (self%rule == averaged) then
         call given%get_integers("output_size", self%amounts, error, 1)
         return
      end if
      call given%get_integers("scale_factor", self%amounts, error, 1)
      if (allocated(error) .or. self%rule == nearest) return
      call given%get_flag("align_corners", align_corners, error, .false.)
      self%rule = merge(linear_aligned, linear, align_corners)
   end subroutine resize_read

   subroutine resize_shape(self, shapes, y, error)
      class(resize3d_type), intent(in) :: self
      !> Of its input
      type(shape_type), intent(in) :: shapes(:)
      !> (n, c, and what becomes of d, h and w)
      type(shape_type), intent(out) :: y
      !> No volume, or too many voxels for an index
      type(error_type), allocatable, intent(out) :: error
      real(dp) :: sides(3)
      associate (x => shapes(1))
         if (x%rank /= 5) then
            call self%refuse("input "//x%text(), "a shape (n, c, d, h, w)", error)
            return
         end if
         sides = self%amounts
         if (self%rule /= averaged) sides = sides*x%extent([3, 2, 1])
         if (max(sides(1), sides(2)*sides(3)) > huge(1)) then
            call self%refuse("input "//x%text(), "fewer than 2**31 pixels of a plane of the output", error)
            return
         end if
         y = shape_of([nint(sides([3, 2, 1])), x%extent(4:5)])
      end associate
   end subroutine resize_shape

   !> The planes of the output with the pixels of the input
   pure integer(i8) function resize_scratch(self, in_host_memory, x, y)
      class(resize3d_type), intent(in) :: self
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Output
      type(tensor_type), intent(in) :: y
      associate (unused => self, unused_too => in_host_memory)
      end associate
      resize_scratch = x%bytes()/x%extent(3)*y%extent(3)
   end function resize_scratch

   !> Volumes as images
   pure type(tensor_type) function images(tensor, extent)
      !> Volumes
      type(tensor_type), intent(in) :: tensor
      !> Four
      integer, intent(in) :: extent(:)
      images = tensor
      images%extent = extent_of(extent)
   end function images

   !> How the depth changes: what is a row of pixels stays one
   pure function of_depth(self, pixels) result(amounts)
      class(resize3d_type), intent(in) :: self
      !> Of a plane
      integer, intent(in) :: pixels
      integer :: amounts(2)
      amounts = [self%amounts(1), merge(pixels, 1, self%rule == averaged)]
   end function of_depth

   subroutine resize_forward(self, backend, operands, error)
      class(resize3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> y from x
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: t
      associate (x => operands%x(1), y => operands%y, pixels => product(operands%x(1)%extent(:2)))
         t = part_of(operands%scratch, 0_i8, [pixels, y%extent(3:5)])
         call self%run(backend, resample_call(images(x, [pixels, x%extent(3:5)]), self%rule, of_depth(self, pixels), &
            & t), error)
         if (allocated(error)) return
         call self%run(backend, resample_call(images(t, [x%extent(:2), y%extent(3)*y%extent(4), y%extent(5)]), &
            & self%rule, self%amounts(2:), images(y, [y%extent(:2), y%extent(3)*y%extent(4), y%extent(5)])), error)
      end associate
   end subroutine resize_forward

   subroutine resize_backward(self, backend, operands, error)
      class(resize3d_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> dx from dy
      type(operands_type), intent(in) :: operands
      type(error_type), allocatable, intent(out) :: error
      type(tensor_type) :: t
      associate (dx => operands%dx(1), dy => operands%dy, pixels => product(operands%dx(1)%extent(:2)))
         t = part_of(operands%scratch, 0_i8, [dx%extent(:2), dy%extent(3)*dy%extent(4), dy%extent(5)])
         call self%run(backend, resample_backward_call(images(dy, [dy%extent(:2), dy%extent(3)*dy%extent(4), &
            & dy%extent(5)]), self%rule, self%amounts(2:), t), error)
         if (allocated(error)) return
         call self%run(backend, resample_backward_call(images(t, [pixels, dy%extent(3:5)]), self%rule, &
            & of_depth(self, pixels), images(dx, [pixels, dx%extent(3:5)])), error)
      end associate
   end subroutine resize_backward

end module cnn_operations_volumes_resizing
