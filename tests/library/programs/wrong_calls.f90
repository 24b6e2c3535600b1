! SPDX-License-Identifier: MIT
!> Calls that cannot be done, each with its message; the network is right after each of them.
program wrong_calls
   use, intrinsic :: ieee_arithmetic, only : ieee_quiet_nan, ieee_value
   use, intrinsic :: iso_c_binding, only : c_null_ptr
   use cnn
   implicit none
   type(network_type) :: net, other, late, real_numbers, no_truth
   type(error_type), allocatable :: error
   real(sp) :: x(8, 8, 1, 2), y(8, 8, 1, 2), w(3, 3, 1, 2), five(8, 8, 1, 2, 1)
   real(dp) :: double(8, 8, 1, 2), loss
   type(name_type), allocatable :: names(:)
   call random_number(x)

   call net%forward(x, y, error)
   call say("not built")
   call net%step(x, y, sgd(lr=0.1_dp), loss, error)
   call say("not built")
   call net%save("none.h5", sgd(lr=0.1_dp), error)
   call say("not built")
   call net%names(names, error)
   call say("not built")
   call net%build(error)
   call say("no layers")

   call other%add("conv", conv2d(1, 2, kernel_size=0))
   call other%add("relu", layer("relu"))
   call other%build(error)
   call say("kernel of 0")
   call other%forward(x, y, error)
   call say("kernel of 0")
   call real_numbers%add("conv", conv2d(1, 2, kernel_size=3.0))
   call real_numbers%build(error)
   call say("kernel of a real number")
   call no_truth%add("conv", conv2d(1, 2, kernel_size=3, bias=1))
   call no_truth%build(error)
   call say("an integer for a truth")
   call late%add("a", layer("nothing"))
   call late%build(error)
   call say("unknown layer")

   call net%add("conv", conv2d(1, 2, kernel_size=3, padding=1))
   call net%add("last", conv2d(2, 1, kernel_size=1))
   call net%build(error, device="tpu")
   call say("unknown device")
   call net%build(error, precision="float16")
   call say("unknown precision")
   call net%build(error, keep_activations=7)
   call say("unknown memory")
   call net%build(error, loss="hinge")
   call say("unknown loss")
   call net%build(error, initialization="zeros")
   call say("unknown initialization")
   call net%forward(x, y, error)
   call say("not built")
   call net%build(error)
   call say("good")

   call net%forward(double, double, error)
   call say("another kind")
   call net%forward(five, y, error)
   call say("five dimensions")
   call net%forward(x(:, :, :, :0), y, error)
   call say("no images")
   call net%forward(x(:, :, 1, :), y, error)
   call say("three dimensions")
   call net%forward(x, w, error)
   call say("another shape")
   call net%step(x, w, sgd(lr=0.1_dp), loss, error)
   call say("another target")
   call net%step(x, y, sgd(lr=-0.1_dp), loss, error)
   call say("negative rate")
   call net%step(x, y, sgd(lr=0.1_dp, nesterov=1), loss, error)
   call say("an integer for a truth")
   call net%set_training(1, error)
   call say("an integer for a truth")
   call net%freeze("conv.weight", error, "no")
   call say("a text for a truth")
   call net%forward(device_array(c_null_ptr, [8, 8, 1, 2], sp), device_array(c_null_ptr, [8, 8, 1, 2], sp), error)
   call say("device array")
   call net%get("conv.weigth", w, error)
   call say("no parameter")
   call net%get("conv.weight", x, error)
   call say("another shape")
   call net%set("conv.weight", double, error)
   call say("another kind")
   call net%get_output("relu", y, error)
   call say("no layer")
   call net%get_gradient("conv.weight", w, error)
   call say("good")
   call net%get_gradient("conv", w, error)
   call say("no gradient yet")
   call net%freeze("last", error)
   call say("no parameter")
   call net%load("none.h5", error)
   call say("no file")
   call net%save("/none/none.h5", sgd(lr=0.1_dp), error)
   call say("no folder")
   x(1, 1, 1, 1) = huge(x)
   call net%step(x, x, sgd(lr=0.1_dp), loss, error)
   if (.not. error%diverged) error stop "gradients that are not finite are a divergence"
   call say("infinite")
   x(1, 1, 1, 1) = ieee_value(1.0_sp, ieee_quiet_nan)
   call net%step(x, x, sgd(lr=0.1_dp), loss, error)
   if (.not. error%diverged) error stop "a loss that is not finite is a divergence"
   call say("diverges")
   call net%add("late", layer("relu"))
   call net%forward(x, y, error)
   call say("late layer")

contains

   subroutine say(what)
      !> What was tried
      character(len=*), intent(in) :: what
      if (allocated(error)) then
         print "(a)", what//": "//error%message
         deallocate (error)
      else
         print "(a)", what//": no error"
      end if
   end subroutine say
end program wrong_calls
