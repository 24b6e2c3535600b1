! SPDX-License-Identifier: MIT
!> A model as text, and as a checked list of layers.
!>
!>     {"layers": [{"name": "conv1", "type": "conv2d", "in_channels": 1, "out_channels": 16,
!>                  "kernel_size": [3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
!>                  "groups": 1, "bias": true},
!>                 {"name": "relu1", "type": "relu"}],
!>      "loss": {"type": "mse", "reduction": "mean"}}
!>
!> Pairs are (height, width), as in torch. Any chain of conv2d and relu layers is a model.
module cnn_model_description
   use cnn_core_conv_geometry, only : conv_type
   use cnn_core_error, only : error_type, fail
   use cnn_core_json, only : json_type
   use cnn_core_text, only : to_text
   implicit none
   private

   public :: check_name, read_description

   integer, parameter, public :: kind_conv2d = 1, kind_relu = 2
   character(len=*), parameter :: letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

   type, public :: layer_description_type
      character(len=:), allocatable :: name
      integer :: kind = 0
      type(conv_type) :: conv
      !> Fortran order (s, r, c/groups, k)
      integer :: weight_extent(4) = 0
      logical :: has_bias = .false.
   end type layer_description_type

   type, public :: description_type
      !> The JSON text that it was read from, written back unchanged
      character(len=:), allocatable :: text
      type(layer_description_type), allocatable :: layers(:)
      !> mse: mean over all elements, else their sum
      logical :: mean = .true.
   end type description_type

contains

   !> Read and check a model description
   subroutine read_description(text, description, error)
      !> JSON
      character(len=*), intent(in) :: text
      !> What it says
      type(description_type), intent(out) :: description
      !> What is missing, unknown, or does not fit
      type(error_type), allocatable, intent(out) :: error
      type(json_type) :: json
      integer :: i, layers

      call json%parse(text, error)
      if (allocated(error)) return
      call only_keys(json, "", [character(len=6) :: "layers", "loss"], error)
      if (allocated(error)) return
      layers = json%length("layers")
      if (layers < 1) then
         call fail(error, "model description: layers is missing or empty, expected an array of layers")
         return
      end if
      allocate (description%layers(layers))
      do i = 1, layers
         call read_layer(json, "layers."//to_text(i - 1), description%layers(i), error)
         if (allocated(error)) return
      end do
      call check_chain(description%layers, error)
      if (allocated(error)) return
      call read_loss(json, description%mean, error)
      description%text = text
   end subroutine read_description

   subroutine read_layer(json, path, layer, error)
      !> The parsed text
      type(json_type), intent(in) :: json
      !> Path of the layer in the text, as layers.0
      character(len=*), intent(in) :: path
      !> What it says
      type(layer_description_type), intent(out) :: layer
      !> What is missing, unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind

      call json%get_string(path//".name", layer%name, error)
      if (allocated(error)) return
      call json%get_string(path//".type", kind, error)
      if (allocated(error)) return
      select case (kind)
       case ("relu")
         layer%kind = kind_relu
         call only_keys(json, path, [character(len=4) :: "name", "type"], error)
       case ("conv2d")
         layer%kind = kind_conv2d
         call read_conv2d(json, path, layer, error)
       case default
         call fail(error, "model description: layer "//layer%name//" has type "//kind//", expected conv2d or relu")
      end select
   end subroutine read_layer

   subroutine read_conv2d(json, path, layer, error)
      !> The parsed text
      type(json_type), intent(in) :: json
      !> Path of the layer in the text, as layers.0
      character(len=*), intent(in) :: path
      !> A convolution, whose name is set
      type(layer_description_type), intent(inout) :: layer
      !> What is missing, unknown, or out of its range
      type(error_type), allocatable, intent(out) :: error
      integer :: channels_in, channels_out, pair(2), extent(4)

      call only_keys(json, path, [character(len=12) :: "name", "type", "in_channels", "out_channels", &
         & "kernel_size", "stride", "padding", "dilation", "groups", "bias"], error)
      if (allocated(error)) return
      call json%get_integer(path//".in_channels", channels_in, error)
      if (allocated(error)) return
      call json%get_integer(path//".out_channels", channels_out, error)
      if (allocated(error)) return
      layer%conv%groups = 1
      if (json%has(path//".groups")) call json%get_integer(path//".groups", layer%conv%groups, error)
      if (allocated(error)) return
      call json%get_logical(path//".bias", layer%has_bias, error)
      if (allocated(error)) return

      call read_pair(json, path//".stride", 1, pair, error)
      if (allocated(error)) return
      layer%conv%stride_h = pair(1)
      layer%conv%stride_w = pair(2)
      call read_pair(json, path//".padding", 0, pair, error)
      if (allocated(error)) return
      layer%conv%pad_h = pair(1)
      layer%conv%pad_w = pair(2)
      call read_pair(json, path//".dilation", 1, pair, error)
      if (allocated(error)) return
      layer%conv%dilation_h = pair(1)
      layer%conv%dilation_w = pair(2)
      if (.not. json%has(path//".kernel_size")) then
         call fail(error, "model description: "//path//".kernel_size is missing, expected (height, width)")
         return
      end if
      call read_pair(json, path//".kernel_size", 1, pair, error)
      if (allocated(error)) return

      if (any([channels_in, channels_out, layer%conv%groups, pair] < 1)) then
         call fail(error, "model description: layer "//layer%name//" has a size below 1")
         return
      end if
      if (any([channels_in, channels_out] > 65536) .or. any(pair > 1024)) then
         call fail(error, "model description: layer "//layer%name// &
            & " is larger than 65536 channels or a 1024 x 1024 kernel")
         return
      end if
      if (mod(channels_in, layer%conv%groups) /= 0) then
         call fail(error, "model description: layer "//layer%name//" has in_channels "//to_text(channels_in)// &
            & ", expected a multiple of groups "//to_text(layer%conv%groups))
         return
      end if
      layer%weight_extent = [pair(2), pair(1), channels_in/layer%conv%groups, channels_out]
      ! An input as large as the dilated kernel always fits: what is refused here is the layer itself
      call layer%conv%output_extent([1 + layer%conv%dilation_w*(pair(2) - 1), &
         & 1 + layer%conv%dilation_h*(pair(1) - 1), channels_in, 1], layer%weight_extent, extent, error)
      if (allocated(error)) error%message = "model description: layer "//layer%name//": "//error%message
   end subroutine read_conv2d

   !> An unknown key might change what the layer computes: it is refused
   subroutine only_keys(json, path, known, error)
      !> The parsed text
      type(json_type), intent(in) :: json
      !> Path of an object in the text
      character(len=*), intent(in) :: path
      !> Keys that it may have, padded with blanks
      character(len=*), intent(in) :: known(:)
      !> Another key is there; names it
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: key
      key = json%other_key(path, known)
      if (len(key) > 0) call fail(error, "model description: unknown key '"//key//"' in "//path)
   end subroutine only_keys

   !> An optional pair of integers (height, width)
   subroutine read_pair(json, path, default, pair, error)
      !> The parsed text
      type(json_type), intent(in) :: json
      !> Path of the pair in the text
      character(len=*), intent(in) :: path
      !> Value of both, where the pair is not there
      integer, intent(in) :: default
      !> (height, width)
      integer, intent(out) :: pair(2)
      !> Not two integers
      type(error_type), allocatable, intent(out) :: error
      pair = default
      if (.not. json%has(path)) return
      if (json%length(path) /= 2) then
         call fail(error, "model description: "//path//" is not an array of two integers (height, width)")
         return
      end if
      call json%get_integer(path//".0", pair(1), error)
      if (allocated(error)) return
      call json%get_integer(path//".1", pair(2), error)
   end subroutine read_pair

   subroutine read_loss(json, mean, error)
      !> The parsed text
      type(json_type), intent(in) :: json
      !> Whether the loss is a mean over all elements, not their sum
      logical, intent(out) :: mean
      !> What is missing or unknown
      type(error_type), allocatable, intent(out) :: error
      character(len=:), allocatable :: kind, reduction
      mean = .true.
      call only_keys(json, "loss", [character(len=9) :: "type", "reduction"], error)
      if (allocated(error)) return
      call json%get_string("loss.type", kind, error)
      if (allocated(error)) return
      if (kind /= "mse") then
         call fail(error, "model description: loss.type is "//kind//", expected mse")
         return
      end if
      call json%get_string("loss.reduction", reduction, error)
      if (allocated(error)) return
      mean = reduction == "mean"
      if (.not. mean .and. reduction /= "sum") call fail(error, "model description: loss.reduction is "// &
         & reduction//", expected mean or sum")
   end subroutine read_loss

   !> Names are usable in a file, all different; channels of one layer fit the next
   subroutine check_chain(layers, error)
      !> In the order in which they are computed
      type(layer_description_type), intent(in) :: layers(:)
      !> Two layers that do not fit together, or no convolution
      type(error_type), allocatable, intent(out) :: error
      integer :: i, j, channels, expected

      channels = 0
      do i = 1, size(layers)
         call check_name(layers(i)%name, error)
         if (allocated(error)) return
         do j = 1, i - 1
            if (layers(j)%name == layers(i)%name) then
               call fail(error, "model description: two layers are named "//layers(i)%name)
               return
            end if
         end do
         if (layers(i)%kind /= kind_conv2d) cycle
         expected = layers(i)%weight_extent(3)*layers(i)%conv%groups
         if (channels > 0 .and. channels /= expected) then
            call fail(error, "model description: layer "//layers(i)%name//" has in_channels "// &
               & to_text(expected)//", but the layer before it gives "//to_text(channels))
            return
         end if
         channels = layers(i)%weight_extent(4)
      end do
      if (channels == 0) call fail(error, "model description: no conv2d layer, expected at least one")
   end subroutine check_chain

   subroutine check_name(name, error)
      !> Name of a layer
      character(len=*), intent(in) :: name
      !> It cannot be a name in a file
      type(error_type), allocatable, intent(out) :: error
      logical :: good
      good = len(name) >= 1 .and. len(name) <= 64
      if (good) good = verify(name(1:1), letters//"_0123456789") == 0
      if (good) good = verify(name, letters//"_0123456789.-") == 0
      if (.not. good) then
         call fail(error, "model description: layer name '"//name// &
            & "', expected 1 to 64 letters, digits, '_', '.', '-', not starting with '.' or '-'")
      else if (name == "input") then
         call fail(error, "model description: a layer is named input, which names the network's input")
      end if
   end subroutine check_name

end module cnn_model_description
