! SPDX-License-Identifier: MIT
!> Every operation, loss and optimizer at large and small numbers, in a program that ends at floating-point traps: it is to
!> be compiled with -ffpe-trap. Prints what failed, how many were computed, and that traps and flags are as before.
program traps
   use, intrinsic :: ieee_exceptions, only : ieee_all, ieee_get_flag, ieee_get_halting_mode, ieee_set_flag, ieee_usual
   use cnn
   implicit none
   character(len=*), parameter :: operations(*) = [character(len=64) :: &
      & "abs", "adaptive_avg_pool2d output_size=3,3", "adaptive_max_pool2d output_size=3,3", &
      & "add", "affine scale=-0.3 shift=0.7", &
      & "amax dim=1 keepdim=1", "amin dim=1 keepdim=1", &
      & "avg_pool2d kernel_size=2,2 stride=2,2", "batch_norm2d num_features=2", "circular_pad pad=1,1,1,1", &
      & "clip min=-1 max=1", "concat", "constant_pad pad=1,1,1,1 value=2", "interpolate degree=3 size=18,74", &
      & "conv2d in_channels=2 out_channels=3 kernel_size=3,3", "conv_transpose2d in_channels=2 out_channels=3 "// &
      & "kernel_size=2,2", "cos", "divide", "dropout p=0.5", "dropout2d p=0.5", "elu", "exp", "flatten", "gelu", "gelu_tanh", &
      & "global_avg_pool2d", "group_norm num_groups=2 num_channels=2", "hardsigmoid", "hardswish", &
      & "leaky_relu", "log", "log10", "log2", &
      & "log_softmax", "max dim=1 keepdim=1", "max_pool2d kernel_size=2,2 stride=2,2", "mean dim=1 keepdim=1", &
      & "min dim=1 keepdim=1", "mish", "multiply", &
      & "prelu num_parameters=2", "reciprocal", "rsqrt", "square", &
      & "reflection_pad2d padding=1,1,1,1", "relu", "replication_pad2d padding=1,1,1,1", &
      & "sigmoid", "silu", "sin", "softmax", "softplus", "sqrt", "subtract", "sum dim=1 keepdim=1", "tanh", &
      & "upsample_bilinear2d scale_factor=2,2", "upsample_nearest2d scale_factor=2,2", "zero_pad2d padding=1,1,1,1"]
   character(len=*), parameter :: pairs(*) = [character(len=8) :: "add", "concat", "divide", "multiply", &
      & "subtract"]
   character(len=*), parameter :: losses(*) = [character(len=24) :: "mse", "l1", "smooth_l1", "huber", "bce", &
      & "bce_with_logits", "cross_entropy"]
   real(dp), parameter :: sizes(*) = [0.0_dp, 1.0e-30_dp, 0.5_dp, 20.0_dp, 100.0_dp, 1000.0_dp, 1.0e18_dp, 1.0e30_dp]
   logical :: flags(size(ieee_all)), halting(size(ieee_usual))
   integer :: computed, i, k
   computed = 0
   call ieee_set_flag(ieee_all, .false.)
   do k = 1, size(sizes)
      do i = 1, size(operations)
         call compute(trim(operations(i)), sizes(k), "float32")
         call compute(trim(operations(i)), sizes(k), "float64")
      end do
      do i = 1, size(losses)
         call learn(trim(losses(i)), sizes(k))
      end do
   end do
   print "(i0, a)", computed, " computed"
   call ieee_get_halting_mode(ieee_usual, halting)
   call ieee_get_flag(ieee_usual, flags(:size(ieee_usual)))
   print "(a, 2(1x, l1))", "as before", all(halting), .not. any(flags(:size(ieee_usual)))

contains

   subroutine compute(text, largest, precision)
      !> Operation with its settings
      character(len=*), intent(in) :: text
      !> Of the input's numbers
      real(dp), intent(in) :: largest
      !> float32 or float64
      character(len=*), intent(in) :: precision
      type(network_type) :: net
      type(error_type), allocatable :: error
      character(len=:), allocatable :: kind
      real(dp) :: x(37, 9, 2, 2)
      real(dp), allocatable :: y(:, :, :, :), dy(:, :, :, :)
      integer :: at, extents(4)
      at = index(text//" ", " ")
      kind = text(:at - 1)
      call fill(x, largest, any(kind == [character(len=10) :: "log", "log2", "log10", "reciprocal", "rsqrt", "sqrt"]))
      if (any(pairs == kind)) then
         call net%add("a", layer(kind, text(at:)), inputs="input,input")
      else
         call net%add("a", layer(kind, text(at:)))
      end if
      call net%build(error, precision=precision)
      if (allocated(error)) then
         print "(a)", text//": "//error%message
         return
      end if
      extents = shape_after(kind)
      allocate (y(extents(1), extents(2), extents(3), extents(4)))
      allocate (dy, mold=y)
      dy = 1.0_dp
      if (precision == "float32") then
         call compute_single(net, real(x, sp), y, text, error)
      else if (kind == "flatten") then
         call net%forward(x, y(:, 1, 1, :), error)
      else
         call net%forward(x, y, error)
         if (.not. allocated(error)) call net%pull_back(x, dy, x, error)
      end if
      if (allocated(error)) print "(a)", text//": "//error%message
      computed = computed + 1
   end subroutine compute

   subroutine compute_single(net, x, like, text, error)
      !> Of float32
      type(network_type), intent(inout) :: net
      !> Input
      real(sp), intent(in) :: x(:, :, :, :)
      !> Of the output's shape
      real(dp), intent(in) :: like(:, :, :, :)
      !> Operation
      character(len=*), intent(in) :: text
      !> None
      type(error_type), allocatable, intent(out) :: error
      real(sp) :: y(size(like, 1), size(like, 2), size(like, 3), size(like, 4)), dx(37, 9, 2, 2)
      y = 0.0_sp
      if (text == "flatten") then
         call net%forward(x, y(:, 1, 1, :), error)
      else
         call net%forward(x, y, error)
         y = 1.0_sp
         if (.not. allocated(error)) call net%pull_back(x, y, dx, error)
      end if
   end subroutine compute_single

   !> Of the output
   function shape_after(kind) result(extents)
      !> Operation
      character(len=*), intent(in) :: kind
      integer :: extents(4)
      extents = [37, 9, 2, 2]
      select case (kind)
       case ("adaptive_avg_pool2d", "adaptive_max_pool2d")
         extents(:2) = 3
       case ("avg_pool2d", "max_pool2d")
         extents(:2) = [18, 4]
       case ("global_avg_pool2d")
         extents(:2) = 1
       case ("concat")
         extents(3) = 4
       case ("conv2d")
         extents(:3) = [35, 7, 3]
       case ("conv_transpose2d")
         extents(:3) = [38, 10, 3]
       case ("flatten")
         extents(:3) = [37*9*2, 1, 1]
       case ("amax", "amin", "max", "mean", "min", "sum")
         extents(3) = 1
       case ("circular_pad", "constant_pad", "reflection_pad2d", "replication_pad2d", "zero_pad2d")
         extents(:2) = [39, 11]
       case ("interpolate", "upsample_bilinear2d", "upsample_nearest2d")
         extents(:2) = [74, 18]
      end select
   end function shape_after

   subroutine fill(x, largest, positive)
      !> Numbers of both signs, and 0
      real(dp), intent(out) :: x(:, :, :, :)
      !> Their size
      real(dp), intent(in) :: largest
      !> Whether they are, which some operations want
      logical, intent(in) :: positive
      integer :: i
      x = reshape([(largest*real(mod(7*i, 23) - 11, dp)/11, i=1, size(x))], shape(x))
      if (positive) x = abs(x) + 1.0_dp
   end subroutine fill

   subroutine learn(loss_name, largest)
      !> Its name
      character(len=*), intent(in) :: loss_name
      !> Of the input's numbers
      real(dp), intent(in) :: largest
      type(network_type) :: net
      type(error_type), allocatable :: error
      real(dp) :: x(37, 9, 2, 2), target(37, 9, 2, 2), loss
      call fill(x, largest, .false.)
      target = 0.0_dp
      target(:, :, 1, :) = 1.0_dp
      call net%add("a", conv2d(2, 2, kernel_size=1))
      if (loss_name == "bce") call net%add("b", layer("sigmoid"))
      call net%build(error, loss=loss_name)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), adam(lr=0.1_dp), loss, error)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), adamw(lr=0.1_dp), loss, error)
      if (.not. allocated(error)) call net%step(real(x, sp), real(target, sp), sgd(lr=0.1_dp, momentum=0.5_dp), loss, &
         & error)
      if (allocated(error)) then
         if (.not. error%diverged) print "(a)", loss_name//": "//error%message
      end if
      computed = computed + 1
   end subroutine learn
end program traps
