! SPDX-License-Identifier: MIT
!> Convolutions of volumes (w, h, d, c, n) as convolutions of images.
!>
!> A plane of the output is the convolution of an image whose channels are the planes of the input that a window reads
!> along the depth, all of a channel one behind the other: torch's weight (k, c, d, r, s) is, as it lies in memory, one
!> of (k, c*d, r, s). These planes are copied, zeros for those outside, for some planes of the output at a time.
module cnn_operations_volumes_planes
   use cnn_core_axes, only : strides_of
   use cnn_core_backend, only : backend_type
   use cnn_core_calls, only : accumulate_call, move_call
   use cnn_core_conv_geometry, only : conv_type, tap_type, taps_along
   use cnn_core_conv_step, only : conv_step_type
   use cnn_core_error, only : error_type
   use cnn_core_kinds, only : bytes_of, i8
   use cnn_core_tensor, only : aligned, extent_of, max_rank, part_of, tensor_type
   use cnn_operations_primitives, only : compute
   implicit none
   private

   public :: as_rows

   !> A convolution of volumes
   type, public :: volume_conv_type
      !> Of the planes
      type(conv_type) :: conv
      !> Along the depth: planes from window to window, zeros on each side, planes from tap to tap
      integer :: stride_d = 1, pad_d = 0, dilation_d = 1
   contains
      procedure :: scratch_bytes
      procedure :: is_flat
      procedure :: forward
      procedure :: backward_data
      procedure :: backward_filter
      procedure, private :: taps_of, gather, scatter
   end type volume_conv_type

   !> Some planes of the output, of some volumes, and where they are worked on
   type :: windows_type
      !> Planes and volumes before them
      integer :: plane = 0, volume = 0
      !> How many of each
      integer :: planes = 1, volumes = 1
      !> The planes that they read, as channels (w, h, c*d, planes*volumes), themselves as images (q, p, k,
      !> planes*volumes), and their part of the gradient of the weights
      type(tensor_type) :: read, images, dw
   contains
      procedure :: extent_read
   end type windows_type

   !> Bytes of the planes that are worked on at a time: what a cache holds, and on other devices what keeps them busy
   integer(i8), parameter :: in_cache = 4194304_i8, at_once = 268435456_i8

contains

   !> Whether rows of all planes are read as those of one image: no window goes beyond a row
   pure logical function is_flat(self, w)
      class(volume_conv_type), intent(in) :: self
      !> Weights (s, r, d, c/groups, k)
      integer, intent(in) :: w(max_rank)
      is_flat = all(w(2:3) == 1) .and. self%stride_d == 1 .and. self%pad_d == 0 .and. self%conv%stride_h == 1 .and. &
         & self%conv%pad_h == 0
   end function is_flat

   !> Memory that the passes work in
   pure integer(i8) function scratch_bytes(self, in_host_memory, x, w, y)
      class(volume_conv_type), intent(in) :: self
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, of which only element type and extents matter
      type(tensor_type), intent(in) :: x
      !> Weights, too
      type(tensor_type), intent(in) :: w
      !> Output, too
      type(tensor_type), intent(in) :: y
      integer :: planes, volumes
      scratch_bytes = 0_i8
      if (self%is_flat(w%extent)) return
      call chosen(in_host_memory, x, w, y, planes, volumes)
      scratch_bytes = aligned(w%bytes()) + aligned(images(x, w%extent(3), planes, volumes)) + &
         & aligned(images(y, 1, planes, volumes))
   end function scratch_bytes

   !> Bytes of some planes of volumes, as images
   pure integer(i8) function images(tensor, taps, planes, volumes)
      !> Volumes
      type(tensor_type), intent(in) :: tensor
      !> Planes of a channel in each image
      integer, intent(in) :: taps
      !> How many of each volume
      integer, intent(in) :: planes
      !> Of how many volumes
      integer, intent(in) :: volumes
      images = product(int(tensor%extent([1, 2, 4]), i8))*taps*planes*volumes*bytes_of(tensor%dtype)
   end function images

   !> How much is worked on at a time: parts of a volume, all nearly alike, or some volumes
   pure subroutine chosen(in_host_memory, x, w, y, planes, volumes)
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input
      type(tensor_type), intent(in) :: x
      !> Weights
      type(tensor_type), intent(in) :: w
      !> Output
      type(tensor_type), intent(in) :: y
      !> Planes of the output
      integer, intent(out) :: planes
      !> Of so many volumes
      integer, intent(out) :: volumes
      integer(i8) :: most
      integer :: parts
      most = merge(in_cache, at_once, in_host_memory)/(images(x, w%extent(3), 1, 1) + images(y, 1, 1, 1))
      most = max(1_i8, min(most, int(y%extent(3), i8)*y%extent(5)))
      parts = int((y%extent(3) - 1)/most) + 1
      planes = (y%extent(3) - 1)/parts + 1
      volumes = 1
      if (parts == 1) volumes = int(min(most/planes, int(y%extent(5), i8)))
   end subroutine chosen

   !> y = conv(x, w) + bias
   subroutine forward(self, backend, x, w, bias, y, scratch, error)
      class(volume_conv_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Input (w, h, d, c, n)
      type(tensor_type), intent(in) :: x
      !> Weights (s, r, d, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> (k), or empty
      type(tensor_type), intent(in) :: bias
      !> Output (q, p, planes, k, n), is overwritten
      type(tensor_type), intent(in) :: y
      !> Of `scratch_bytes`
      type(tensor_type), intent(in) :: scratch
      type(error_type), allocatable, intent(out) :: error
      type(windows_type), allocatable :: all_of(:)
      type(conv_step_type) :: step
      integer :: i
      step%conv = self%conv
      step%w = as_images(w)
      step%bias = bias
      if (self%is_flat(w%extent)) then
         step%x = as_rows(x)
         step%y = as_rows(y)
         call backend%conv_forward(step, error)
         return
      end if
      allocate (all_of, source=windows_of(backend%in_host_memory, x, w, y, scratch))
      do i = 1, size(all_of)
         call self%gather(backend, all_of(i), x, w%extent(3), error)
         if (allocated(error)) return
         step%x = all_of(i)%read
         step%y = all_of(i)%images
         call backend%conv_forward(step, error)
         if (.not. allocated(error)) call put_back(backend, all_of(i), y, error)
         if (allocated(error)) return
      end do
   end subroutine forward

   !> dx = gradient of the loss with respect to x
   subroutine backward_data(self, backend, w, dy, dx, scratch, error)
      class(volume_conv_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Weights (s, r, d, c/groups, k)
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: dy
      !> With respect to the input, is overwritten
      type(tensor_type), intent(in) :: dx
      !> Of `scratch_bytes`
      type(tensor_type), intent(in) :: scratch
      type(error_type), allocatable, intent(out) :: error
      type(windows_type), allocatable :: all_of(:)
      integer :: i
      if (self%is_flat(w%extent)) then
         call backend%conv_backward_data(self%conv, as_images(w), as_rows(dy), as_rows(dx), error)
         return
      end if
      allocate (all_of, source=windows_of(backend%in_host_memory, dx, w, dy, scratch))
      call backend%clear(dx, error)
      do i = 1, size(all_of)
         if (.not. allocated(error)) call take_out(backend, all_of(i), dy, error)
         if (allocated(error)) return
         call backend%conv_backward_data(self%conv, as_images(w), all_of(i)%images, all_of(i)%read, error)
         if (.not. allocated(error)) call self%scatter(backend, all_of(i), dx, w%extent(3), error)
      end do
   end subroutine backward_data

   !> dw = gradient of the loss with respect to w
   subroutine backward_filter(self, backend, x, dy, dw, scratch, error)
      class(volume_conv_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Input (w, h, d, c, n)
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output
      type(tensor_type), intent(in) :: dy
      !> With respect to the weights, is overwritten
      type(tensor_type), intent(in) :: dw
      !> Of `scratch_bytes`
      type(tensor_type), intent(in) :: scratch
      type(error_type), allocatable, intent(out) :: error
      type(windows_type), allocatable :: all_of(:)
      type(tensor_type) :: part
      integer :: i
      if (self%is_flat(dw%extent)) then
         call backend%conv_backward_filter(self%conv, as_rows(x), as_rows(dy), as_images(dw), error)
         return
      end if
      allocate (all_of, source=windows_of(backend%in_host_memory, x, dw, dy, scratch))
      do i = 1, size(all_of)
         call self%gather(backend, all_of(i), x, dw%extent(3), error)
         if (.not. allocated(error)) call take_out(backend, all_of(i), dy, error)
         if (allocated(error)) return
         part = as_images(dw)
         if (i > 1) part = all_of(i)%dw
         call backend%conv_backward_filter(self%conv, all_of(i)%read, all_of(i)%images, part, error)
         if (.not. allocated(error) .and. i > 1) call compute(backend, accumulate_call(part, as_images(dw)), error)
         if (allocated(error)) return
      end do
   end subroutine backward_filter

   !> All windows, some planes or volumes at a time
   function windows_of(in_host_memory, x, w, y, scratch) result(all_of)
      !> Where the tensors are
      logical, intent(in) :: in_host_memory
      !> Input, or its gradient
      type(tensor_type), intent(in) :: x
      !> Weights, or their gradient
      type(tensor_type), intent(in) :: w
      !> Output, or its gradient
      type(tensor_type), intent(in) :: y
      !> Of `scratch_bytes`
      type(tensor_type), intent(in) :: scratch
      type(windows_type), allocatable :: all_of(:)
      integer(i8) :: offset
      integer :: i, n, parts, planes, volumes
      call chosen(in_host_memory, x, w, y, planes, volumes)
      parts = (y%extent(3) - 1)/planes + 1
      allocate (all_of(parts*((y%extent(5) - 1)/volumes + 1)))
      do i = 1, size(all_of)
         associate (one => all_of(i))
            one%plane = mod(i - 1, parts)*planes
            one%volume = (i - 1)/parts*volumes
            one%planes = min(planes, y%extent(3) - one%plane)
            one%volumes = min(volumes, y%extent(5) - one%volume)
            n = one%planes*one%volumes
            one%dw = as_images(part_of(scratch, 0_i8, w%extent))
            offset = aligned(w%bytes())
            one%read = part_of(scratch, offset, [x%extent(:2), x%extent(4)*w%extent(3), n])
            offset = offset + aligned(images(x, w%extent(3), planes, volumes))
            one%images = part_of(scratch, offset, [y%extent(:2), y%extent(4), n])
         end associate
      end do
   end function windows_of

   !> Copy the planes that windows read
   subroutine gather(self, backend, windows, x, taps, error)
      class(volume_conv_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Whose `read` is overwritten
      type(windows_type), intent(in) :: windows
      !> Input
      type(tensor_type), intent(in) :: x
      !> Along the depth
      integer, intent(in) :: taps
      type(error_type), allocatable, intent(out) :: error
      type(tap_type) :: all_of(taps)
      integer :: t
      all_of = self%taps_of(windows, x%extent(3), taps)
      if (any(all_of%pairs < windows%planes)) call backend%clear(windows%read, error)
      if (allocated(error)) return
      do t = 1, taps
         associate (tap => all_of(t))
            if (tap%pairs == 0) cycle
            call compute(backend, move_call( &
               & part_from(x, x%extent, [0, 0, tap%in_first - 1, 0, windows%volume]), [1, 2, 3, 4, 3, 5, 7, 8], &
               & [1, 1, 1, 1, tap%in_step, 1, 1, 1], &
               & extent_of([x%extent(:2), 1, x%extent(4), tap%pairs, windows%volumes]), spread(1, 1, max_rank), &
               & .false., part_from(windows%read, windows%extent_read(x, taps), [0, 0, t - 1, 0, tap%out_first - 1])), &
               & error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine gather

   !> Add to the planes that windows have read what comes back to them
   subroutine scatter(self, backend, windows, dx, taps, error)
      class(volume_conv_type), intent(in) :: self
      class(backend_type), intent(in) :: backend
      !> Of whose `read` there is the gradient
      type(windows_type), intent(in) :: windows
      !> Gradient with respect to the input
      type(tensor_type), intent(in) :: dx
      !> Along the depth
      integer, intent(in) :: taps
      type(error_type), allocatable, intent(out) :: error
      type(tap_type) :: all_of(taps)
      integer :: t
      all_of = self%taps_of(windows, dx%extent(3), taps)
      do t = 1, taps
         associate (tap => all_of(t))
            if (tap%pairs == 0) cycle
            call compute(backend, move_call( &
               & part_from(windows%read, windows%extent_read(dx, taps), [0, 0, t - 1, 0, tap%out_first - 1]), &
               & [1, 2, 5, 4, 6, 7, 8, 8], spread(1, 1, max_rank), &
               & extent_of([dx%extent(:2), tap%pairs, dx%extent(4), windows%volumes]), &
               & [1, 1, tap%in_step, 1, 1, 1, 1, 1], .true., &
               & part_from(dx, dx%extent, [0, 0, tap%in_first - 1, 0, windows%volume])), error)
         end associate
         if (allocated(error)) return
      end do
   end subroutine scatter

   !> Which planes of the input each tap of windows reads
   pure function taps_of(self, windows, depth, taps) result(all_of)
      class(volume_conv_type), intent(in) :: self
      !> Of some planes
      type(windows_type), intent(in) :: windows
      !> Planes of the input
      integer, intent(in) :: depth
      !> Along the depth
      integer, intent(in) :: taps
      type(tap_type) :: all_of(taps)
      all_of = taps_along(depth, windows%planes, taps, self%stride_d, self%pad_d - windows%plane*self%stride_d, &
         & self%dilation_d)
   end function taps_of

   !> Extents (w, h, d, c, planes, volumes) of what windows read
   pure function extent_read(self, x, taps) result(extent)
      class(windows_type), intent(in) :: self
      !> Input
      type(tensor_type), intent(in) :: x
      !> Along the depth
      integer, intent(in) :: taps
      integer :: extent(max_rank)
      extent = extent_of([x%extent(:2), taps, x%extent(4), self%planes, self%volumes])
   end function extent_read

   !> Planes of the output that were computed as images, to their places
   subroutine put_back(backend, windows, y, error)
      class(backend_type), intent(in) :: backend
      !> Whose `images` are copied
      type(windows_type), intent(in) :: windows
      !> Output
      type(tensor_type), intent(in) :: y
      type(error_type), allocatable, intent(out) :: error
      call compute(backend, move_call(part_from(windows%images, extent_of([y%extent(:2), y%extent(4), windows%planes, &
         & windows%volumes]), [0]), [1, 2, 4, 3, 5, 6, 7, 8], spread(1, 1, max_rank), &
         & extent_of([y%extent(:2), windows%planes, y%extent(4), windows%volumes]), spread(1, 1, max_rank), .false., &
         & part_from(y, y%extent, [0, 0, windows%plane, 0, windows%volume])), error)
   end subroutine put_back

   !> Planes of the gradient with respect to the output, as images
   subroutine take_out(backend, windows, dy, error)
      class(backend_type), intent(in) :: backend
      !> Whose `images` are overwritten
      type(windows_type), intent(in) :: windows
      !> Gradient
      type(tensor_type), intent(in) :: dy
      type(error_type), allocatable, intent(out) :: error
      integer :: extent(max_rank)
      extent = extent_of([dy%extent(:2), dy%extent(4), windows%planes, windows%volumes])
      call compute(backend, move_call(part_from(dy, dy%extent, [0, 0, windows%plane, 0, windows%volume]), &
         & [1, 2, 4, 3, 5, 6, 7, 8], spread(1, 1, max_rank), extent, spread(1, 1, max_rank), .false., &
         & part_from(windows%images, extent, [0])), error)
   end subroutine take_out

   !> A tensor from one of its numbers on
   type(tensor_type) function part_from(tensor, extent, first)
      !> Memory
      type(tensor_type), intent(in) :: tensor
      !> Extents that it is seen with
      integer, intent(in) :: extent(max_rank)
      !> Indices, from 0, along the first axes
      integer, intent(in) :: first(:)
      integer(i8) :: strides(max_rank)
      strides = strides_of(extent)
      part_from = part_of(tensor, sum(strides(:size(first))*first)*bytes_of(tensor%dtype), extent)
   end function part_from

   !> Weights (s, r, d, c, k) of windows as those of images with the planes of a channel as channels
   pure type(tensor_type) function as_images(w)
      !> Or their gradient
      type(tensor_type), intent(in) :: w
      as_images = w
      as_images%extent = extent_of([w%extent(:2), w%extent(3)*w%extent(4), w%extent(5)])
   end function as_images

   !> Volumes as images of all rows of all planes
   pure type(tensor_type) function as_rows(x)
      !> (w, h, d, c, n)
      type(tensor_type), intent(in) :: x
      as_rows = x
      as_rows%extent = extent_of([x%extent(1), x%extent(2)*x%extent(3), x%extent(4:5)])
   end function as_rows

end module cnn_operations_volumes_planes
