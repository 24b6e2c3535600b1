! SPDX-License-Identifier: MIT
!> By which algorithm a convolution is computed on the CPU: directly, unless its packed rows would be too many or too
!> large; with pixels or with channels in the lanes, whatever costs less.
module cnn_cpu_plan_choice
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_kinds, only : bytes_of, dp, i8
   use cnn_core_tensor, only : tensor_type
   use cnn_core_text, only : to_text
   use cnn_cpu_plan_channel_lanes, only : outer_type, plan_outer
   use cnn_cpu_plan_grid, only : backward_grid, forward_grid, grid_type, most_summed, planes_are_few
   implicit none
   private

   public :: choose_backward, choose_filter, choose_forward, direct_text, filter_text, lay_backward, lay_forward, &
      & read_lanes

   !> How a filter gradient is computed: im2col; x packed and shifted, along the forward grid; dy packed and
   !> shifted, along the backward grid; with channels in the lanes, by a plan, or as of channels_last tensors
   integer, parameter, public :: filter_im2col = 0, filter_shifts_x = 1, filter_shifts_dy = 2, &
      & filter_channel_lanes = 3, filter_channels_last = 4

   !> What is in the lanes where both can be: what is cheaper, or always the same
   integer, parameter, public :: lanes_cheaper = 0, lanes_pixels = 1, lanes_channels = 2
   character(len=*), parameter :: variable = "CNN_CPU_LANES"

   !> Packed elements of a band: far more than any cache holds, far less than 32 bits count
   integer(i8), parameter :: most_elements = 16777216_i8

   !> Bytes of a vector for which costs are compared; the choice is the same on all processors
   integer, parameter :: usual_vector = 64

   !> Pixels of a row, of which more are better in the lanes
   integer, parameter :: wide = 48

contains

   !> How to compute y from x: `direct`, along `grid`, or as im2col. By the shapes alone, unless what is
   !> in the lanes is `wanted`
   subroutine choose_forward(conv, x, w, y, wanted, grid, direct)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> Output, of which only extents and element type matter
      type(tensor_type), intent(in) :: y
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> Grid of the direct kernel; undefined when there is none
      type(grid_type), intent(out) :: grid
      !> Whether rows are packed and shifted; else im2col
      logical, intent(out) :: direct
      call lay_forward(conv, x, w, y, grid, direct)
      if (direct) call choose_lanes(x%extent(3)/conv%groups, y%extent(3)/conv%groups, y%dtype, wanted, grid)
   end subroutine choose_forward

   !> How to compute dx from dy
   subroutine choose_backward(conv, w, dy, dx, wanted, grid, direct)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output, of which only extents and element type matter
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input, of which only extents and element type matter
      type(tensor_type), intent(in) :: dx
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> Grid of the direct kernel; undefined when there is none
      type(grid_type), intent(out) :: grid
      !> Whether rows are packed and shifted; else im2col
      logical, intent(out) :: direct
      call lay_backward(conv, w, dy, dx, grid, direct)
      if (direct) call choose_lanes(dy%extent(3)/conv%groups, dx%extent(3)/conv%groups, dx%dtype, wanted, grid)
   end subroutine choose_backward

   !> The grid of y, with pixels in the lanes
   subroutine lay_forward(conv, x, w, y, grid, direct)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> Output, of which only extents and element type matter
      type(tensor_type), intent(in) :: y
      !> Grid of the direct kernel; undefined when there is none
      type(grid_type), intent(out) :: grid
      !> Whether rows are packed and shifted; else im2col
      logical, intent(out) :: direct
      direct = planes_are_few(conv)
      if (.not. direct) return
      call forward_grid(conv, w%extent, y%extent, grid)
      call choose_band(grid, conv%groups, x, y%extent(4))
      direct = packed_elements(grid, conv%groups, x) < most_elements
   end subroutine lay_forward

   !> The grid of dx
   subroutine lay_backward(conv, w, dy, dx, grid, direct)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Filters, of which only the extents matter
      type(tensor_type), intent(in) :: w
      !> Gradient with respect to the output, of which only extents and element type matter
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the input, of which only extents and element type matter
      type(tensor_type), intent(in) :: dx
      !> Grid of the direct kernel; undefined when there is none
      type(grid_type), intent(out) :: grid
      !> Whether rows are packed and shifted; else im2col
      logical, intent(out) :: direct
      direct = planes_are_few(conv)
      if (.not. direct) return
      call backward_grid(conv, w%extent, dx%extent, grid)
      call choose_band(grid, conv%groups, dy, dx%extent(4))
      direct = packed_elements(grid, conv%groups, dy) < most_elements
   end subroutine lay_backward

   !> Set `channels_in_lanes`: for few pixels, whose rows fill vectors badly, and many products for each result, which
   !> has to be turned (limits measured with AVX-512)
   pure subroutine choose_lanes(channels, results, dtype, wanted, grid)
      !> Channels of the source in a group
      integer, intent(in) :: channels
      !> Channels of the result in a group
      integer, intent(in) :: results
      !> Element type, of cnn_core_kinds
      integer, intent(in) :: dtype
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> Grid whose `channels_in_lanes` is set
      type(grid_type), intent(inout) :: grid
      integer :: lanes, part, products, least_products
      lanes = usual_vector/int(bytes_of(dtype))
      ! 128 in float32; in float64 twice as many, so that networks of 16 channels go depth first
      least_products = 32*int(bytes_of(dtype))
      products = channels*maxval([(size(grid%parts(part)%tap), part=1, size(grid%parts))])
      select case (wanted)
       case (lanes_channels)
         ! One filter over one channel has an order of its own
         grid%channels_in_lanes = channels > 1
       case (lanes_cheaper)
         ! Rows that do not fill a vector of pixels; and other short ones
         grid%channels_in_lanes = (results >= lanes .and. grid%extent(1) < lanes .and. products >= lanes) .or. &
            & (results >= 2*lanes .and. grid%extent(1) <= wide .and. products >= least_products)
       case default
         grid%channels_in_lanes = .false.
      end select
   end subroutine choose_lanes

   !> What the environment asks for; `pixels` or `channels` in the vector lanes are for tests and comparisons
   subroutine read_lanes(wanted, error)
      !> `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(out) :: wanted
      !> Says that the environment asks for something else
      type(error_type), allocatable, intent(out) :: error
      character(len=32) :: value
      integer :: stat
      wanted = lanes_cheaper
      call get_environment_variable(variable, value, status=stat)
      if (stat > 0 .or. len_trim(value) == 0) return
      select case (value)
       case ("pixels")
         wanted = lanes_pixels
       case ("channels")
         wanted = lanes_channels
       case default
         call fail(error, variable//" is """//trim(value)//""", expected pixels or channels")
      end select
   end subroutine read_lanes

   !> How to compute dw from x and dy. By the shapes alone, unless what is in the lanes is `wanted`
   subroutine choose_filter(conv, x, dy, dw, wanted, algorithm, grid, plan)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Input, of which only extents and element type matter
      type(tensor_type), intent(in) :: x
      !> Gradient with respect to the output, of which only extents and element type matter
      type(tensor_type), intent(in) :: dy
      !> Gradient with respect to the filters, of which only the extents matter
      type(tensor_type), intent(in) :: dw
      !> What is in the vector lanes: `lanes_cheaper`, `lanes_pixels` or `lanes_channels`
      integer, intent(in) :: wanted
      !> One of the five above
      integer, intent(out) :: algorithm
      !> Grid of the direct kernel, forward for `filter_channels_last`; undefined for `filter_im2col`
      type(grid_type), intent(out) :: grid
      !> Plan with channels in the lanes; undefined for `filter_im2col`
      type(outer_type), intent(out) :: plan
      type(outer_type) :: transposed_x
      integer :: lanes
      logical :: direct, shifts_dy

      algorithm = filter_im2col
      shifts_dy = conv%stride_h == 1 .and. conv%stride_w == 1 .and. dy%extent(3) < x%extent(3)
      if (shifts_dy) then
         call lay_backward(conv, dw, dy, x, grid, direct)
      else
         call lay_forward(conv, x, dw, dy, grid, direct)
      end if
      if (.not. direct) return
      algorithm = merge(filter_shifts_dy, filter_shifts_x, shifts_dy)
      grid%band(2) = max(1, min(grid%band(2), most_summed/grid%band(1)))
      lanes = usual_vector/int(bytes_of(x%dtype))
      call plan_outer(conv, .false., x%extent, dy%extent, dw%extent, plan)
      if (conv%stride_h == 1 .and. conv%stride_w == 1) then
         call plan_outer(conv, .true., x%extent, dy%extent, dw%extent, transposed_x)
         if (transposed_x%cost(lanes) < plan%cost(lanes)) plan = transposed_x
      end if
      if (plan%plane_elements()*plan%source_channels >= most_elements) return
      select case (wanted)
       case (lanes_channels)
         algorithm = filter_channel_lanes
       case (lanes_cheaper)
         ! Half of the lanes at least have something to do
         if (2*plan%transposed_channels >= lanes .and. plan%cost(lanes) < &
            & direct_cost(conv, x%extent, dy%extent, dw%extent, shifts_dy, lanes)) algorithm = filter_channel_lanes
         ! One tap alone is not worth turning all of dy for
         if (min(x%extent(3), dy%extent(3))/conv%groups >= lanes .and. dy%extent(1) <= wide .and. &
            & product(dw%extent(1:2)) > 1) then
            algorithm = filter_channels_last
            call forward_grid(conv, dw%extent, dy%extent, grid)
         end if
       case default
         continue
      end select
   end subroutine choose_filter

   !> Cycles for a product of a filter gradient with pixels in the lanes, about: fitted to times of one core with
   !> AVX-512, to be compared with the cost of a plan
   pure real(dp) function direct_cost(conv, x, dy, dw, shifts_dy, lanes)
      !> Stride, padding, dilation and groups
      type(conv_type), intent(in) :: conv
      !> Extents of the input
      integer, intent(in) :: x(4)
      !> Extents of the output
      integer, intent(in) :: dy(4)
      !> Extents of the filters
      integer, intent(in) :: dw(4)
      !> Elements of a vector
      integer, intent(in) :: lanes
      !> Whether dy is packed and shifted
      logical, intent(in) :: shifts_dy
      !> Multiply-adds of a vector in a cycle; cycles to copy an element, or every second, and to begin with a row; to
      !> add the lanes of one sum as often as is usual
      real(dp), parameter :: rate = 1.3_dp, copy = 0.35_dp, pick = 1.5_dp, row = 12.0_dp, lane_sums = 100.0_dp
      real(dp) :: pixels, source, points, filters, copies
      integer :: width
      pixels = real(dy(1), dp)*dy(2)*dy(4)
      source = pixels*conv%stride_w*conv%stride_h
      filters = merge(x(3), dy(3), shifts_dy)/conv%groups
      points = product(dw(1:2))*real(merge(dy(3), x(3), shifts_dy), dp)/conv%groups
      copies = (merge(copy, pick, conv%stride_w == 1) + row/x(1))*source/(pixels*filters)
      ! Long rows of whole vectors are used where they are
      width = merge(x(1), dy(1), shifts_dy)
      if (mod(width, lanes) /= 0 .or. width < 16*lanes) copies = copies + (copy + row/width)/points
      direct_cost = (1.0_dp + real(dw(1) - 1, dp)*conv%dilation_w/(conv%stride_w*dy(1)))/(rate*lanes) + &
         & copies + lane_sums/pixels
   end function direct_cost

   !> The algorithm of a filter gradient in words
   function filter_text(algorithm, grid, plan) result(text)
      !> How it is computed
      integer, intent(in) :: algorithm
      !> Grid of the direct kernel
      type(grid_type), intent(in) :: grid
      !> Plan with channels in the lanes
      type(outer_type), intent(in) :: plan
      character(len=:), allocatable :: text
      if (algorithm == filter_channels_last) then
         text = "direct, channels in the lanes, all of dy turned before"
      else if (algorithm == filter_channel_lanes) then
         text = "direct, channels in the lanes, in bands of "//to_text(plan%band_images)//" x "// &
            & to_text(plan%rows)//" rows of "//to_text(plan%extent(1))//" pixels"
      else
         text = direct_text(grid, algorithm /= filter_im2col)
      end if
   end function filter_text

   !> The choice of `choose_forward` or `choose_backward` in words
   function direct_text(grid, direct) result(text)
      !> Grid of the direct kernel
      type(grid_type), intent(in) :: grid
      !> Whether rows are packed and shifted
      logical, intent(in) :: direct
      character(len=:), allocatable :: text
      text = "im2col"
      if (direct) text = "direct, in bands of "//to_text(grid%band(2))//" rows of "//to_text(grid%band(1))//" pixels"
      if (grid%channels_in_lanes) text = "direct, channels in the lanes"
   end function direct_text

   subroutine choose_band(grid, groups, source, images)
      !> Grid whose `band` is set
      type(grid_type), intent(inout) :: grid
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Number of images of the batch
      integer, intent(in) :: images
      !> Tensor to be packed, of which only extents and element type matter
      type(tensor_type), intent(in) :: source
      call grid%choose_band(planes_of(grid, groups, source)*bytes_of(source%dtype), int(images, i8)*groups)
   end subroutine choose_band

   pure integer(i8) function packed_elements(grid, groups, source)
      !> Grid with its band
      type(grid_type), intent(in) :: grid
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Tensor to be packed, of which only the extents matter
      type(tensor_type), intent(in) :: source
      packed_elements = planes_of(grid, groups, source)*grid%plane_elements(16)
   end function packed_elements

   !> Planes of all channels of a group
   pure integer(i8) function planes_of(grid, groups, source)
      !> Grid with its planes
      type(grid_type), intent(in) :: grid
      !> Number of groups of channels
      integer, intent(in) :: groups
      !> Tensor to be packed, of which only the extents matter
      type(tensor_type), intent(in) :: source
      planes_of = int(source%extent(3)/groups, i8)*size(grid%origin, 2)
   end function planes_of

end module cnn_cpu_plan_choice
